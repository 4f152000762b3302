/* Properties: one table of kinds for reading and writing. */
#include "model/properties.h"

#include "model/table.h"

/* 's': a short string, 'F': a table, 'o': an octet, 'T': 64 bits. */
static const char kinds[MODEL_PROPERTY_COUNT + 1] = "ssFoossssTssss";

static unsigned flag_of(size_t property)
{
    return 0x8000u >> property;
}

/* Splits a value off. Returns 0 if it is malformed. */
static int take(bh_bytes *rest, char kind, bh_bytes *out)
{
    size_t prefix = kind == 's' ? 1 : kind == 'F' ? 4 : 0;
    if (rest->size < prefix)
        return 0;
    uint64_t size = prefix ? bh__get_number(rest->data, prefix) : kind == 'T' ? 8 : 1;
    if (rest->size - prefix < size)
        return 0;
    *out = (bh_bytes){rest->data + prefix, (size_t)size};
    rest->data += prefix + size;
    rest->size -= prefix + (size_t)size;
    return kind != 'F' || model_table_is_valid(*out);
}

int model_properties_read(model_properties *out, bh_bytes bytes)
{
    *out = (model_properties){.is_set = {0}};
    if (bytes.size < 2)
        return 0;
    unsigned flags = (unsigned)bh__get_number(bytes.data, 2);
    bh_bytes rest = {bytes.data + 2, bytes.size - 2};
    if (flags & 3) /* more flags, or a property that basic does not have */
        return 0;
    for (size_t i = 0; i < MODEL_PROPERTY_COUNT; i++) {
        out->is_set[i] = (flags & flag_of(i)) != 0;
        if (out->is_set[i] && !take(&rest, kinds[i], &out->value[i]))
            return 0;
    }
    return rest.size == 0;
}

int model_properties_write(bh__buffer *out, const model_properties *self)
{
    unsigned flags = 0;
    size_t size = 2;
    for (size_t i = 0; i < MODEL_PROPERTY_COUNT; i++)
        if (self->is_set[i]) {
            flags |= flag_of(i);
            size += 4 + self->value[i].size;
        }
    if (!bh__buffer_reserve(out, size))
        return 0;
    bh__put_number(out, flags, 2);
    for (size_t i = 0; i < MODEL_PROPERTY_COUNT; i++) {
        if (!self->is_set[i])
            continue;
        if (kinds[i] == 's' || kinds[i] == 'F')
            bh__put_counted(out, self->value[i], kinds[i] == 's' ? 1 : 4);
        else
            bh__put_bytes(out, self->value[i]);
    }
    return 1;
}
