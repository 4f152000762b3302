/* Places: the work queues of a relay, and whether each is there, with its parked queue and its way back. Internal. */
#ifndef BACKHOP_WORKER_ENGINE_PLACES_H
#define BACKHOP_WORKER_ENGINE_PLACES_H

#include <backhop/bytes.h>
#include <stdint.h>

enum {
    /* Work queues that are known are looked for again after so long: one that was deleted and made anew has lost its way
     * back, and nobody tells. */
    BH__LOOK_AGAIN_MS = 30000,
    /* And where a dead letter of it comes later than this, which need not wait for that: its copy takes longer. */
    BH__SEEN_FOR_MS = 2000,
    /* One that was missing is looked for again where a dead letter of it comes later than this. */
    BH__MISSED_FOR_MS = 100,
    /* A stranger can name as many as a pattern matches: what comes above is taken as missing, and not remembered. */
    BH__MOST_PLACES = 20000
};

typedef enum bh__whereabouts { BH__UNSEEN, BH__THERE, BH__MISSING } bh__whereabouts;

typedef struct bh__place {
    char *name;
    size_t size;
    int is_named; /* in the relay's settings; others come by patterns */
    bh__whereabouts state;
    bh__whereabouts was; /* when it was seen last */
    int is_wanted;       /* to be looked for */
    int64_t seen_ms;
} bh__place;

typedef struct bh__places {
    bh__place *items;
    size_t count;
    size_t capacity;
    size_t wanted_count;
    int64_t again_ms; /* monotonic: when all are looked for again; 0: never */
} bh__places;

void bh__places_free(bh__places *self);
/* Adds one that is to be looked for. False: no memory. */
int bh__places_add(bh__places *self, bh_bytes queue, int is_named);
/* Where the queue is; BH__UNSEEN: it is looked for soon. BH__MISSING also without memory for one more. */
bh__whereabouts bh__places_find(bh__places *self, bh_bytes queue, int64_t now_ms);
/* The place of this name; NULL: none. */
bh__place *bh__places_of(bh__places *self, bh_bytes queue);
/* All are to be looked for; those that a pattern brought and that are missing are forgotten. */
void bh__places_want_all(bh__places *self, int64_t now_ms);
/* One that is wanted; NULL: none. */
bh__place *bh__places_wanted(bh__places *self);
void bh__places_saw(bh__places *self, bh__place *place, bh__whereabouts state, int64_t now_ms);

#endif
