/*
 * Content: what a content header says of a message, read where it lies on the wire; and the header of a copy.
 *
 * librabbitmq is not asked here: a copy's values have to go out with the bytes that they came with, and its decoder
 * (0.11) recurses as deep as a stranger nests, or (0.14) gives the connection up. Internal.
 */
#ifndef BACKHOP_WORKER_WIRE_CONTENT_H
#define BACKHOP_WORKER_WIRE_CONTENT_H

#include "buffer.h"

#include <backhop/plan.h>

/* Reads exchange, routing key, and `properties` (the property flags and list of AMQP 0-9-1, section 4.2.6.1); replaces
 * what the delivery held. Headers may nest as deep as they like. BH_ERR_NO_MEMORY, BH_ERR_CONTENT (malformed). */
bh_status bh__content_read(bh_delivery *out, bh_bytes exchange, bh_bytes routing_key, bh_bytes properties);
/* Appends the property flags and list of the plan's copy. BH_ERR_NO_MEMORY, BH_ERR_CONTENT (malformed). */
bh_status bh__content_copy(bh__buffer *out, const bh_plan *plan, bh_bytes properties);
/* A header's string; "" where it is none. */
bh_bytes bh__content_string(bh_bytes properties, const char *name);

#endif
