/*
 * Children: this program's sub-commands, as processes. So each look and each action is exactly the
 * sub-command, and a page cannot end this process.
 *
 * A child ends with this process: it gets SIGTERM then, as by Ctrl-C.
 */
#ifndef BACKHOP_COMMAND_WEB_CHILDREN_H
#define BACKHOP_COMMAND_WEB_CHILDREN_H

#include "common/options.h"

#include <poll.h>

enum { CHILDREN_MOST = 24, CHILD_MOST_BYTES = 16777216, CHILD_PROBLEM_BYTES = 4096 };
/* Exit codes of a child that was stopped by its time limit, or by a line above CHILD_MOST_BYTES. */
enum { CHILD_TOO_SLOW = 256, CHILD_TOO_LARGE };

typedef struct child child;

/* Gets the output and the end of a child; `data` is the first argument. */
typedef struct child_listener {
    void (*on_line)(void *data, const char *line, size_t size); /* of standard output */
    void (*on_end)(void *data, int code, const char *problem);  /* the exit code, and standard error's text */
    void *data;
} child_listener;

typedef struct children {
    child *items[CHILDREN_MOST];
} children;

/* Starts `backhop ARGUMENTS`; NULL: there are too many, or it cannot be started. It is stopped
 * after limit_ms; 0: never. It keeps the file `kept` open until its end; -1: none. */
child *children_start(children *self, const texts *arguments, int64_t limit_ms, int kept,
                      const child_listener *listener);
/* Ends it as Ctrl-C does; its listener gets the end. Again: kills it. */
void child_stop(child *self);
/* Writes what to poll, at most 2 for each child, and returns how many. */
size_t children_fill(const children *self, struct pollfd *out);
/* Returns how long that poll may take; `idle_ms` if no child runs. It is short for a child that has
 * closed its pipes: only waitpid shows its end. */
int children_poll_ms(const children *self, int idle_ms);
/* Reads what came, and calls the listeners. */
void children_work(children *self);
/* Stops all, and waits for their end. Those that have not ended after `limit_ms` are killed. */
void children_close(children *self, int64_t limit_ms);

#endif
