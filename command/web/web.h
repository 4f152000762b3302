/*
 * Web: what the parts of `backhop web` share. Everything runs in one thread.
 *
 *     api.c        routes of /api, and who may use them
 *     looks.c      looks, one after the other: each is a sub-command whose answer goes to the request
 *     jobs.c       replays, drops and loads, one for each queue
 *     live.c       depths, by `backhop top`, and what goes to all pages
 *     records.c    the history of actions
 *     saved.c      files of dropped messages
 *     pages.c      the page's own files
 */
#ifndef BACKHOP_COMMAND_WEB_WEB_H
#define BACKHOP_COMMAND_WEB_WEB_H

#include "web/arguments.h"
#include "web/children.h"
#include "web/server.h"

enum { WEB_MOST_BODY = 65536, WEB_SECRET = 33, JOBS_MOST = 40, LOOKS_MOST = 16 };

/* A look that runs or waits. */
typedef struct look {
    struct web *web;
    request *asker;
    verb verb;
    texts arguments;
    json_t *results;
    size_t bytes;
    int runs;
} look;

typedef struct job {
    struct web *web;
    int number; /* 0: a free place */
    verb verb;
    char *queue, *user, *file; /* owned; file: of a drop or a load */
    json_t *request, *progress, *result;
    char *problem;
    int64_t begun_ms, ended_ms; /* since the epoch; ended 0: it runs */
    int code, is_stopped;
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
    char **queues;    /* operands; none: by the management API */
    int queue_count;
    int may_replay, may_drop;
    const char *user_header, *base_path, *allow;
    char token[WEB_SECRET], session[WEB_SECRET], cookie[32];
    char *state, *history; /* paths */
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
/* Returns a problem as the sub-command reports it, without the program's name. The caller frees it. */
char *web_problem(const char *text);

/* Handles a request. */
void api_handle(void *data, request *it);
/* Answers with a file of the page, or 404. `name` is behind the base path. */
void pages_answer(request *it, const char *name);

/* Begins a look; the arguments become the look's. It answers the request at its end. */
void looks_begin(web *self, request *asker, verb wanted, texts *arguments);
/* Starts what waits, if nothing runs. */
void looks_work(web *self);
void looks_free(web *self);

/* Begins a job; answers the request. */
void jobs_begin(web *self, request *asker, verb wanted, json_t *body, const char *user);
void jobs_stop(web *self, request *asker, int number);
/* Returns all jobs as JSON, the newest first. */
json_t *jobs_json(const web *self);
/* Returns 1 if a job runs on the queue, by its name or its work queue's. */
int jobs_is_busy(const web *self, const char *queue);
void jobs_free(web *self);

/* Starts and ends `backhop top`, and sends events. */
void live_work(web *self);
/* Makes an event due. */
void live_change(web *self);
/* Returns depths, jobs and problems, as pages show them. */
json_t *live_state(web *self);
/* Returns the event that has the state; the caller frees it. */
char *live_event(web *self);
/* Adds the known queues of a kind, "work" or "parked", that no job is busy with. With "parked", adds the unroutable queue if
 * it has messages. Returns their number. */
size_t live_add_queues(const web *self, const char *wanted, texts *arguments);
void live_free(web *self);

/* Returns the last actions of the history, the newest first. */
json_t *records_json(const web *self);

/* Answers with a saved file, or with the list of them. */
void saved_answer(const web *self, request *it, const char *name);
void saved_list(const web *self, request *it);
/* Returns the path of a saved file; NULL: the name is none of them. The caller frees it. */
char *saved_path(const web *self, const char *name);
/* Returns a name for a new file of a queue. The caller frees it. */
char *saved_new_name(const char *queue, int number);

#endif
