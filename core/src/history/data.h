/* The history's data, and the functions that its files share. Only core/src/history includes
 * this. */
#ifndef BACKHOP_HISTORY_DATA_H
#define BACKHOP_HISTORY_DATA_H

#include "delivery/internal.h"
#include "history/internal.h"

#define BH__BELOW_2_53 ((INT64_C(1) << 53) - 1)
#define BH__NO_TEXT ((bh__text){0, 0})

/* A record of x-death. */
typedef struct bh__record {
    bh__text queue;
    bh__text reason;
    bh__text exchange;
    bh__text original_expiration;
    int64_t times;
    int64_t first_time_s;
    size_t first_key;
    size_t key_count;
} bh__record;

typedef struct bh__queue_names {
    bh__store store;
    bh__text *items;
    size_t count;
    size_t capacity;
} bh__queue_names;

struct bh_history {
    /* settings; a read keeps them */
    bh__store settings;
    bh__text legacy_counter;
    bh__queue_names wait_queues;
    /* the result of the last read */
    int is_read;
    bh__store store;
    bh__record *deaths;
    size_t death_count;
    size_t death_capacity;
    bh__text *keys; /* the routing keys of all records */
    size_t key_count;
    size_t key_capacity;
    bh_bytes *key_bytes; /* the same keys; built when the store no longer moves */
    size_t key_bytes_capacity;
    int64_t attempts;
    int64_t broker_attempts; /* the part of attempts that the broker alone counted */
    bh_source source;
    int64_t first_failure_ms;
    int64_t last_delay_ms;
    int64_t due_ms;
    int64_t delivery_count;
    int64_t acquired_count;
    int64_t crashes;
    int64_t counted_crashes; /* the part of crashes before the last wait */
    int64_t deferrals;
    int64_t replays;
    int is_back; /* it left the parked queue without bh_plan_replay */
    bh__text last_error;
    bh__text traceparent;
    bh__text id;
    char assigned_id[BH__HISTORY_ID_ROOM]; /* "": none */
    bh__text exchange;
    bh__text routing_key;
    bh__text parked;
    bh__text first_death[3];
    bh__text last_death[3];
    bh__text problems[BH_HISTORY_MOST_PROBLEMS];
    size_t problem_count;
    int no_memory;
    bh__report story; /* bh_history_explanation */
};

/* The headers that a history reads. */
typedef enum bh__header {
    BH__HEADER_ATTEMPTS,
    BH__HEADER_FIRST_FAILURE,
    BH__HEADER_DELAY,
    BH__HEADER_DUE,
    BH__HEADER_ERROR,
    BH__HEADER_ID,
    BH__HEADER_EXCHANGE,
    BH__HEADER_ROUTING_KEY,
    BH__HEADER_PARKED,
    BH__HEADER_DEFERRALS,
    BH__HEADER_CRASHES,
    BH__HEADER_REPLAYS,
    BH__HEADER_TRACEPARENT,
    BH__HEADER_X_DEATH,
    BH__HEADER_DELIVERY_COUNT,
    BH__HEADER_ACQUIRED_COUNT,
    BH__HEADER_FIRST_DEATH, /* queue, reason, exchange */
    BH__HEADER_LAST_DEATH = BH__HEADER_FIRST_DEATH + 3,
    BH__HEADER_COUNT = BH__HEADER_LAST_DEATH + 3
} bh__header;

extern const bh_bytes bh__header_names[BH__HEADER_COUNT];

/* The header tree of a delivery, and the first header of each name that a history reads; NULL if
 * there is none. */
typedef struct bh__headers {
    bh__tree tree;
    const bh__node *found[BH__HEADER_COUNT];
} bh__headers;

/* ------------------------------------------------------------------------------------ history.c */

/* Returns a text of the history's store. */
bh_bytes bh__history_text(const bh_history *self, bh__text text);
/* Records that a header was ignored, and why. Drops further problems after
 * BH_HISTORY_MOST_PROBLEMS. */
void bh__history_add_problem(bh_history *self, bh_bytes header, const char *what);
/* Returns 1 if bh_history_add_wait_queue named the queue. */
int bh__history_is_wait_queue(const bh_history *self, bh_bytes queue);

/* -------------------------------------------------------------------------------- own_headers.c */

/* Finds the known headers in the tree. */
void bh__headers_find(bh__headers *self);
/* Returns the index of a name in a list of names; `count` if it is missing. */
static inline size_t bh__find_name(const bh_bytes *names, size_t count, bh_bytes name)
{
    size_t i = 0;
    while (i < count && !bh__same(names[i], name))
        i++;
    return i;
}
/* Returns the header's integer, from 0 to `most`. Returns -1 if it is missing, and if it is
 * invalid: a problem then. */
int64_t bh__headers_number(bh_history *self, const bh__headers *in, bh__header header, int64_t most);
/* Returns the header's string, of at most `most` bytes. Returns `other` if it is missing or
 * invalid. */
bh__text bh__headers_string(bh_history *self, const bh__headers *in, bh__header header, size_t most, bh__text other);
/* Returns the header's string of at most 255 bytes, or an empty text. */
bh__text bh__headers_short_string(bh_history *self, const bh__headers *in, bh__header header);
/* Returns the text of the last error, cut to BH_HISTORY_MOST_ERROR_BYTES. */
bh__text bh__headers_error(bh_history *self, const bh__headers *in);
bh__text bh__headers_traceparent(bh_history *self, const bh__headers *in);
/* Returns the legacy counter, or -1. Applications wrote it as an integer or as a string of decimal
 * digits. */
int64_t bh__headers_legacy_counter(bh_history *self, const bh_delivery *delivery);

/* ------------------------------------------------------------------------------------ x_death.c */

/* Reads all records of x-death into `deaths`. */
void bh__headers_deaths(bh_history *self, const bh__headers *in);

/* ----------------------------------------------------------------------------------- attempts.c */

/* Counts attempts and crashes. Needs the records of x-death and the counts of quorum queues. */
void bh__history_count(bh_history *self, const bh__headers *in, const bh_delivery *delivery,
                       const bh_topology *topology);
/* Returns 1 if the record counts rejections by the work queue, as strategy reject makes them. */
int bh__history_is_rejected_work(const bh_history *self, const bh__record *record, const bh_topology *topology);

#endif
