/* Codec: what librabbitmq received into a delivery; a plan and the original into what librabbitmq publishes.
 * Internal. */
#ifndef BACKHOP_WORKER_CODEC_H
#define BACKHOP_WORKER_CODEC_H

#include "librabbitmq.h"

#include <backhop/plan.h>

static inline bh_bytes bh__from_amqp(amqp_bytes_t bytes)
{
    bh_bytes borrowed = {bytes.len ? bytes.bytes : "", bytes.len};
    return borrowed;
}

/* librabbitmq has no const, but only reads what it sends. */
static inline void *bh__unconst(const void *data)
{
    return (void *)(uintptr_t)data;
}

static inline amqp_bytes_t bh__to_amqp(bh_bytes bytes)
{
    amqp_bytes_t borrowed = {bytes.size, bh__unconst(bytes.data)};
    return borrowed;
}

/* Replaces what the delivery held. Headers may nest as deep as they like. BH_ERR_NO_MEMORY. */
bh_status bh__decode(bh_delivery *out, amqp_bytes_t exchange, amqp_bytes_t routing_key,
                     const amqp_basic_properties_t *properties);

/* The properties of a copy. Zero bytes are an empty one. */
typedef struct bh__copy {
    amqp_basic_properties_t properties; /* valid until the plan changes or the original's memory goes */
    void *entries;
    size_t capacity;
    void *elements;
    size_t element_capacity;
} bh__copy;

/*
 * The properties of the plan's copy. Values that the copy keeps are the original's own, not copied: they go out with
 * the type and the bytes that they came with. BH_ERR_NO_MEMORY.
 */
bh_status bh__encode(bh__copy *self, const bh_plan *plan, const amqp_basic_properties_t *original);
void bh__copy_free(bh__copy *self);

#endif
