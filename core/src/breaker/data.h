/* Breaker: its circuits, and the functions that its sources share. Internal. */
#ifndef BACKHOP_BREAKER_DATA_H
#define BACKHOP_BREAKER_DATA_H

#include "base/memory.h"
#include "breaker/internal.h"
#include "policy/internal.h"

#include <backhop/breaker.h>
#include <pthread.h>

#define BH__BREAKER_CLASS_BYTES 64
#define BH__BREAKER_MOST_MS ((INT64_C(1) << 53) - 1)

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
 * The breaker of one downstream.
 *
 * Times are of `clock`: it moves on with the caller's clock, and stands still if that goes back.
 */
typedef struct bh__circuit {
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

    int64_t until; /* open; BH_BREAKER_NEVER: until bh__circuit_close */
    int64_t pauses_made;
    int64_t pause_ms;
    int64_t probe; /* number of the probe's permit; 0: none */
    int64_t probe_end;
    int64_t successes;

    char error_class[BH__BREAKER_CLASS_BYTES];
    size_t error_class_size;
    char reason[BH_BREAKER_REASON_BYTES];
} bh__circuit;

/* Moves the window to the clock: clears the buckets that ended. */
void bh__window_move(bh__window *self, int64_t clock, int64_t window_ms);
/* Counts a call in the current bucket. */
void bh__window_count(bh__window *self, int failed, int slow);

/* Begins a step of the ramp with another limit. */
void bh__ramp_step(bh__ramp *self, int64_t limit, int64_t number);
/* Counts the end of a call in the ramp, and doubles, halves or ends the limit. */
void bh__ramp_count(bh__ramp *self, const bh_breaker_settings *settings, int64_t permit, int64_t number, int is_bad);

/* Creates a closed circuit in *out. Errors: BH_ERR_NO_MEMORY. */
bh_status bh__circuit_new(bh__circuit **out, const bh_breaker_settings *settings, bh_bytes random);
/* Frees the circuit. NULL is allowed. */
void bh__circuit_free(bh__circuit *self);
/* Like the functions of bh_breaker, whose checks of arguments come before these. */
void bh__circuit_permit(bh__circuit *self, int64_t now_ms, bh_permit *out);
int bh__circuit_record(bh__circuit *self, const bh_permit *permit, const bh_call *call, int64_t now_ms);
void bh__circuit_open(bh__circuit *self, int64_t until_ms, int64_t now_ms);
void bh__circuit_close(bh__circuit *self, int64_t now_ms);
void bh__circuit_disable(bh__circuit *self, int64_t now_ms);
void bh__circuit_read(bh__circuit *self, int64_t now_ms, bh_breaker_view *out);

/* A circuit for each key, at most BH_BREAKER_MOST_KEYS. Errors of its functions:
 * BH_ERR_NO_MEMORY. */
typedef struct bh__circuits bh__circuits;

bh_status bh__circuits_new(bh__circuits **out, const bh_breaker_settings *settings, bh_bytes random);
/* Frees the circuits. NULL is allowed. */
void bh__circuits_free(bh__circuits *self);
bh_status bh__circuits_permit(bh__circuits *self, bh_bytes key, int64_t now_ms, bh_permit *out);
int bh__circuits_record(bh__circuits *self, bh_bytes key, const bh_permit *permit, const bh_call *call, int64_t now_ms);
bh_status bh__circuits_open(bh__circuits *self, bh_bytes key, int64_t until_ms, int64_t now_ms);
void bh__circuits_close(bh__circuits *self, bh_bytes key, int64_t now_ms);
bh_status bh__circuits_disable(bh__circuits *self, bh_bytes key, int64_t now_ms);
void bh__circuits_read(bh__circuits *self, bh_bytes key, int64_t now_ms, bh_breaker_view *out);
/* Returns the number of keys that have a circuit. */
size_t bh__circuits_count(bh__circuits *self);

/* Keeps the class of a failure for the next reason. */
void bh__circuit_keep_class(bh__circuit *self, bh_bytes error_class);
/* Changes of the state. `format` is the reason; `with_class` appends the class of the last
 * failure. */
void bh__circuit_pause(bh__circuit *self);
/* Forgets the pauses before, if it was closed for a whole window. */
void bh__circuit_forget_pauses(bh__circuit *self);
void bh__circuit_begin(bh__circuit *self, bh_breaker_state state);
void bh__circuit_explain(bh__circuit *self, int with_class, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
