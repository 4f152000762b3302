/* Successes: a ring of fingerprints. */
#include "history/internal.h"

#include <backhop/adapter/successes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, KEPT_MS = 7200000 }; /* RabbitMQ's consumer timeout is 30 minutes by default */

typedef struct success {
    uint64_t message; /* the fingerprint; 0: none */
    int64_t kept_ms;
} success;

struct bh_successes {
    bh__siphash_key key;
    size_t count;
    size_t next; /* the entry of the next success; it replaces the oldest */
    size_t used; /* entries that had a success since the ring was empty */
    success ring[MOST];
};

bh_status bh_successes_new(bh_successes **out, bh_bytes random)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (!random.data || random.size != BH_SUCCESSES_RANDOM_BYTES)
        return BH_ERR_ARGUMENT;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return BH_ERR_NO_MEMORY;
    memcpy(&(*out)->key.first, random.data, sizeof(uint64_t));
    memcpy(&(*out)->key.second, random.data + sizeof(uint64_t), sizeof(uint64_t));
    return BH_OK;
}

void bh_successes_free(bh_successes *self)
{
    free(self);
}

static void drop(bh_successes *self, success *of)
{
    self->count -= of->message != 0;
    of->message = 0;
    if (self->count == 0)
        self->next = self->used = 0;
}

void bh_successes_keep(bh_successes *self, const bh_history *history, bh_bytes queue, bh_bytes body, int64_t now_ms)
{
    uint64_t message =
        self && history && queue.data && body.data ? bh__history_fingerprint(history, self->key, queue, body) : 0;
    if (!message)
        return;
    success *to = &self->ring[self->next];
    self->count += to->message == 0;
    *to = (success){message, now_ms};
    self->next = (self->next + 1) % MOST;
    self->used = self->used < MOST ? self->used + 1 : MOST;
}

int bh_successes_take(bh_successes *self, const bh_history *history, bh_bytes queue, bh_bytes body, int redelivered,
                      int64_t now_ms)
{
    if (!self || !history || !queue.data || !body.data || !redelivered || !self->count)
        return 0;
    uint64_t message = bh__history_fingerprint(history, self->key, queue, body);
    for (size_t i = 0; message && i < self->used; i++) {
        success *found = &self->ring[i];
        if (found->message != message)
            continue;
        int is_fresh = now_ms - found->kept_ms < KEPT_MS;
        drop(self, found);
        if (is_fresh)
            return 1;
    }
    return 0;
}
