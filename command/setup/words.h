/* Words: the fields of a policy, a topology and a simulation as texts. Pure; the playground of the
 * site has them too. */
#ifndef BACKHOP_COMMAND_WORDS_H
#define BACKHOP_COMMAND_WORDS_H

#include <backhop/topology.h>

/* Why a text was refused: one sentence in the names and units of the options. */
typedef struct words_error {
    char text[1024];
    int is_of_core; /* 1: the core refused the value; 0: the text is no value */
} words_error;

typedef enum words_result { WORDS_SET, WORDS_REFUSED, WORDS_UNKNOWN } words_result;

/*
 * Sets the field of the policy that options name so. WORDS_REFUSED: `error` has the reason.
 * WORDS_UNKNOWN: a policy has no field of this name.
 */
words_result words_set_policy(bh_policy *policy, const char *name, const char *text, words_error *error);
/* Sets strategy, queue-type, namespace, series, stripes or work-queue. Returns as
 * words_set_policy. */
words_result words_set_topology(bh_topology *topology, const char *name, const char *text, words_error *error);
/* Returns 0 if an option is given that the policy's kind does not use; `error` has the reason. */
int words_check_used(bh_policy *policy, int has_initial, int has_factor, words_error *error);
/* Checks the policy. Returns 0 if its fields do not fit together; `error` has the reason. */
int words_check_policy(bh_policy *policy, words_error *error);
/* Builds the topology. Returns 0 if it cannot be built, for lack of memory too; `error` has the
 * reason. */
int words_build(bh_topology *topology, bh_policy *policy, words_error *error);

/* Read a text of the field `name`. They return 0 if the text is wrong; `error` has the reason. */
int words_duration(const char *name, const char *text, int64_t *out_ms, words_error *error);
int words_number(const char *name, const char *text, int64_t lowest, int64_t highest, int64_t *out, words_error *error);
int words_real(const char *name, const char *text, double *out, words_error *error);
/* "1m..6m" */
int words_times(const char *name, const char *text, int64_t *out_from_ms, int64_t *out_to_ms, words_error *error);
/* Returns the place of a word in a set, or -1. */
int words_find(const char *name, const char *text, const char *const *words, size_t count, words_error *error);

#endif
