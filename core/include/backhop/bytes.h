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
 * As an argument it is read during the call only. As a result it is borrowed from the object asked, stays valid until
 * that object is changed or freed, `data` is never NULL, and a zero byte follows the last one: text without zero bytes
 * can be used as a C string. What does not exist is the empty string.
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

BH_END_DECLS

#endif
