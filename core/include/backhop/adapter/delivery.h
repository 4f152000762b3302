/*
 * Delivery: a message as it arrived. Exchange, routing key, properties and headers.
 *
 * Fill a delivery from the client's message, then read it with <backhop/adapter/history.h>:
 *
 *     bh_delivery_clear(d);
 *     bh_delivery_set_address(d, bh_str("cdn"), bh_str("purge.images"));
 *     bh_delivery_set_property(d, BH_PROPERTY_MESSAGE_ID, bh_str("42"));
 *     bh_delivery_push(d, &(bh_value){.type = BH_TYPE_STRING, .name = bh_str("tenant"), .string = bh_str("acme")});
 *
 *     bh_delivery_push(d, &(bh_value){.type = BH_TYPE_ARRAY, .name = bh_str("x-death")});
 *     bh_delivery_push(d, &(bh_value){.type = BH_TYPE_TABLE, .name = bh_str("")});
 *
 *     bh_delivery_push(d, &(bh_value){.type = BH_TYPE_INT64, .name = bh_str("count"), .integer = 3});
 *     bh_delivery_end(d);
 *     bh_delivery_end(d);
 *
 * Headers are untrusted input. Pushing a header never fails because of its content. A header beyond
 * the limits below counts for bh_delivery_header_bytes, but is not kept, and is_truncated of
 * bh_delivery_view is 1.
 */
#ifndef BACKHOP_DELIVERY_H
#define BACKHOP_DELIVERY_H

#include <backhop/bytes.h>
#include <backhop/status.h>
#include <stdint.h>

BH_BEGIN_DECLS

/* Limits of the headers that a delivery keeps. A header frame of the default frame_max (128 KiB) is
 * kept whole. */
#define BH_DELIVERY_MAX_DEPTH 32      /* tables and arrays inside each other */
#define BH_DELIVERY_MAX_ENTRIES 65536 /* values, nested values included */
#define BH_DELIVERY_MAX_BYTES 1048576 /* names and strings together */

/* The 14 basic properties of AMQP 0-9-1, in their order on the wire. */
typedef enum bh_property {
    BH_PROPERTY_CONTENT_TYPE,
    BH_PROPERTY_CONTENT_ENCODING,
    BH_PROPERTY_HEADERS,
    BH_PROPERTY_DELIVERY_MODE,
    BH_PROPERTY_PRIORITY,
    BH_PROPERTY_CORRELATION_ID,
    BH_PROPERTY_REPLY_TO,
    BH_PROPERTY_EXPIRATION,
    BH_PROPERTY_MESSAGE_ID,
    BH_PROPERTY_TIMESTAMP,
    BH_PROPERTY_TYPE,
    BH_PROPERTY_USER_ID,
    BH_PROPERTY_APP_ID,
    BH_PROPERTY_CLUSTER_ID,
    BH_PROPERTY_LAST
} bh_property;

/*
 * A header, or a value inside a table or array.
 *
 * Values lie flat, each table or array before its values. If a call returns BH_ERR_ARGUMENT, the
 * type is 0, the numbers are 0 and the strings are "". The strings are valid until the delivery
 * changes.
 */
typedef struct bh_value {
    bh_type type;
    bh_bytes name;   /* "" in an array */
    bh_bytes string; /* of BH_TYPE_STRING and BH_TYPE_BYTES; else "" */
    int64_t integer; /* of integers and the boolean; of the timestamp, in seconds; of the decimal, its digits */
    double number;   /* of BH_TYPE_FLOAT and BH_TYPE_DOUBLE */
    int places;      /* of BH_TYPE_DECIMAL: the value is integer * 10^-places */
    size_t end;      /* the index after this value and the values inside it; bh_delivery_push ignores it */
} bh_value;

