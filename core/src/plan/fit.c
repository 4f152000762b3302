/*
 * Makes a copy fit frame_max. AMQP 0-9-1 sends all properties and headers of a message in one
 * frame.
 *
 * Brokers add headers to a copy on its way to the next consumer, in the same frame. This file
 * leaves room for them.
 */
#include "delivery/internal.h"
#include "plan/data.h"
#include "topology/internal.h"

enum {
    CONTENT_HEADER_START = 12, /* class, weight and body size, before the property flags */
    FRAME_OVERHEAD = 8         /* the frame's header and its end */
};

/* Returns the size of a header that the plan sets, in bytes on the wire. */
static int64_t header_bytes(const bh_plan *self, const bh__plan_header *added, const bh_delivery *delivery)
{
    size_t bytes = 1 + added->name.size + 1;
    if (added->type == BH_TYPE_INT64)
        bytes += 8;
    else if (added->type == BH_TYPE_ARRAY)
        bytes += 4 + 1 + 4 + added->string.size;
    else if (added->type == BH_TYPE_STRING)
        bytes += 4 + added->string.size;
    else { /* as another header of the original */
        const bh__node *source = bh__delivery_header(delivery, bh__store_get(&self->store, added->string));
        bytes += source ? source->bytes - (1 + source->name.size + 1) : 0;
    }
    return (int64_t)bytes;
}

static int64_t headers_bytes(const bh_plan *self, const bh_delivery *delivery)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < self->header_count; i++)
        bytes += header_bytes(self, &self->headers[i], delivery);
    return bytes;
}

/*
 * Returns the bytes that a broker adds to the copy.
 *
 * Dead-lettering adds x-death with one record, x-first-death-* and x-last-death-*: 349 bytes, three
 * times the names of the queue and the exchange, and the routing key. Quorum queues add
 * x-delivery-count and x-acquired-count: 52 bytes. The rest is a reserve for later brokers.
 */
static int64_t broker_bytes(const bh_plan *self, const bh__plan_input *in)
{
    bh_strategy strategy = bh__topology_strategy(in->topology);
    int is_dead_lettered = bh__plan_waits(self) && strategy != BH_STRATEGY_DELAYED_EXCHANGE;
    return is_dead_lettered ? (int64_t)(512 + 6 * self->exchange.size + self->routing_key.size) : 64;
}

/* Returns the bytes of the properties and headers that the copy keeps, with flags, delivery-mode
 * and table length. */
static size_t kept_bytes(const bh_plan *self, const bh_delivery *delivery)
{
    size_t kept = 2 + 1 + 4 + bh__delivery_headers_bytes(delivery); /* flags, delivery-mode, length of the table */
    if (self->expiration.size > 0)
        kept += 1 + self->expiration.size;
    for (int property = 0; property < BH_PROPERTY_LAST; property++)
        if (bh_plan_keeps_property(self, (bh_property)property))
            kept += bh__delivery_property_bytes(delivery, (bh_property)property);
    bh__tree tree = bh__delivery_tree(delivery);
    for (size_t i = 0; i < tree.count; i = tree.nodes[i].end)
        if (!bh_plan_keeps_header(self, bh__store_get(tree.store, tree.nodes[i].name)))
            kept -= tree.nodes[i].bytes;
    return kept;
}

/* Returns the bytes of the frame that are free for the headers of the plan. Negative if the kept
 * part alone is too long. */
static int64_t room_bytes(const bh_plan *self, const bh_delivery *delivery)
{
    if (self->frame_max == 0)
        return INT64_MAX;
    return self->frame_max - FRAME_OVERHEAD - CONTENT_HEADER_START - (int64_t)kept_bytes(self, delivery);
}

int bh__plan_keeps_fit(const bh_plan *self, const bh_delivery *delivery)
{
    return room_bytes(self, delivery) >= 0;
}

size_t bh__plan_copy_bytes(const bh_plan *self, const bh_delivery *delivery)
{
    return kept_bytes(self, delivery) + (size_t)headers_bytes(self, delivery);
}

/* Shortens the error's text by at least `over` bytes. Returns 0, and leaves it, if no text would
 * remain. */
static int shorten_error(bh_plan *self, int64_t over)
{
    size_t at = bh__plan_find_header(self, bh_str("backhop-error"));
    bh_bytes text = at < self->header_count ? bh__store_get(&self->store, self->headers[at].string) : bh_str("");
    bh_bytes cut = text.size > (size_t)over ? bh__cut(text, text.size - (size_t)over) : bh_str("");
    if (cut.size == 0)
        return 0;
    if (!bh__store_add(&self->store, &self->headers[at].string, cut))
        self->no_memory = 1;
    return 1;
}

int bh__plan_make_fit(bh_plan *self, const bh__plan_input *in)
{
    static const char *const spare[] = {"backhop-traceparent", "backhop-due",     "backhop-error", "backhop-replays",
                                        "backhop-expiration",  "backhop-user-id", "backhop-cc"};
    int64_t room = room_bytes(self, in->delivery) - broker_bytes(self, in);
    int64_t over = headers_bytes(self, in->delivery) - room;
    for (size_t i = 0; i < sizeof spare / sizeof spare[0] && over > 0; i++) {
        size_t at = bh__plan_find_header(self, bh_str(spare[i]));
        if (at == self->header_count)
            continue;
        if (bh__same(bh_str(spare[i]), bh_str("backhop-error")) && shorten_error(self, over))
            return 1;
        over -= header_bytes(self, &self->headers[at], in->delivery);
        bh__plan_remove_header(self, at);
    }
    return over <= 0;
}

void bh__plan_remove_unfit(bh_plan *self, const bh__plan_input *in)
{
    int64_t room = room_bytes(self, in->delivery) - broker_bytes(self, in);
    for (size_t i = 0; i < self->header_count;) {
        int64_t bytes = header_bytes(self, &self->headers[i], in->delivery);
        if (bytes > room) {
            bh__plan_remove_header(self, i);
            continue;
        }
        room -= bytes;
        i++;
    }
}
