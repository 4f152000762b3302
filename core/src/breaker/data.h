/* Breaker: its fields, and the functions that its sources share. Internal. */
#ifndef BACKHOP_BREAKER_DATA_H
#define BACKHOP_BREAKER_DATA_H

#include "base/memory.h"
#include "breaker/internal.h"
#include "policy/internal.h"

#include <backhop/breaker.h>
#include <pthread.h>
#include <stdatomic.h>

#define BH__BREAKER_CLASS_BYTES 64

typedef struct bh__bucket {
    int64_t calls;
    int64_t failures;
    int64_t slow;
} bh__bucket;

/* The buckets in a ring, and their sum. */
typedef struct bh__window {
    bh__bucket buckets[BH_BREAKER_BUCKETS];
    bh__bucket sum;
    int64_t number; /* of the current bucket: clock / length */
    int64_t end;    /* of the current bucket; 0: no bucket has begun */
} bh__window;

/* The limit after probes. */
typedef struct bh__ramp {
    int64_t limit;  /* 0: no limit */
    int64_t calls;  /* that have a place now */
    int64_t from;   /* number of the first permit that can have a place */
    int64_t active; /* clock of the last permit or record */
    /* The current step: `limit` calls whose permits are younger than the step. */
    int64_t step_from;
    int64_t step_calls;
    int64_t step_failures;
} bh__ramp;

/*
 * Times are of `clock`: it moves on with the caller's clock, and stands still if that goes back.
 */
struct bh_breaker {
    atomic_int references; /* of the application, of workers and of flows */
    pthread_mutex_t mutex; /* locked for each call, as several threads share a breaker */
    bh_breaker_settings settings;
    char name[BH_BREAKER_MOST_NAME + 1];
    bh_policy *pauses;
    uint64_t random;
    int64_t clock;
    int64_t seen_ms; /* the caller's clock at the last call; -1: no call yet */

    bh_breaker_state state;
    int64_t generation;
    int64_t number;     /* of the last permit */
    uint64_t *recorded; /* one bit for each of the last permits */
    int64_t remembered; /* the number of these bits, a power of two */

    bh__window window;
    int64_t row;      /* failures in a row */
    int64_t row_from; /* number of the first permit that lengthens the row */
    int64_t floor;    /* no pause ends before; of the last Retry-After */
    int64_t closed_at;
    bh__ramp ramp;

    int64_t until; /* open; BH_BREAKER_NEVER: until bh_breaker_close */
    int64_t pauses_made;
    int64_t pause_ms;
    int64_t probe; /* number of the probe's permit; 0: none */
    int64_t probe_end;
    int64_t successes;

    char error_class[BH__BREAKER_CLASS_BYTES];
    size_t error_class_size;
    char reason[BH_BREAKER_REASON_BYTES];
};

/* Moves the window to the clock: clears the buckets that ended. */
void bh__window_move(bh__window *self, int64_t clock, int64_t window_ms);
/* Counts a call in the current bucket. */
void bh__window_count(bh__window *self, int failed, int slow);

/* Begins a step of the ramp with another limit. */
void bh__ramp_step(bh__ramp *self, int64_t limit, int64_t number);
/* Counts the end of a call in the ramp, and doubles, halves or ends the limit. */
void bh__ramp_count(bh__ramp *self, const bh_breaker_settings *settings, int64_t permit, int64_t number, int is_bad);

/* Keeps the class of a failure for the next reason. */
void bh__breaker_keep_class(bh_breaker *self, bh_bytes error_class);
/* Changes of the state. `format` is the reason; `with_class` appends the class of the last failure. */
void bh__breaker_pause(bh_breaker *self);
/* Forgets the pauses before, if it was closed for a whole window. */
void bh__breaker_forget_pauses(bh_breaker *self);
void bh__breaker_begin(bh_breaker *self, bh_breaker_state state);
void bh__breaker_explain(bh_breaker *self, int with_class, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
