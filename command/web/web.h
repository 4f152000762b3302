/*
 * Web: what the parts of `backhop web` share. Everything runs in one thread.
 *
 *     api.c        routes of /api, and who may use them
 *     looks.c      looks, one after the other: each is a sub-command whose answer goes to the request
 *     jobs.c       replays, drops and loads, one for each queue
 *     kept.c       their files, by which they go on after the program was started again
 *     state.c      what goes to all pages
 *     live.c       depths, by `backhop top`
 *     records.c    the history of actions
 *     saved.c      files of dropped messages
 *     pages.c      the page's own files
 *     answers.c    how all of them answer
 */
#ifndef BACKHOP_COMMAND_WEB_WEB_H
#define BACKHOP_COMMAND_WEB_WEB_H

#include "common/output.h"
#include "web/arguments.h"
#include "web/children.h"
#include "web/server.h"

enum { WEB_MOST_BODY = 65536, JOBS_MOST = 40, LOOKS_MOST = 16 };

/* A look that runs or waits. */
typedef struct look {
    struct web *web;
    request *asker;
    verb verb;
    texts arguments;
    json_t *results;
    json_t *progress; /* the last line of each queue, by its name */
    json_t *last;     /* the last of all of them; NULL: none came */
    size_t bytes;
    int queues_done, queues; /* of a list: queues that were read to their end, and all; 0: not known yet */
    int runs, is_partly_kept;
    int is_stopped; /* by a page */
    child *child;   /* NULL: it does not run */
} look;

typedef struct job {
    struct web *web;
    int number;  /* 0: a free place */
    char id[17]; /* of this run, in the history */
    int kept;    /* its file, locked while this program or the sub-command has it; -1: none */
    verb verb;
    char *queue, *user, *file; /* owned; file: of a drop or a load */
    json_t *request, *progress, *result;
    char *problem;
    int64_t begun_ms, ended_ms; /* since the epoch; ended 0: it runs */
    int64_t done_before;        /* messages that earlier runs of this job replayed, dropped or loaded */
    int code, is_stopped;
    int is_interrupted; /* by the end of an earlier program; it does not go on by itself */
    int is_waiting;     /* for the end of the run that an earlier program started */
    child *child;
} job;

typedef struct live {
    child *child;      /* `backhop top`; NULL: it does not run */
    json_t *depths;    /* objects of one look; NULL: none yet */
    json_t *coming;    /* of the look that is being read */
    int64_t came_ms;   /* monotonic: when its last line came; 0: nothing came */
    int64_t wanted_ms; /* monotonic: when somebody wanted them last */
    int64_t retry_ms;  /* monotonic: not before then again */
    int64_t sent_ms;   /* monotonic: the last event */
    char *problem;     /* why there are none; "" */
    int is_changed;    /* an event is due */
} live;

typedef struct web {
    server_settings settings;
    server *server;
    children children;
    texts connecting; /* options of sub-commands that connect to the broker: TLS */
    texts naming;     /* the same, of all but load: namespace and strategy */
    texts waiting;    /* the same, of top, doctor and replay, which look at wait queues: the policy */
    char **queues;    /* operands; none: by the management API */
    int queue_count;
    int may_replay, may_drop;
    const char *user_header, *base_path, *allow;
    char token[RANDOM_DIGITS], session[RANDOM_DIGITS], cookie[32];
    char place[RANDOM_DIGITS]; /* a part of the path of calls with a session; see log_in */
    char *state, *history;     /* paths */
    char *scope;               /* the broker and the options of the topology: only jobs of the same scope go on */
    int is_closing;
    look looks[LOOKS_MOST];
    json_t *groups; /* the last snapshot; NULL: none yet */
    int groups_number;
    job jobs[JOBS_MOST];
    int job_number;
    live live;
} web;

