/* Properties: the property flags and list of a content header (AMQP 0-9-1, 4.2.6.1), read and
 * written as bytes. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_PROPERTIES_H
#define BACKHOP_COMMAND_MODEL_PROPERTIES_H

#include "base/buffer.h"

/* In the order of the wire. */
typedef enum model_property {
    MODEL_CONTENT_TYPE,
    MODEL_CONTENT_ENCODING,
    MODEL_HEADERS,
    MODEL_DELIVERY_MODE,
    MODEL_PRIORITY,
    MODEL_CORRELATION_ID,
    MODEL_REPLY_TO,
    MODEL_EXPIRATION,
    MODEL_MESSAGE_ID,
    MODEL_TIMESTAMP,
    MODEL_TYPE,
    MODEL_USER_ID,
    MODEL_APP_ID,
    MODEL_CLUSTER_ID,
    MODEL_PROPERTY_COUNT
} model_property;

/* The values borrow. Those of strings and of the headers are without their length. */
typedef struct model_properties {
    int is_set[MODEL_PROPERTY_COUNT];
    bh_bytes value[MODEL_PROPERTY_COUNT];
} model_properties;

/* Reads flags and list. Returns 0 if they are malformed. */
int model_properties_read(model_properties *out, bh_bytes bytes);
/* Appends flags and list. Returns 0 if memory runs out. */
int model_properties_write(bh__buffer *out, const model_properties *self);

#endif
