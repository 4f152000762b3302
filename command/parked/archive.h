/*
 * Archive: a message as one line of JSON, and back, without loss: each header with its type, the
 * body in base64.
 *
 *     {"queue": "orders.parked", "exchange": "", "routing_key": "orders.parked", "id": "42",
 *      "properties": {"message-id": "42", "delivery-mode": 2}, "headers": [["backhop-error", "S", "507 queue is full"]],
 *      "body": "aGVsbG8="}
 *
 * A header is [name, type, value]. Its type is the letter that RabbitMQ writes on the wire. An
 * array's values are [type, value]. Bytes, and texts that are no UTF-8, are {"base64": "..."}. A
 * decimal is [places, digits].
 *
 * This form may not keep a message's properties byte for byte, for example if they nest deeper than
 * BH_DELIVERY_MAX_DEPTH. Then "wire" has the properties in base64, and is the one that is read.
 */
#ifndef BACKHOP_COMMAND_ARCHIVE_H
#define BACKHOP_COMMAND_ARCHIVE_H

#include "base/buffer.h"
#include "worker/wire/message.h"

#include <jansson.h>

/* The message as an object, which the caller frees. `delivery` is the message as bh__content_read
 * read it. */
json_t *archive_object(const char *queue, const bh_message *message, const bh_delivery *delivery, const char *id);
/* Properties and headers of a delivery, as in the object. */
json_t *archive_properties(const bh_delivery *delivery);
json_t *archive_headers(const bh_delivery *delivery);
json_t *archive_base64(bh_bytes bytes);
/* Writes the object's properties, as on the wire, and its body. Returns false with the reason in
 * `problem`. */
int archive_read(json_t *object, bh__buffer *properties, bh__buffer *body, char problem[256]);
/* Appends the headers that save what a published copy cannot have, as every copy of Backhop has
 * them: backhop-expiration, backhop-user-id, backhop-cc. `delivery` is these properties as
 * bh__content_read read them. */
void archive_save(const bh_delivery *delivery, bh__buffer *properties);

#endif
