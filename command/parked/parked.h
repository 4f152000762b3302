/* Parked: declarations that the sub-commands of `backhop parked` share. */
#ifndef BACKHOP_COMMAND_PARKED_H
#define BACKHOP_COMMAND_PARKED_H

#include "common/management.h"
#include "common/output.h"
#include "parked/selection.h"
#include "setup/setup.h"
#include "move/snapshot.h"

/* The options that all of them take. */
typedef struct parked_options {
    broker_options broker;
    topology_options topology;
    texts where;
    const char *like;
    int json;
    int any_queue;
    int progress; /* of looks, as JSON */
} parked_options;

#define PARKED_OPTIONS(o)                                                                                              \
    BROKER_OPTIONS(&(o)->broker), {"strategy", 0, OPTION_TEXT, "NAME", NULL, &(o)->topology.strategy},                 \
        {"namespace", 0, OPTION_TEXT, "NAME", NULL, &(o)->topology.ns},                                                \
        {"queue-type", 0, OPTION_TEXT, "TYPE", NULL, &(o)->topology.queue_type},                                       \
        {"any-queue", 0, OPTION_FLAG, NULL, NULL, &(o)->any_queue}, JSON_OPTION(&(o)->json)
#define WHERE_OPTION(o)                                                                                                \
    {                                                                                                                  \
        "where", 'w', OPTION_TEXTS, "CONDITION", "as error~timeout, reason=poison, age>2h; see list", &(o)->where      \
    }
#define LIKE_OPTION(o)                                                                                                 \
    {                                                                                                                  \
        "like", 0, OPTION_TEXT, "ID", "the group of this message, as list --wide has it", &(o)->like                   \
    }
#define PROGRESS_OPTION(o)                                                                                             \
    {                                                                                                                  \
        "progress", 0, OPTION_FLAG, NULL, NULL, &(o)->progress                                                         \
    }

/* A look at a parked queue, on one connection. */
typedef struct parked {
    const parked_options *options;
    connection *broker;
    selection selection;
    topology_options settings; /* of the queue's topology */
    char *ns;                  /* of the unroutable queue; else NULL */
    char *work_queue;
    char *queue;                                     /* the parked one, or the unroutable one */
    int is_shared;                                   /* the unroutable queue: of many work queues */
    char like_reason[32], like_kind[KIND_BYTES + 1]; /* of --like */
    bh_policy *policy;
    bh_topology *topology;
    bh_delivery *delivery; /* of the message that was read last, as is history */
    bh_history *history;
    int64_t malformed; /* messages that could not be read */
    int64_t shown_ms;  /* monotonic: when parked_show_progress printed last; 0: never */
} parked;

/* Begins on a connection. Wrong conditions end the program. */
void parked_begin(parked *self, const parked_options *options, connection *broker);
void parked_end(parked *self);
/* Begins on a connection of its own: EX_OK, or complains and returns the exit code. The conditions
 * are read first. */
int parked_open(parked *self, const parked_options *options, const char *purpose);
void parked_close(parked *self);
/* Goes to a queue, by its name or its work queue's; the unroutable queue goes by its name. Checks
 * that looking at it is safe, and finds the message of --like. EX_OK, or complains and returns the
 * exit code. */
int parked_go_to(parked *self, const char *name);
/* Reads a message into delivery and history: whether it is selected. */
int parked_reads(parked *self, const bh_message *message);
/* These two do the same in two steps: BH_OK if the properties can be read; 1 if the message read
 * last is selected. */
bh_status parked_read(parked *self, const bh_message *message);
int parked_fits(const parked *self);
/* Returns 1 if the message that was read last is `wanted`: its id, or "@3", the third. */
int parked_is(const parked *self, const char *wanted, int64_t position);
/* Returns about when the message that was read last was parked, in ms since the epoch; -1: not
 * known. No header has that time: it is the due time of its last attempt, else its first
 * failure. */
int64_t parked_time_ms(const parked *self);
/* Makes the policy for a look's topology, whose strategy may need one of its own kind. */
bh_policy *parked_policy(const topology_options *options);
/* Prints the progress of a look as JSON, at most every so often, and at its end. */
void parked_show_progress(parked *self, const snapshot *shot, int is_last);
/* Returns the id that `show` takes for the message read last. */
const char *parked_id(const parked *self, char out[256]);
/* "1 message", "40 messages". */
const char *count_messages(char out[64], int64_t count);
/* Returns what an action's history says of the selection: vhost, queue, where, like. */
json_t *parked_facts(const parked *self, const char *action_name);
/* Reads the count from the terminal. EX_OK if it was typed. Without a terminal that is wrong
 * usage. */
int parked_confirm(int64_t count, const char *what);

int parked_list(int count, char **arguments);
int parked_show(int count, char **arguments);
int parked_replay(int count, char **arguments);
int parked_save(int count, char **arguments);
int parked_load(int count, char **arguments);
int parked_drop(int count, char **arguments);

#endif
