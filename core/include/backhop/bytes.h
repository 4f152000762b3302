/* Bytes: how text and binary values cross the interface. */
#ifndef BACKHOP_BYTES_H
#define BACKHOP_BYTES_H

#include <backhop/version.h>
#include <stddef.h>
#include <string.h>

BH_BEGIN_DECLS

/*
 * A string of `size` bytes that may hold any byte, zero included.
 *
 * A function reads an argument during the call only. A result belongs to the object that returned
 * it, and is valid until that object changes or is freed. `data` of a result is never NULL, and a
 * zero byte follows the last byte. So you can use text without zero bytes as a C string. A missing
 * value is the empty string.
 */
typedef struct bh_bytes {
    const char *data;
    size_t size;
} bh_bytes;

/* The bytes of a C string; NULL gives the empty string. */
static inline bh_bytes bh_str(const char *text)
{
    bh_bytes bytes;
    bytes.data = text ? text : "";
    bytes.size = text ? strlen(text) : 0;
    return bytes;
}

/* AMQP's type of a header's value or a queue's argument: the tag that RabbitMQ writes on the
 * wire. */
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

BH_END_DECLS

#endif
