#include "message.h"

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT_STRING, NUMBER_8, NUMBER_64, TABLE };

static const int kinds[BH_PROPERTY_LAST] = {
    [BH_PROPERTY_HEADERS] = TABLE,
    [BH_PROPERTY_DELIVERY_MODE] = NUMBER_8,
    [BH_PROPERTY_PRIORITY] = NUMBER_8,
    [BH_PROPERTY_TIMESTAMP] = NUMBER_64,
};

static uint64_t big_endian(const char *data, size_t size)
{
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++)
        number = number << 8 | (unsigned char)data[i];
    return number;
}

static bh_bytes cut(bh_bytes *rest, size_t size)
{
    ck_assert_msg(size <= rest->size, "the properties end early");
    bh_bytes part = {rest->data, size};
    rest->data += size;
    rest->size -= size;
    return part;
}

static size_t cut_number(bh_bytes *rest, size_t size)
{
    return (size_t)big_endian(cut(rest, size).data, size);
}

void message_set(message *self, bh_bytes raw, bh_bytes body)
{
    self->raw = raw;
    self->body = body;
    bh_bytes rest = raw;
    size_t flags = cut_number(&rest, 2);
    ck_assert_msg((flags & 3) == 0, "the property flags 0x%zx are not those of basic", flags);
    for (int i = 0; i < BH_PROPERTY_LAST; i++) {
        self->properties[i] = (bh_bytes){NULL, 0};
        if (!(flags & (size_t)1 << (15 - i)))
            continue;
        switch (kinds[i]) {
        case SHORT_STRING:
            self->properties[i] = cut(&rest, cut_number(&rest, 1));
            break;
        case NUMBER_8:
            self->properties[i] = cut(&rest, 1);
            break;
        case NUMBER_64:
            self->properties[i] = cut(&rest, 8);
            break;
        case TABLE:
            self->properties[i] = cut(&rest, cut_number(&rest, 4));
            break;
        }
    }
    ck_assert_msg(rest.size == 0, "%zu bytes follow the properties", rest.size);
}

void message_free(message *self)
{
    free((void *)(uintptr_t)self->raw.data);
    free((void *)(uintptr_t)self->body.data);
    self->raw = self->body = (bh_bytes){NULL, 0};
}

/* A value with its type in front. */
static bh_bytes cut_value(bh_bytes *rest)
{
    bh_bytes value = *rest;
    switch (cut(rest, 1).data[0]) {
    case 't':
    case 'b':
    case 'B':
        cut(rest, 1);
        break;
    case 's':
    case 'u':
        cut(rest, 2);
        break;
    case 'I':
    case 'i':
    case 'f':
        cut(rest, 4);
        break;
    case 'l':
    case 'L':
    case 'd':
    case 'T':
        cut(rest, 8);
        break;
    case 'D':
        cut(rest, 5);
        break;
    case 'S':
    case 'x':
    case 'A':
    case 'F':
        cut(rest, cut_number(rest, 4));
        break;
    case 'V':
        break;
    default:
        ck_abort_msg("the header type '%c' is unknown", value.data[0]);
    }
    value.size -= rest->size;
    return value;
}

static int next_entry(bh_bytes table, size_t *position, bh_bytes *name, bh_bytes *value)
{
    if (*position >= table.size)
        return 0;
    bh_bytes rest = {table.data + *position, table.size - *position};
    *name = cut(&rest, cut_number(&rest, 1));
    *value = cut_value(&rest);
    *position = table.size - rest.size;
    return 1;
}

int message_next_header(const message *self, size_t *position, bh_bytes *name, bh_bytes *value)
{
    return next_entry(self->properties[BH_PROPERTY_HEADERS], position, name, value);
}

static bh_bytes find(bh_bytes table, const char *name)
{
    size_t position = 0;
    bh_bytes found, value;
    while (next_entry(table, &position, &found, &value))
        if (found.size == strlen(name) && memcmp(found.data, name, found.size) == 0)
            return value;
    return (bh_bytes){NULL, 0};
}

bh_bytes message_header(const message *self, const char *name)
{
    return find(self->properties[BH_PROPERTY_HEADERS], name);
}

static bh_bytes string_of(bh_bytes value)
{
    return (bh_bytes){value.data + 5, value.size - 5};
}

bh_bytes message_string(const message *self, const char *name)
{
    bh_bytes value = message_header(self, name);
    ck_assert_msg(value.size > 0, "the header %s is missing", name);
    ck_assert_msg(value.data[0] == 'S', "the header %s is a '%c', not a string", name, value.data[0]);
    return string_of(value);
}

int64_t message_int(const message *self, const char *name)
{
    bh_bytes value = message_header(self, name);
    ck_assert_msg(value.size > 0, "the header %s is missing", name);
    ck_assert_msg(value.data[0] == 'l', "the header %s is a '%c', not a long", name, value.data[0]);
    return (int64_t)big_endian(value.data + 1, 8);
}
