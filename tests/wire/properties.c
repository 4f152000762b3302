#include "properties.h"

void add_bytes(bh__buffer *to, const void *bytes, size_t size)
{
    if (!bh__buffer_reserve(to, size))
        abort();
    bh__put_bytes(to, (bh_bytes){bytes, size});
}

void add_number(bh__buffer *to, uint64_t number, size_t size)
{
    if (!bh__buffer_reserve(to, size))
        abort();
    bh__put_number(to, number, size);
}

void add_counted(bh__buffer *to, size_t length_size, bh_bytes bytes)
{
    add_number(to, bytes.size, length_size);
    add_bytes(to, bytes.data, bytes.size);
}

void add_field(bh__buffer *to, const char *name, char type, const void *value, size_t size)
{
    add_counted(to, 1, bh_str(name));
    add_bytes(to, &type, 1);
    add_bytes(to, value, size);
}

void add_text(bh__buffer *to, const char *name, const char *text)
{
    add_field(to, name, BH_TYPE_STRING, NULL, 0);
    add_counted(to, 4, bh_str(text));
}

bh_bytes bytes_of(const bh__buffer *buffer)
{
    return (bh_bytes){buffer->data + buffer->begin, bh__buffer_size(buffer)};
}

/* The next `size` bytes, from *at on. */
static int next_bytes(bh_bytes wire, size_t *at, size_t size, bh_bytes *out)
{
    if (wire.size - *at < size)
        return 0;
    *out = (bh_bytes){wire.data + *at, size};
    *at += size;
    return 1;
}

/* The next length and the bytes that it counts, as one. */
static int next_counted(bh_bytes wire, size_t *at, size_t length_size, bh_bytes *out)
{
    bh_bytes length;
    size_t begin = *at;
    if (!next_bytes(wire, at, length_size, &length) ||
        !next_bytes(wire, at, (size_t)bh__get_number(length.data, length_size), out))
        return 0;
    *out = (bh_bytes){wire.data + begin, *at - begin};
    return 1;
}

static int next_value(bh_bytes wire, size_t *at, bh_bytes *out)
{
    static const char fixed[] = "VtbBsuIifDlLdT", sizes[] = {0, 1, 1, 1, 2, 2, 4, 4, 4, 5, 8, 8, 8, 8};
    bh_bytes type, value;
    if (!next_bytes(wire, at, 1, &type) || !*type.data)
        return 0;
    const char *found = strchr(fixed, *type.data);
    int is_there = found                        ? next_bytes(wire, at, (size_t)sizes[found - fixed], &value)
                   : strchr("SxAF", *type.data) ? next_counted(wire, at, 4, &value)
                                                : 0;
    *out = (bh_bytes){type.data, (size_t)(wire.data + *at - type.data)};
    return is_there;
}

static int read_headers(property_list *self, bh_bytes table)
{
    for (size_t at = 4; at < table.size;) {
        if (self->header_count == MOST_HEADERS)
            return 0;
        header_field *next = &self->headers[self->header_count++];
        if (!next_counted(table, &at, 1, &next->name) || !next_value(table, &at, &next->value))
            return 0;
        next->name = (bh_bytes){next->name.data + 1, next->name.size - 1};
    }
    return 1;
}

int property_list_read(property_list *self, bh_bytes wire)
{
    bh_bytes flags;
    size_t at = 0;
    self->header_count = 0;
    memset(self->values, 0, sizeof self->values);
    if (!next_bytes(wire, &at, 2, &flags) || (flags.data[1] & 3))
        return 0;
    for (int i = 0; i < BH_PROPERTY_LAST; i++) {
        if (!(bh__get_number(flags.data, 2) >> (15 - i) & 1))
            continue;
        int is_there = i == BH_PROPERTY_HEADERS ? next_counted(wire, &at, 4, &self->values[i])
                       : i == BH_PROPERTY_DELIVERY_MODE || i == BH_PROPERTY_PRIORITY
                           ? next_bytes(wire, &at, 1, &self->values[i])
                       : i == BH_PROPERTY_TIMESTAMP ? next_bytes(wire, &at, 8, &self->values[i])
                                                    : next_counted(wire, &at, 1, &self->values[i]);
        if (!is_there)
            return 0;
    }
    self->size = at;
    return !self->values[BH_PROPERTY_HEADERS].data || read_headers(self, self->values[BH_PROPERTY_HEADERS]);
}
