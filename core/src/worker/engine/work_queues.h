/* Work queues of a relay: whether each exists, with its parked queue and its return binding.
 * Internal. */
#ifndef BACKHOP_WORKER_ENGINE_WORK_QUEUES_H
#define BACKHOP_WORKER_ENGINE_WORK_QUEUES_H

#include <backhop/bytes.h>
#include <stdint.h>

enum {
    /* All known work queues are checked again after this time. A queue that is deleted and
     * declared again loses its return binding; the broker sends no notice. */
    BH__RECHECK_MS = 30000,
    /* A dead letter that arrives later than this after the last check causes a check. It does
     * not wait for the result, because its copy takes longer. */
    BH__PRESENT_FOR_MS = 2000,
    /* A dead letter of a missing queue that arrives later than this causes a check, and waits
     * for it. */
    BH__MISSING_FOR_MS = 100,
    /* Untrusted headers can name any queue that a pattern matches. Above this number, a queue
     * counts as missing and is not remembered. */
    BH__MOST_WORK_QUEUES = 20000
};

typedef enum bh__presence { BH__UNKNOWN, BH__PRESENT, BH__MISSING } bh__presence;

typedef struct bh__work_queue {
    char *name;
    size_t size;
    int is_named; /* in the relay's settings; others match a pattern */
    bh__presence presence;
    bh__presence last; /* at the last check */
    int is_due;        /* a check is due */
    int64_t checked_ms;
} bh__work_queue;

typedef struct bh__work_queues {
    bh__work_queue *items;
    size_t count;
    size_t capacity;
    size_t due_count;
    int64_t recheck_ms; /* monotonic: when all are checked again; 0: never */
} bh__work_queues;

void bh__work_queues_free(bh__work_queues *self);
/* Adds a queue whose check is due. Returns 0 if there is no memory. */
int bh__work_queues_add(bh__work_queues *self, bh_bytes queue, int is_named);
/* Returns whether the queue exists; BH__UNKNOWN: it is checked soon. Returns BH__MISSING if
 * there is no memory for another queue. */
bh__presence bh__work_queues_look_up(bh__work_queues *self, bh_bytes queue, int64_t now_ms);
/* Returns the queue of this name; NULL: unknown. */
bh__work_queue *bh__work_queues_find(bh__work_queues *self, bh_bytes queue);
/* Makes the check of all queues due. Forgets missing queues that match a pattern. */
void bh__work_queues_check_all(bh__work_queues *self, int64_t now_ms);
/* Returns a queue whose check is due; NULL: none. */
bh__work_queue *bh__work_queues_next(bh__work_queues *self);
/* Records the result of a check. */
void bh__work_queues_record(bh__work_queues *self, bh__work_queue *queue, bh__presence presence, int64_t now_ms);

#endif
