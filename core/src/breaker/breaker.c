/* Breaker: the public functions, on the circuit of the breaker or of a key. */
#include "breaker/data.h"

#include <stdatomic.h>
#include <stdlib.h>

struct bh_breaker {
    atomic_int references; /* of the application, of workers and of flows */
    char name[BH_BREAKER_MOST_NAME + 1];
    size_t name_size;
    /* one of these */
    bh__circuit *circuit;
    bh__circuits *by_key;
};

bh_status bh_breaker_new(bh_breaker **out, const bh_breaker_settings *settings, bh_bytes random)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (bh_breaker_settings_error(settings).size || !random.data || random.size != BH_BREAKER_RANDOM_BYTES)
        return BH_ERR_ARGUMENT;
    bh_breaker *self = calloc(1, sizeof *self);
    if (!self)
        return BH_ERR_NO_MEMORY;
    atomic_init(&self->references, 1);
    bh_status status = settings->by_key ? bh__circuits_new(&self->by_key, settings, random)
                                        : bh__circuit_new(&self->circuit, settings, random);
    if (status != BH_OK) {
        bh_breaker_free(self);
        return status;
    }
    self->name_size = settings->name.size;
    memcpy(self->name, settings->name.data, self->name_size);
    *out = self;
    return BH_OK;
}

bh_breaker *bh__breaker_keep(bh_breaker *self)
{
    if (self)
        atomic_fetch_add(&self->references, 1);
    return self;
}

void bh_breaker_free(bh_breaker *self)
{
    if (!self || atomic_fetch_sub(&self->references, 1) > 1)
        return;
    bh__circuit_free(self->circuit);
    bh__circuits_free(self->by_key);
    free(self);
}

bh_bytes bh__breaker_name(const bh_breaker *self)
{
    return self ? (bh_bytes){self->name, self->name_size} : bh_str("");
}

int bh__breaker_is_by_key(const bh_breaker *self)
{
    return self && self->by_key;
}

size_t bh__breaker_key_count(bh_breaker *self)
{
    return bh__breaker_is_by_key(self) ? bh__circuits_count(self->by_key) : 0;
}

/* Returns 1 if the breaker has a circuit for this key. */
static int serves(const bh_breaker *self, bh_bytes key)
{
    return self && (self->by_key ? key.data || !key.size : !key.size);
}

bh_status bh_breaker_permit(bh_breaker *self, bh_bytes key, int64_t now_ms, bh_permit *out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = (bh_permit){.until_ms = BH_BREAKER_NEVER};
    if (!serves(self, key))
        return BH_ERR_ARGUMENT;
    if (self->by_key)
        return bh__circuits_permit(self->by_key, key, now_ms, out);
    bh__circuit_permit(self->circuit, now_ms, out);
    return BH_OK;
}

int bh_breaker_record(bh_breaker *self, bh_bytes key, const bh_permit *permit, const bh_call *call, int64_t now_ms)
{
    if (!serves(self, key) || !permit || !call || (int)call->kind < BH_CALL_SUCCESS ||
        (int)call->kind > BH_CALL_THROTTLED)
        return 0;
    return self->by_key ? bh__circuits_record(self->by_key, key, permit, call, now_ms)
                        : bh__circuit_record(self->circuit, permit, call, now_ms);
}

bh_status bh_breaker_open(bh_breaker *self, bh_bytes key, int64_t until_ms, int64_t now_ms)
{
    if (!serves(self, key) || until_ms < BH_BREAKER_NEVER || until_ms > BH__BREAKER_MOST_MS)
        return BH_ERR_ARGUMENT;
    if (self->by_key)
        return bh__circuits_open(self->by_key, key, until_ms, now_ms);
    bh__circuit_open(self->circuit, until_ms, now_ms);
    return BH_OK;
}

void bh_breaker_close(bh_breaker *self, bh_bytes key, int64_t now_ms)
{
    if (!serves(self, key))
        return;
    if (self->by_key)
        bh__circuits_close(self->by_key, key, now_ms);
    else
        bh__circuit_close(self->circuit, now_ms);
}

bh_status bh_breaker_disable(bh_breaker *self, bh_bytes key, int64_t now_ms)
{
    if (!serves(self, key))
        return BH_ERR_ARGUMENT;
    if (self->by_key)
        return bh__circuits_disable(self->by_key, key, now_ms);
    bh__circuit_disable(self->circuit, now_ms);
    return BH_OK;
}

void bh_breaker_read(bh_breaker *self, bh_bytes key, int64_t now_ms, bh_breaker_view *out)
{
    if (!out)
        return;
    *out = (bh_breaker_view){.until_ms = BH_BREAKER_NEVER};
    if (serves(self, key) && self->by_key)
        bh__circuits_read(self->by_key, key, now_ms, out);
    else if (serves(self, key))
        bh__circuit_read(self->circuit, now_ms, out);
    out->name = bh__breaker_name(self);
}
