/* Setup: a policy and a topology, as options or a file (JSON) name them. */
#ifndef BACKHOP_COMMAND_SETUP_H
#define BACKHOP_COMMAND_SETUP_H

#include "common/options.h"

#include <backhop/topology.h>
#include <jansson.h>

/* The options as typed; NULL: not given. Words stay words until a policy is made, so that a file
 * and the options are read alike. */
typedef struct policy_options {
    const char *file, *kind, *initial, *factor, *max, *steps, *jitter, *max_attempts, *max_age, *max_retry_after,
        *max_crashes;
} policy_options;

typedef struct topology_options {
    const char *strategy, *queue_type, *ns, *series, *stripes, *work_queue_type;
} topology_options;

/* The options of a policy. HELP is EXPLAIN in the help of schedule, or NAME in the others: these
 * only list the names. */
#define EXPLAIN(text) text
#define NAME(text) NULL
#define DELAY_OPTIONS(o, HELP)                                                                                         \
    {"kind", 0, OPTION_TEXT, "KIND", HELP("exponential, linear, fixed or steps [exponential]"), &(o)->kind},           \
        {"initial", 0, OPTION_TEXT, "TIME", HELP("delay after the first failure [1s]"), &(o)->initial},                \
        {"factor", 0, OPTION_TEXT, "NUMBER", HELP("exponential: the factor between delays [2]"), &(o)->factor},        \
        {"max", 0, OPTION_TEXT, "TIME", HELP("no delay is above it, jitter included [5m]"), &(o)->max},                \
        {"steps", 0, OPTION_TEXT, "TIME,...", HELP("the delays of kind steps, as 10s,1m,1h"), &(o)->steps},            \
        {"jitter", 0, OPTION_TEXT, "JITTER", HELP("none, spread:0.2, equal, full, decorrelated"), &(o)->jitter},       \
        {"max-attempts",    0, OPTION_TEXT, "COUNT", HELP("handler's attempts in all; 0: no limit [10]"),              \
         &(o)->max_attempts},                                                                                          \
    {                                                                                                                  \
        "max-age", 0, OPTION_TEXT, "TIME", HELP("parks a message whose attempt would start later"), &(o)->max_age      \
    }
#define POLICY_OPTIONS(o, HELP)                                                                                        \
    {"policy", 'p', OPTION_TEXT, "FILE", HELP("JSON, as {\"initial\": \"10s\"}"), &(o)->file}, DELAY_OPTIONS(o, HELP), \
        {"max-retry-after",    0, OPTION_TEXT, "TIME", HELP("cap on the delay that a handler requests [24h]"),         \
         &(o)->max_retry_after},                                                                                       \
    {                                                                                                                  \
        "max-crashes", 0, OPTION_TEXT, "COUNT", HELP("lost consumers before a message waits [5]"), &(o)->max_crashes   \
    }

#define TOPOLOGY_OPTIONS(o)                                                                                            \
    {"strategy",    0, OPTION_TEXT, "NAME", "ladder, message-ttl, reject, delayed-exchange, native [ladder]",          \
     &(o)->strategy},                                                                                                  \
        {"queue-type", 0, OPTION_TEXT, "TYPE", "wait and parked: quorum or classic [quorum]", &(o)->queue_type},       \
        {"namespace", 0, OPTION_TEXT, "NAME", "first part of shared names [backhop]", &(o)->ns},                       \
        {"series", 0, OPTION_TEXT, "R5..R40", "rungs a decade: R5, R10, R20, R40 [R10]", &(o)->series},                \
        {"stripes", 0, OPTION_TEXT, "COUNT", "wait queues a rung [1]", &(o)->stripes},                                 \
    {                                                                                                                  \
        "work-queue", 0, OPTION_TEXT, "TYPE", "declare the work queue too: quorum or classic", &(o)->work_queue_type   \
    }

/* The options of a policy and a topology that decide the names of the wait queues. */
#define WAIT_OPTIONS(p, t)                                                                                             \
    {"policy", 'p', OPTION_TEXT, "FILE", "JSON of the policy, for its wait queues", &(p)->file},                       \
        {"strategy", 0, OPTION_TEXT, "NAME", "ladder, message-ttl, delayed-exchange [ladder]", &(t)->strategy},        \
        {"queue-type", 0, OPTION_TEXT, "TYPE", "of the wait queues: quorum or classic [quorum]", &(t)->queue_type},    \
        {"namespace", 0, OPTION_TEXT, "NAME", "the topology's namespace [backhop]", &(t)->ns},                         \
        {"series", 0, OPTION_TEXT, "R5..R40", NULL, &(t)->series},                                                     \
    {                                                                                                                  \
        "stripes", 0, OPTION_TEXT, "COUNT", NULL, &(t)->stripes                                                        \
    }

/* Makes the policy; wrong values end the program with 64, a file that cannot be read with 66, one
 * that is no JSON with 65. */
bh_policy *setup_policy(const policy_options *options);
/*
 * Makes the policy of a JSON object of the file's form, which "where" names in messages. An option
 * goes before a field. If the options decide the kind, the fields that it does not use are removed.
 */
bh_policy *setup_policy_over(const policy_options *options, json_t *fields, const char *where);
/* Returns 1 if a policy has a field of this name. */
int setup_is_policy_field(const char *name);
/* Sets a queue's own fields in those for all queues. An own kind removes the others' fields that it
 * does not use. */
void setup_merge_policy(json_t *fields, json_t *own);
/* Returns the place of a word in a set; and a whole number. A wrong text ends the program with 64;
 * `name` is the option's. */
int setup_word(const char *name, const char *text, const char *const *words, size_t count);
int64_t setup_number(const char *name, const char *text, int64_t lowest, int64_t highest);
bh_queue_type setup_queue_type(const char *name, const char *text);
/* Makes and builds the topology of a work queue for the policy. Ends the program as above. */
bh_topology *setup_topology(const topology_options *options, const char *queue, bh_policy *policy);

#endif
