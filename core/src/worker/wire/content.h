/*
 * Content: reads the content header of a message, and writes the header of its copy.
 * librabbitmq is not used here. A copy's values must be published with the bytes that they arrived
 * with. Its decoder recurses as deep as untrusted headers nest (0.11), or gives up the connection
 * (0.14). Internal.
 */
#ifndef BACKHOP_WORKER_WIRE_CONTENT_H
#define BACKHOP_WORKER_WIRE_CONTENT_H

#include "base/buffer.h"
#include "base/siphash.h"

#include <backhop/adapter/plan.h>

/* Reads exchange, routing key and `properties` (property flags and list of AMQP 0-9-1, section
 * 4.2.6.1) into the delivery. Headers may nest to any depth. BH_ERR_NO_MEMORY; BH_ERR_CONTENT if
 * they are malformed. */
bh_status bh__content_read(bh_delivery *out, bh_bytes exchange, bh_bytes routing_key, bh_bytes properties);
/* Appends the property flags and list of the plan's copy. BH_ERR_NO_MEMORY; BH_ERR_CONTENT if
 * they are malformed. */
bh_status bh__content_copy(bh__buffer *out, const bh_plan *plan, bh_bytes properties);
/* Appends property flags and list, for a message that an operator publishes again. Leaves out
 * expiration and user-id, the headers that choose other queues or a delay (CC, BCC, x-delay), and
 * the broker's counts of deliveries. BH_ERR_NO_MEMORY; BH_ERR_CONTENT if they are malformed. */
bh_status bh__content_strip(bh__buffer *out, bh_bytes properties);
/* Returns 1 if the fields of a table, without its length, are well-formed and at most 16 tables
 * and arrays are in each other. */
int bh__content_is_shallow(bh_bytes fields);
/* Returns a header's string; "" if there is none. */
bh_bytes bh__content_string(bh_bytes properties, const char *name);
/* Returns a header's integer; -1 if there is none. */
int64_t bh__content_integer(bh_bytes properties, const char *name);

/*
 * Returns a hash that identifies a message if the broker delivers it again; 0 if the properties are
 * malformed. It ignores the headers x-delivery-count and x-acquired-count, because the broker
 * changes them, and the order of headers.
 *
 * Also returns 0 if there is neither a message-id nor a header backhop-id. Without an id, equal
 * messages can be different messages.
 */
uint64_t bh__content_fingerprint(bh__siphash_key key, bh_bytes exchange, bh_bytes routing_key, bh_bytes properties,
                                 bh_bytes body);

#endif
