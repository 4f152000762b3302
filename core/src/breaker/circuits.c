/* Circuits: one for each key. A table of hashes, with the order of their use. */
#include "base/siphash.h"
#include "breaker/data.h"

#include <stdlib.h>

enum {
    MOST = BH_BREAKER_MOST_KEYS,
    PLACES = 16384, /* of the table: a power of two */
    MOST_RAMP_CALLS = 64,
    BLIND_MS = 60000,
    PROBE_MS = 1000
};

typedef struct entry {
    uint64_t hash;
    bh__circuit *circuit;
    size_t next; /* of the same place, index plus 1; 0: none */
    size_t older, newer;
} entry;

struct bh__circuits {
    pthread_mutex_t mutex;
    bh_breaker_settings settings;
    bh_policy *pauses;
    char name[BH_BREAKER_MOST_NAME + 1];
    bh__siphash_key key;
    uint64_t random;
    int64_t generation; /* the first one of the next circuit: a permit of a replaced key is foreign */
    entry *entries;
    size_t count;
    size_t capacity;
    size_t newest, oldest; /* index plus 1; 0: none */
    size_t places[PLACES]; /* index plus 1 */
};

bh_status bh__circuits_new(bh__circuits **out, const bh_breaker_settings *settings, bh_bytes random)
{
    *out = NULL;
    bh__circuits *self = calloc(1, sizeof *self);
    if (!self || pthread_mutex_init(&self->mutex, NULL) != 0) {
        free(self);
        return BH_ERR_NO_MEMORY;
    }
    if (settings->pauses && bh__policy_copy(&self->pauses, settings->pauses) != BH_OK) {
        bh__circuits_free(self);
        return BH_ERR_NO_MEMORY;
    }
    memcpy(self->name, settings->name.data, settings->name.size);
    self->settings = *settings;
    self->settings.name = (bh_bytes){self->name, settings->name.size};
    self->settings.pauses = self->pauses;
    if (self->settings.ramp_calls > MOST_RAMP_CALLS)
        self->settings.ramp_calls = MOST_RAMP_CALLS;
    self->random = bh__seed(random.data);
    self->key = (bh__siphash_key){self->random, ~self->random};
    self->generation = 1;
    *out = self;
    return BH_OK;
}

void bh__circuits_free(bh__circuits *self)
{
    if (!self)
        return;
    for (size_t i = 0; i < self->count; i++)
        bh__circuit_free(self->entries[i].circuit);
    pthread_mutex_destroy(&self->mutex);
    bh_policy_free(self->pauses);
    free(self->entries);
    free(self);
}

/* ------------------------------------------------------------------------------------ the table */

static size_t *place_of(bh__circuits *self, uint64_t hash)
{
    return &self->places[hash & (PLACES - 1)];
}

/* Returns the entry of a key; NULL: it has none. */
static entry *find(bh__circuits *self, uint64_t hash)
{
    size_t at = *place_of(self, hash);
    while (at && self->entries[at - 1].hash != hash)
        at = self->entries[at - 1].next;
    return at ? &self->entries[at - 1] : NULL;
}

/* Takes an entry out of the order of use. */
static void leave(bh__circuits *self, const entry *left)
{
    if (left->newer)
        self->entries[left->newer - 1].older = left->older;
    else
        self->newest = left->older;
    if (left->older)
        self->entries[left->older - 1].newer = left->newer;
    else
        self->oldest = left->newer;
}

/* Makes an entry the one that was used last. */
static void enter(bh__circuits *self, entry *entered)
{
    size_t number = (size_t)(entered - self->entries) + 1;
    entered->older = self->newest;
    entered->newer = 0;
    if (self->newest)
        self->entries[self->newest - 1].newer = number;
    else
        self->oldest = number;
    self->newest = number;
}

/* Takes the entry that was used least recently out of its place and of the order. */
static entry *replace_oldest(bh__circuits *self)
{
    entry *replaced = &self->entries[self->oldest - 1];
    size_t *at = place_of(self, replaced->hash);
    while (*at != self->oldest)
        at = &self->entries[*at - 1].next;
    *at = replaced->next;
    leave(self, replaced);
    bh__circuit_free(replaced->circuit);
    return replaced;
}

/* Makes a circuit, with generations that no other key has or had. NULL: no memory. */
static bh__circuit *make_circuit(bh__circuits *self)
{
    char random[BH_BREAKER_RANDOM_BYTES];
    bh__circuit *made = NULL;
    for (size_t i = 0; i < sizeof random; i++)
        random[i] = (char)(unsigned char)(bh__draw_number(&self->random) * 256.0);
    if (bh__circuit_new(&made, &self->settings, (bh_bytes){random, sizeof random}) != BH_OK)
        return NULL;
    made->generation = self->generation;
    self->generation += INT64_C(1) << 20;
    return made;
}