/* The parts of a delivery. The texts are valid until the next call that changes the delivery. */
typedef struct bh_delivery_view {
    bh_bytes exchange;    /* "" if it was not set */
    bh_bytes routing_key; /* "" if it was not set */
    size_t value_count;   /* values in all headers, nested values included: for bh_delivery_value */
    int is_truncated;     /* 1 if a header was beyond a limit above, so that some headers are missing */
} bh_delivery_view;

typedef struct bh_delivery bh_delivery;

/*
 * Creates an empty delivery in *out. Free it with bh_delivery_free.
 *
 * Errors: BH_ERR_NO_MEMORY; BH_ERR_ARGUMENT if out is NULL.
 */
BH_API bh_status bh_delivery_new(bh_delivery **out);
/* Frees the delivery. NULL is allowed. */
BH_API void bh_delivery_free(bh_delivery *self);
/* Empties the delivery. It keeps its memory, so that the next message needs no allocation. */
BH_API void bh_delivery_clear(bh_delivery *self);

/*
 * Sets the exchange and routing key of basic.deliver.
 *
 * Errors: BH_ERR_NO_MEMORY; BH_ERR_ARGUMENT if a text is longer than 255 bytes.
 */
BH_API bh_status bh_delivery_set_address(bh_delivery *self, bh_bytes exchange, bh_bytes routing_key);

/*
 * Sets a property of the message. _set_number is for delivery-mode, priority and timestamp (in
 * seconds); _set_property is for the others. Push headers with bh_delivery_push.
 *
 * Errors: BH_ERR_NO_MEMORY; BH_ERR_ARGUMENT if the property has another type, or the text is longer
 * than 255 bytes.
 */
BH_API bh_status bh_delivery_set_property(bh_delivery *self, bh_property property, bh_bytes value);
BH_API bh_status bh_delivery_set_number(bh_delivery *self, bh_property property, int64_t value);

/*
 * Appends a header, or a value of the last table or array that is open. A table or array is open
 * until bh_delivery_end.
 *
 * value->name: at most 255 bytes; ignored in an array. Its data is not NULL. The call copies the
 * strings.
 * Errors: BH_ERR_NO_MEMORY; BH_ERR_ARGUMENT if the type is unknown, if a string's data is NULL, or
 * if `name` or `places` is out of range. BH_ERR_ARGUMENT also if a field is set that the type does
 * not have.
 */
BH_API bh_status bh_delivery_push(bh_delivery *self, const bh_value *value);
/*
 * Closes the last table or array that is open.
 *
 * Errors: BH_ERR_STATE if none is open; BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_delivery_end(bh_delivery *self);

/* Reads what the delivery is made of: see bh_delivery_view. If `self` is NULL, it is empty. */
BH_API void bh_delivery_read(const bh_delivery *self, bh_delivery_view *out);
/* Returns 1 if the message has the property; for BH_PROPERTY_HEADERS, if a header was pushed. */
BH_API int bh_delivery_has_property(const bh_delivery *self, bh_property property);
/* Returns the text of a property; "" if the message does not have it, or if it is a number. */
BH_API bh_bytes bh_delivery_property(const bh_delivery *self, bh_property property);
/* Returns the number of a property; 0 if the message does not have it, or if it is a text. */
BH_API int64_t bh_delivery_number(const bh_delivery *self, bh_property property);
/*
 * Reads the first header of this name into *out.
 *
 * Errors: BH_ERR_ARGUMENT if the message has no such header.
 */
BH_API bh_status bh_delivery_header(const bh_delivery *self, bh_bytes name, bh_value *out);
/*
 * Reads a value into *out. The first header is the value 0; the next header is the value out->end.
 *
 * Errors: BH_ERR_ARGUMENT if index is not below value_count of bh_delivery_view.
 */
BH_API bh_status bh_delivery_value(const bh_delivery *self, size_t index, bh_value *out);
/*
 * Returns the size of property flags, properties and headers on the wire, in bytes. This is the
 * payload of the content header without its first 12 bytes.
 */
BH_API int64_t bh_delivery_header_bytes(const bh_delivery *self);

BH_END_DECLS

#endif
