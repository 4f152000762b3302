/*
 * Delivery: what arrived. Exchange, routing key, properties and headers, pushed in by whoever received it.
 *
 * Headers are a stranger's: whatever they hold, pushing them never fails for what they are. What goes beyond the limits
 * below is measured and left out, and bh_delivery_is_truncated tells so.
 *
 *     bh_delivery_clear(d);
 *     bh_delivery_set_exchange(d, bh_str("cdn"));
 *     bh_delivery_set_property(d, BH_PROPERTY_MESSAGE_ID, bh_str("42"));
 *     bh_delivery_push_string(d, bh_str("tenant"), BH_TYPE_STRING, bh_str("acme"));
 *     bh_delivery_begin_array(d, bh_str("x-death"));
 *     bh_delivery_begin_table(d, bh_str(""));          an element of an array has no name
 *     bh_delivery_push_int(d, bh_str("count"), BH_TYPE_INT64, 3);
 *     bh_delivery_end(d);
 *     bh_delivery_end(d);
 */
#ifndef BACKHOP_DELIVERY_H
#define BACKHOP_DELIVERY_H

#include <backhop/status.h>
#include <stdint.h>

BH_BEGIN_DECLS

/* Limits of what a delivery keeps of its headers. A header frame of the default frame_max (128 KiB) fits whole. */
#define BH_DELIVERY_MAX_DEPTH 32      /* tables and arrays inside each other */
#define BH_DELIVERY_MAX_ENTRIES 65536 /* values, nested ones included */
#define BH_DELIVERY_MAX_BYTES 1048576 /* names and strings together */

/* The 14 basic properties of AMQP 0-9-1 in their order on the wire, "headers" included. */
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

/* Types of header values: the tags that RabbitMQ writes on the wire. */
typedef enum bh_type {
    BH_TYPE_BOOLEAN = 't',
    BH_TYPE_INT8 = 'b',
    BH_TYPE_UINT8 = 'B',
    BH_TYPE_INT16 = 's',
    BH_TYPE_UINT16 = 'u',
    BH_TYPE_INT32 = 'I',
    BH_TYPE_UINT32 = 'i',
    BH_TYPE_INT64 = 'l',
    BH_TYPE_UINT64 = 'L',
    BH_TYPE_FLOAT = 'f',
    BH_TYPE_DOUBLE = 'd',
    BH_TYPE_DECIMAL = 'D',
    BH_TYPE_STRING = 'S',
    BH_TYPE_BYTES = 'x',
    BH_TYPE_TIMESTAMP = 'T',
    BH_TYPE_VOID = 'V',
    BH_TYPE_ARRAY = 'A',
    BH_TYPE_TABLE = 'F'
} bh_type;

typedef struct bh_delivery bh_delivery;

/* A new, empty delivery in *out; free it with bh_delivery_free. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT (out is NULL). */
BH_API bh_status bh_delivery_new(bh_delivery **out);
/* Frees the delivery; NULL is allowed. */
BH_API void bh_delivery_free(bh_delivery *self);
/* Empties the delivery and keeps its memory, so that filling the next one allocates nothing. */
BH_API void bh_delivery_clear(bh_delivery *self);

/* Where the message was published, as basic.deliver says; at most 255 bytes. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT. */
BH_API bh_status bh_delivery_set_exchange(bh_delivery *self, bh_bytes exchange);
BH_API bh_status bh_delivery_set_routing_key(bh_delivery *self, bh_bytes routing_key);

/*
 * A property that the message has. Strings hold at most 255 bytes; delivery-mode, priority and timestamp (seconds) are
 * numbers and go through _set_number; headers are pushed, below. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_delivery_set_property(bh_delivery *self, bh_property property, bh_bytes value);
BH_API bh_status bh_delivery_set_number(bh_delivery *self, bh_property property, int64_t value);

/*
 * The next header, or the next value of the table or array begun last. In an array `name` is ignored; in a table it has
 * at most 255 bytes. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT (a type that the function does not take, a name too long).
 *
 * push_int takes the boolean, every integer type and the timestamp (seconds); push_float float and double; push_string
 * string and bytes; push_decimal a value and the number of its decimal places.
 */
BH_API bh_status bh_delivery_push_int(bh_delivery *self, bh_bytes name, bh_type type, int64_t value);
BH_API bh_status bh_delivery_push_float(bh_delivery *self, bh_bytes name, bh_type type, double value);
BH_API bh_status bh_delivery_push_string(bh_delivery *self, bh_bytes name, bh_type type, bh_bytes value);
BH_API bh_status bh_delivery_push_decimal(bh_delivery *self, bh_bytes name, int places, int64_t value);
BH_API bh_status bh_delivery_push_void(bh_delivery *self, bh_bytes name);
BH_API bh_status bh_delivery_begin_table(bh_delivery *self, bh_bytes name);
BH_API bh_status bh_delivery_begin_array(bh_delivery *self, bh_bytes name);
/* Closes the table or array begun last. BH_ERR_STATE where none is open. */
BH_API bh_status bh_delivery_end(bh_delivery *self);

BH_API bh_bytes bh_delivery_exchange(const bh_delivery *self);
BH_API bh_bytes bh_delivery_routing_key(const bh_delivery *self);
BH_API int bh_delivery_has_property(const bh_delivery *self, bh_property property);
/* A property's string, "" where it is absent or a number; a property's number, 0 where it is absent or a string. */
BH_API bh_bytes bh_delivery_property(const bh_delivery *self, bh_property property);
BH_API int64_t bh_delivery_number(const bh_delivery *self, bh_property property);
/* The type of a header of this name (of the first, where there are several); 0 where there is none. */
BH_API int bh_delivery_header_type(const bh_delivery *self, bh_bytes name);
/* A header's string or bytes, "" for other types; a header's integer, boolean or timestamp, 0 for other types. */
BH_API bh_bytes bh_delivery_header_string(const bh_delivery *self, bh_bytes name);
BH_API int64_t bh_delivery_header_int(const bh_delivery *self, bh_bytes name);
/*
 * The values of all headers, flat: each table or array before what is in it. Headers are the values 0,
 * bh_delivery_value_end(d, 0) and so on, below the count. Beyond the count all of these give 0 or "".
 *
 * value_name is "" in an array; value_int is for the boolean, integers, the timestamp (seconds) and a decimal's digits;
 * value_string for strings and bytes.
 */
BH_API size_t bh_delivery_value_count(const bh_delivery *self);
BH_API int bh_delivery_value_type(const bh_delivery *self, size_t index);
BH_API bh_bytes bh_delivery_value_name(const bh_delivery *self, size_t index);
/* The index after the last value within; of what is no table or array, the next one. */
BH_API size_t bh_delivery_value_end(const bh_delivery *self, size_t index);
BH_API bh_bytes bh_delivery_value_string(const bh_delivery *self, size_t index);
BH_API int64_t bh_delivery_value_int(const bh_delivery *self, size_t index);
BH_API double bh_delivery_value_float(const bh_delivery *self, size_t index);
/* A decimal's places: its digits are a number of 10^-places. */
BH_API int bh_delivery_value_places(const bh_delivery *self, size_t index);
/* 1 where the headers went beyond a limit above, so that some of them were left out. */
BH_API int bh_delivery_is_truncated(const bh_delivery *self);
/* Bytes of property flags, properties and headers on the wire (the payload of a content header less its first 12). */
BH_API int64_t bh_delivery_header_bytes(const bh_delivery *self);

BH_END_DECLS

#endif
