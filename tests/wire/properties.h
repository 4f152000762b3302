/*
 * Properties: a message's properties as they lie on the wire (AMQP 0-9-1, section 4.2.6.1). They
 * are written and read by the shortest code that does it, to check the library's results.
 */
#ifndef BACKHOP_TESTS_WIRE_PROPERTIES_H
#define BACKHOP_TESTS_WIRE_PROPERTIES_H

#include "base/buffer.h"

#include <backhop/adapter/delivery.h>
#include <stdlib.h>

enum { MOST_HEADERS = 1024 };

/* Appends, and makes room first. */
void add_number(bh__buffer *to, uint64_t number, size_t size);
void add_bytes(bh__buffer *to, const void *bytes, size_t size);
/* Behind a length of so many bytes. */
void add_counted(bh__buffer *to, size_t length_size, bh_bytes bytes);
/* A header: its name, type, and the value's bytes as they lie. */
void add_field(bh__buffer *to, const char *name, char type, const void *value, size_t size);
/* A header that is a string. */
void add_text(bh__buffer *to, const char *name, const char *text);
bh_bytes bytes_of(const bh__buffer *buffer);

typedef struct header_field {
    bh_bytes name;
    bh_bytes value; /* with its type */
} header_field;

typedef struct property_list {
    bh_bytes values[BH_PROPERTY_LAST]; /* with their lengths; data NULL: absent */
    header_field headers[MOST_HEADERS];
    size_t header_count;
    size_t size; /* of the wire that it takes up */
} property_list;

/* Returns 0 if it is malformed, nested values aside, or there are too many headers. */
int property_list_read(property_list *self, bh_bytes wire);

#endif
