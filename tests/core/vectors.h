/*
 * Vectors: the cases of tests/vectors, and how the core's objects are filled from them and compared
 * with them.
 *
 * The schema is in tests/vectors/README.md. The directory comes from the environment variable
 * BACKHOP_VECTORS, else from the macro of the same name. A key that the schema does not know fails
 * its case, and so does a case that compares nothing.
 */
#ifndef BACKHOP_TESTS_VECTORS_H
#define BACKHOP_TESTS_VECTORS_H

#include "../topologies.h"

#include <backhop/adapter/plan.h>
#include <check.h>
#include <jansson.h>

typedef struct vector {
    char *file;
    const char *name;
    json_t *json;
    const json_t *expect;
    size_t checks; /* comparisons that the case made */
} vector;

typedef struct vectors {
    vector *cases;
    int count;
} vectors;

/* A name in the vectors and the constant that it stands for; a list ends with a name of NULL. */
typedef struct vector_name {
    const char *name;
    int value;
} vector_name;

extern const vector_name vector_properties[];
extern const vector_name vector_types[];
extern const vector_name vector_strategies[];
extern const vector_name vector_queue_types[];
extern const vector_name vector_kinds[];
extern const vector_name vector_jitters[];

/* Every case of tests/vectors/<noun>/ in the order of the files' names. Files that cannot be used
 * end the program. */
vectors vectors_load(const char *noun);
/* Adds one test per case to the suite; the test finds its case with the loop's index. */
void vectors_add(Suite *suite, const vectors *all, const TTest *test);

/* Begins a case: allowed keys besides "name" and "expect", and the allowed keys of "expect", each
 * separated by spaces. */
void vector_begin(vector *v, const char *keys, const char *expect_keys);
/* Ends a case; fails it if it compared nothing. */
void vector_end(vector *v);
/* Fails the case. `field` says where. */
_Noreturn void vector_fail(const vector *v, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Read the case, in C. The results live until the next case begins. */
void vector_keys(const vector *v, const char *where, const json_t *object, const char *keys);
const json_t *vector_get(const vector *v, const char *key);
int vector_name_value(const vector *v, const char *field, const json_t *json, const vector_name *names);
bh_status vector_status(const vector *v, const json_t *json);
int64_t vector_int(const vector *v, const char *field, const json_t *json);
double vector_double(const vector *v, const char *field, const json_t *json);
bh_bytes vector_bytes(const vector *v, const char *field, const json_t *json);
/* Returns the header type that a typed value stands for; *content is the value inside. */
bh_type vector_value(const vector *v, const char *field, const json_t *json, const json_t **content);

/* Bytes for a message: quoted, with escapes, cut if they are long. */
const char *vector_show(bh_bytes bytes);
int vector_same(bh_bytes a, bh_bytes b);

/* Fill an object from a case; the first status that is not BH_OK ends it and is returned. JSON of
 * NULL: every default. */
bh_status vector_fill_delivery(const vector *v, const json_t *json, bh_delivery *delivery);
/* *field: the field whose setter refused. A setter that refuses must have left the policy as it
 * was. */
bh_status vector_fill_policy(const vector *v, const json_t *json, bh_policy *policy, const char **field);
/* *out is NULL where bh_topology_new itself refused. Does not build. */
bh_status vector_new_topology(const vector *v, const json_t *json, bh_topology **out, const char **field);
void vector_fill_history(const vector *v, bh_history *history);

/* Comparisons: nothing where `expect` lacks the key, else a failure that names field, expected and
 * got. */
void expect_int(vector *v, const json_t *expect, const char *key, int64_t got);
void expect_flag(vector *v, const json_t *expect, const char *key, int got);
void expect_bytes(vector *v, const json_t *expect, const char *key, bh_bytes got);
void expect_name(vector *v, const json_t *expect, const char *key, const vector_name *names, int got);
/* "error": a text or a list of texts that must be in `got`. */
void expect_error(vector *v, const json_t *expect, bh_bytes got);
/* "status", BH_OK if the case has none; `detail` is shown if they differ. 1: it is BH_OK, compare
 * the rest. */
int expect_status(vector *v, bh_status got, bh_bytes detail);
/* Comparisons of parts that are no single key. `field` is for the message. */
void same_int(vector *v, const char *field, int64_t expected, int64_t got);
void same_bytes(vector *v, const char *field, bh_bytes expected, bh_bytes got);

/* Draws a number below a limit by SplitMix64 (Sebastiano Vigna). `state` points to a uint64_t. */
unsigned draw_by_seed(void *state, unsigned below);

#endif