/* Adds an entry for a key. NULL: no memory. */
static entry *add(bh__circuits *self, uint64_t hash)
{
    void *entries = self->entries;
    if (self->count < MOST && !bh__reserve(&entries, &self->capacity, sizeof *self->entries, self->count + 1))
        return NULL;
    self->entries = entries;
    bh__circuit *circuit = make_circuit(self);
    if (!circuit)
        return NULL;
    entry *added = self->count < MOST ? &self->entries[self->count++] : replace_oldest(self);
    size_t *place = place_of(self, hash);
    *added = (entry){.hash = hash, .circuit = circuit, .next = *place};
    *place = (size_t)(added - self->entries) + 1;
    enter(self, added);
    return added;
}

/* Returns the circuit of a key, which counts as used now. NULL: it has none, and none is to be
 * added. */
static bh__circuit *use(bh__circuits *self, bh_bytes key, int adds)
{
    uint64_t hash = bh__siphash(self->key, key);
    entry *found = find(self, hash);
    if (!found && adds)
        found = add(self, hash);
    else if (found && self->newest != (size_t)(found - self->entries) + 1) {
        leave(self, found);
        enter(self, found);
    }
    return found ? found->circuit : NULL;
}

/* ------------------------------------------------------------------------------------ the calls */

/*
 * Returns when a message whose key has no permit can try again. A probe, and a call of the ramp,
 * can end at any time: the message does not wait until it would be lost.
 */
static int64_t try_again_ms(bh__circuit *circuit, int64_t until_ms, int64_t now_ms)
{
    bh_breaker_view view = {.state = BH_BREAKER_OPEN};
    if (circuit)
        bh__circuit_read(circuit, now_ms, &view);
    if (view.state != BH_BREAKER_OPEN && until_ms > now_ms + PROBE_MS)
        return now_ms + PROBE_MS;
    return until_ms == BH_BREAKER_NEVER ? now_ms + BLIND_MS : until_ms;
}

bh_status bh__circuits_permit(bh__circuits *self, bh_bytes key, int64_t now_ms, bh_permit *out)
{
    *out = (bh_permit){.until_ms = now_ms + BLIND_MS};
    pthread_mutex_lock(&self->mutex);
    bh__circuit *circuit = use(self, key, 1);
    if (circuit)
        bh__circuit_permit(circuit, now_ms, out);
    if (!out->generation)
        out->until_ms = try_again_ms(circuit, out->until_ms, now_ms);
    pthread_mutex_unlock(&self->mutex);
    return circuit ? BH_OK : BH_ERR_NO_MEMORY;
}

int bh__circuits_record(bh__circuits *self, bh_bytes key, const bh_permit *permit, const bh_call *call, int64_t now_ms)
{
    pthread_mutex_lock(&self->mutex);
    bh__circuit *circuit = use(self, key, 0);
    int counted = circuit && bh__circuit_record(circuit, permit, call, now_ms);
    pthread_mutex_unlock(&self->mutex);
    return counted;
}

bh_status bh__circuits_open(bh__circuits *self, bh_bytes key, int64_t until_ms, int64_t now_ms)
{
    pthread_mutex_lock(&self->mutex);
    bh__circuit *circuit = use(self, key, 1);
    if (circuit)
        bh__circuit_open(circuit, until_ms, now_ms);
    pthread_mutex_unlock(&self->mutex);
    return circuit ? BH_OK : BH_ERR_NO_MEMORY;
}

bh_status bh__circuits_disable(bh__circuits *self, bh_bytes key, int64_t now_ms)
{
    pthread_mutex_lock(&self->mutex);
    bh__circuit *circuit = use(self, key, 1);
    if (circuit)
        bh__circuit_disable(circuit, now_ms);
    pthread_mutex_unlock(&self->mutex);
    return circuit ? BH_OK : BH_ERR_NO_MEMORY;
}

void bh__circuits_close(bh__circuits *self, bh_bytes key, int64_t now_ms)
{
    pthread_mutex_lock(&self->mutex);
    bh__circuit *circuit = use(self, key, 0);
    if (circuit)
        bh__circuit_close(circuit, now_ms);
    pthread_mutex_unlock(&self->mutex);
}

void bh__circuits_read(bh__circuits *self, bh_bytes key, int64_t now_ms, bh_breaker_view *out)
{
    *out = (bh_breaker_view){.until_ms = BH_BREAKER_NEVER, .grants = 1};
    pthread_mutex_lock(&self->mutex);
    bh__circuit *circuit = use(self, key, 0);
    if (circuit)
        bh__circuit_read(circuit, now_ms, out);
    pthread_mutex_unlock(&self->mutex);
}

size_t bh__circuits_count(bh__circuits *self)
{
    pthread_mutex_lock(&self->mutex);
    size_t count = self->count;
    pthread_mutex_unlock(&self->mutex);
    return count;
}
