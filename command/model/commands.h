/* Commands: lines that control the model, from a Unix socket or standard input. */
#ifndef BACKHOP_COMMAND_MODEL_COMMANDS_H
#define BACKHOP_COMMAND_MODEL_COMMANDS_H

#include "base/buffer.h"
#include "base/report.h"

#include <backhop/status.h>

#include <poll.h>

enum { COMMANDS_PEERS = 16, COMMANDS_MOST = COMMANDS_PEERS + 1 };

/* Executes a line. Appends the answer, or the reason of a failure, to the report. */
typedef bh_status command_handler(void *data, const char *line, bh__report *answer);

typedef struct command_peer {
    int in, out; /* -1: none */
    bh__buffer line;
} command_peer;

typedef struct commands {
    int listener;      /* -1: none */
    int64_t accept_ms; /* wall clock: no peer is accepted before, as there was no file descriptor left */
    const char *path;
    int has_ended; /* standard input ended */
    command_peer peers[COMMANDS_PEERS];
    command_handler *handle;
    void *data;
} commands;

/* where: "-": standard input; the path of a Unix socket; NULL: no commands. Complains and returns 0
 * if it cannot listen. */
int commands_open(commands *self, const char *where, command_handler *handle, void *data);
void commands_close(commands *self);
/* Writes COMMANDS_MOST items to poll for. */
void commands_fill(const commands *self, struct pollfd *out, int64_t wall_ms);
/* Reads and executes the lines that came. The answer to a line is its text, then a line "ok" or
 * "error: REASON". */
void commands_work(commands *self, const struct pollfd *polled, int64_t wall_ms);

#endif
