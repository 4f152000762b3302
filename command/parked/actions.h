/*
 * Actions: a file of what operators did, which --history or BACKHOP_HISTORY names. One JSON object
 * a line:
 *
 *     {"event": "begun", "id": "1f0c...", "time_ms": 1764120000000, "user": "ana", "action": "replay", "vhost": "/",
 *      "queue": "orders.parked", "where": ["class=TimeoutError"], "messages": 120, ...}
 *     {"event": "ended", "id": "1f0c...", ..., "code": 0, "replayed": 120, "stopped": ""}
 *
 * A program that was killed leaves no second line. --action-id sets the id, of at most 16
 * characters.
 */
#ifndef BACKHOP_COMMAND_PARKED_ACTIONS_H
#define BACKHOP_COMMAND_PARKED_ACTIONS_H

#include "common/options.h"

#include <jansson.h>

typedef struct action_options {
    const char *file, *user;
    const char *id;   /* NULL: a random one */
    int64_t expected; /* messages; -1: any number */
} action_options;

#define HISTORY_OPTIONS(o)                                                                                             \
    {"history", 0, OPTION_TEXT, "FILE", NULL, &(o)->file}, {"user", 0, OPTION_TEXT, "NAME", NULL, &(o)->user},         \
    {                                                                                                                  \
        "action-id", 0, OPTION_TEXT, "ID", NULL, &(o)->id                                                              \
    }
#define ACTION_OPTIONS(o) {"expect", 0, OPTION_NUMBER, "COUNT", NULL, &(o)->expected}, HISTORY_OPTIONS(o)

typedef struct action {
    int fd; /* -1: no file */
    const char *file;
    char id[17];
    json_t *facts; /* owned */
} action;

/* Records that an action begins. `facts`, an object, is freed. EX_OK; or complains and returns 73:
 * nothing may be done. */
int action_begin(action *self, const action_options *options, json_t *facts);
/* Records its end, with its exit code and results, an object, which is freed. Does nothing if no
 * action was begun. */
void action_end(action *self, int code, json_t *results);
/* Checks the number of messages. EX_OK; or complains and returns 75. */
int action_check(const action_options *options, int64_t count);

#endif