/* Answers with JSON, which is freed. */
void web_answer(request *it, unsigned status, json_t *object);
/* Answers {"error": ...}. */
void web_refuse(request *it, unsigned status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Returns the HTTP status for an exit code of a sub-command. */
unsigned web_status(int code);
/* Returns a problem as the sub-command reports it, without the program's name. The caller frees
 * it. */
char *web_problem(const char *text);

/* Adds the options that web was started with. takes_names: 0 for load. takes_policy: the
 * sub-command looks at wait queues. */
void web_add_options(const web *self, texts *out, int takes_names, int takes_policy);

/* Handles a request. */
void api_handle(void *data, request *it);
/* Answers with a file of the page, or 404. `name` is behind the base path. */
void pages_answer(request *it, const char *name);

/* Begins a look; the arguments become the look's. It answers the request at its end. */
void looks_begin(web *self, request *asker, verb wanted, texts *arguments);
/* Stops the look that reads queues, and answers the request. The look's own request gets the groups
 * so far. */
void looks_stop(web *self, request *asker);
/* Starts what waits, if nothing runs. */
void looks_work(web *self);
/* Returns how far the look that runs is; JSON's null: none runs, or nothing came yet. */
json_t *looks_json(const web *self);
void looks_free(web *self);

/* Begins a job; answers the request. */
void jobs_begin(web *self, request *asker, verb wanted, json_t *body, const char *user);
void jobs_stop(web *self, request *asker, int number);
/* Returns all jobs as JSON, the newest first. */
json_t *jobs_json(const web *self);
/* Returns 1 if a job runs on the queue, by its name or its work queue's. */
int jobs_is_busy(const web *self, const char *queue);
/* Makes a job of a record that kept_read found. Returns 0 if there is no place. */
int jobs_add(web *self, const char *id, int kept, json_t *record);
/* Goes on with jobs whose run has ended with an earlier program, or shows them as interrupted. */
void jobs_work(web *self);
void jobs_free(web *self);

/* Writes and locks the file of a job, under its id. Returns 0 if it cannot. */
int kept_write(job *self);
/* Removes it. Does nothing if there is none. */
void kept_remove(job *self);
/* Closes it: it stays. */
void kept_close(job *self);
/* Returns 1 once no other process has the file: the run has ended. `is_gone`: another program has
 * removed it. */
int kept_is_free(const job *self, int *is_gone);
/* Makes a job of a record. Returns 0 if there is no place. */
typedef int (*kept_adder)(web *self, const char *id, int kept, json_t *record);
/* Adds the jobs of an earlier program. */
void kept_read(web *self, kept_adder add);

/* Starts and ends `backhop top`. */
void live_work(web *self);
/* Makes an event due. */
static inline void live_change(web *self)
{
    self->live.is_changed = 1;
}
void live_free(web *self);

/* Returns depths, jobs and problems, as pages show them. */
json_t *state_json(web *self);
/* Returns the event that has the state; the caller frees it. */
char *state_event(web *self);
/* Sends an event to all pages, if one is due. */
void state_work(web *self);
/* Adds the known queues of a kind, "work" or "parked", that no job is busy with. With "parked",
 * adds the unroutable queue if it has messages. Returns their number. */
size_t state_add_queues(const web *self, const char *wanted, texts *arguments);

/* Returns the last actions of the history, the newest first. */
json_t *records_json(const web *self);
/* Returns the action with this id, or NULL. The caller frees it. */
json_t *records_find(const web *self, const char *id);

/* Answers with a saved file, or with the list of them. */
void saved_answer(const web *self, request *it, const char *name);
void saved_list(const web *self, request *it);
/* Returns the path of a saved file; NULL: the name is none of them. The caller frees it. */
char *saved_path(const web *self, const char *name);
/* Returns 1 for a regular file. A link in the directory may lead out of it, and the open of a pipe
 * waits. */
int saved_is_file(const char *path);
/* Returns a name for a new file of a queue. The caller frees it. */
char *saved_new_name(const char *queue, int number);

#endif
