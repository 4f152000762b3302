#include "worker/wire/content.h"

#include "delivery/internal.h"
#include "plan/internal.h"

/* The properties on the wire: strings without their length, the headers without theirs. data
 * NULL: absent. */
typedef struct content {
    bh_bytes values[BH_PROPERTY_LAST];
} content;

enum { TIMESTAMP_BYTES = 8, TYPE_BYTES = 1, LENGTH_BYTES = 4, MOST_LEVELS = 16 };

/* A part of the wire, and how far it is read. */
typedef struct reader {
    const char *at;
    const char *end;
} reader;

static size_t bytes_left(const reader *self)
{
    return (size_t)(self->end - self->at);
}

/* Reads the next `size` bytes. Returns 0 if there are fewer. */
static int take_bytes(reader *self, size_t size, bh_bytes *out)
{
    if (bytes_left(self) < size)
        return 0;
    *out = (bh_bytes){self->at, size};
    self->at += size;
    return 1;
}

/* Bytes behind a length of `length_size` bytes. */
static int take_counted(reader *self, size_t length_size, bh_bytes *out)
{
    bh_bytes length;
    return take_bytes(self, length_size, &length) &&
           take_bytes(self, (size_t)bh__get_number(length.data, length_size), out);
}

static int is_present(unsigned flags, int property)
{
    return (flags & 1u << (15 - property)) != 0; /* in order, from the highest bit */
}

static int parse_properties(content *self, bh_bytes properties)
{
    reader wire = {properties.data, properties.data + properties.size};
    bh_bytes bytes;
    memset(self, 0, sizeof *self);
    if (!take_bytes(&wire, 2, &bytes))
        return 0;
    unsigned flags = (unsigned)bh__get_number(bytes.data, 2);
    if (flags & 3u) /* no such property; further flags */
        return 0;
    for (int property = 0; property < BH_PROPERTY_LAST; property++) {
        if (!is_present(flags, property))
            continue;
        int is_there = 0;
        switch (property) {
        case BH_PROPERTY_DELIVERY_MODE:
        case BH_PROPERTY_PRIORITY:
            is_there = take_bytes(&wire, 1, &bytes);
            break;
        case BH_PROPERTY_TIMESTAMP:
            is_there = take_bytes(&wire, TIMESTAMP_BYTES, &bytes);
            break;
        case BH_PROPERTY_HEADERS:
            is_there = take_counted(&wire, LENGTH_BYTES, &bytes);
            break;
        default:
            is_there = take_counted(&wire, 1, &bytes);
        }
        if (!is_there)
            return 0;
        self->values[property] = bytes;
    }
    return 1;
}

/* A field's value without its type; tables, arrays, strings and bytes without their length. */
static int take_value(reader *self, bh_type type, bh_bytes *out)
{
    switch (type) {
    case BH_TYPE_STRING:
    case BH_TYPE_BYTES:
    case BH_TYPE_ARRAY:
    case BH_TYPE_TABLE:
        return take_counted(self, LENGTH_BYTES, out);
    default:
        return (type == BH_TYPE_VOID || bh__value_bytes(type) > 0) && take_bytes(self, bh__value_bytes(type), out);
    }
}

typedef struct field {
    bh_bytes name; /* "" in an array */
    bh_type type;
    bh_bytes value;
    bh_bytes whole; /* type and value as they lie */
} field;

/* Reads the next field of a table or array. */
static int take_field(reader *self, int is_array, field *out)
{
    bh_bytes type;
    out->name = bh_str("");
    if (!is_array && !take_counted(self, 1, &out->name))
        return 0;
    if (!take_bytes(self, TYPE_BYTES, &type))
        return 0;
    out->type = (bh_type)(unsigned char)*type.data;
    if (!take_value(self, out->type, &out->value))
        return 0;
    out->whole = (bh_bytes){type.data, (size_t)(self->at - type.data)};
    return 1;
}

/* Finds the first header of this name. */
static int find_header(const content *self, bh_bytes name, field *out)
{
    bh_bytes headers = self->values[BH_PROPERTY_HEADERS];
    if (!headers.data)
        return 0;
    reader wire = {headers.data, headers.data + headers.size};
    while (bytes_left(&wire) > 0 && take_field(&wire, 0, out))
        if (bh__same(out->name, name))
            return 1;
    return 0;
}

static int64_t field_integer(const field *self)
{
    uint64_t bits = bh__get_number(self->value.data, self->value.size);
    switch (self->type) {
    case BH_TYPE_INT8:
        return (int8_t)bits;
    case BH_TYPE_INT16:
        return (int16_t)bits;
    case BH_TYPE_INT32:
        return (int32_t)bits;
    default:
        return (int64_t)bits; /* above 2^63 - 1 it turns negative: absurd either way */
    }
}

static double field_real(const field *self)
{
    uint64_t bits = bh__get_number(self->value.data, self->value.size);
    uint32_t half = (uint32_t)bits;
    float small;
    double large;
    memcpy(&small, &half, sizeof small);
    memcpy(&large, &bits, sizeof large);
    return self->type == BH_TYPE_FLOAT ? (double)small : large;
}

/* Reads a value that is neither a table nor an array. */
static bh_status push_scalar(bh_delivery *out, const field *self)
{
    switch (self->type) {
    case BH_TYPE_FLOAT:
    case BH_TYPE_DOUBLE:
        return bh_delivery_push(out, &(bh_value){.type = self->type, .name = self->name, .number = field_real(self)});
    case BH_TYPE_STRING:
    case BH_TYPE_BYTES:
        return bh_delivery_push(out, &(bh_value){.type = self->type, .name = self->name, .string = self->value});
    case BH_TYPE_DECIMAL:
        return bh_delivery_push(out, &(bh_value){.type = BH_TYPE_DECIMAL,
                                                 .name = self->name,
                                                 .integer = (int64_t)bh__get_number(self->value.data + 1, 4),
                                                 .places = (int)bh__get_number(self->value.data, 1)});
    case BH_TYPE_VOID:
        return bh_delivery_push(out, &(bh_value){.type = BH_TYPE_VOID, .name = self->name});
    default:
        return bh_delivery_push(out,
                                &(bh_value){.type = self->type, .name = self->name, .integer = field_integer(self)});
    }
}

/* A table or array, and how far it is read. */
typedef struct level {
    reader wire;
    int is_array;
} level;

/* Walks with a stack of its own: only the frame limits how deep untrusted headers nest. */
static bh_status push_headers(bh_delivery *out, bh_bytes headers)
{
    level *open = NULL;
    size_t capacity = 0, depth = 0;
    level current = {{headers.data, headers.data + headers.size}, 0};
    bh_status status = BH_OK;
    while (status == BH_OK) {
        field next;
        if (bytes_left(&current.wire) == 0) {
            if (depth == 0)
                break;
            status = bh_delivery_end(out);
            current = open[--depth];
            continue;
        }
        if (!take_field(&current.wire, current.is_array, &next)) {
            status = BH_ERR_CONTENT;
            break;
        }
        int is_array = next.type == BH_TYPE_ARRAY;
        if (!is_array && next.type != BH_TYPE_TABLE) {
            status = push_scalar(out, &next);
            continue;
        }
        status = bh_delivery_push(out, &(bh_value){.type = next.type, .name = next.name});
        void *levels = open;
        if (status == BH_OK && !bh__reserve(&levels, &capacity, sizeof *open, depth + 1))
            status = BH_ERR_NO_MEMORY;
        open = levels;
        if (status == BH_OK) {
            open[depth++] = current;
            current = (level){{next.value.data, next.value.data + next.value.size}, is_array};
        }
    }
    free(open);
    return status;
}

int bh__content_is_shallow(bh_bytes fields)
{
    level open[MOST_LEVELS];
    size_t depth = 0;
    level current = {{fields.data, fields.data + fields.size}, 0};
    for (field next;;) {
        if (bytes_left(&current.wire) == 0) {
            if (depth == 0)
                return 1;
            current = open[--depth];
            continue;
        }
        if (!take_field(&current.wire, current.is_array, &next))
            return 0;
        if (next.type != BH_TYPE_ARRAY && next.type != BH_TYPE_TABLE)
            continue;
        if (depth == MOST_LEVELS)
            return 0;
        open[depth++] = current;
        current = (level){{next.value.data, next.value.data + next.value.size}, next.type == BH_TYPE_ARRAY};
    }
}

static bh_status push_property(bh_delivery *out, bh_property property, bh_bytes value)
{
    switch (property) {
    case BH_PROPERTY_HEADERS:
        return push_headers(out, value);
    case BH_PROPERTY_DELIVERY_MODE:
    case BH_PROPERTY_PRIORITY:
    case BH_PROPERTY_TIMESTAMP:
        return bh_delivery_set_number(out, property, (int64_t)bh__get_number(value.data, value.size));
    default:
        return bh_delivery_set_property(out, property, value);
    }
}

bh_status bh__content_read(bh_delivery *out, bh_bytes exchange, bh_bytes routing_key, bh_bytes properties)
{
    content wire;
    bh_delivery_clear(out);
    bh_status status = parse_properties(&wire, properties) ? BH_OK : BH_ERR_CONTENT;
    if (status == BH_OK)
        status = bh_delivery_set_address(out, exchange, routing_key);
    for (int property = 0; status == BH_OK && property < BH_PROPERTY_LAST; property++)
        if (wire.values[property].data)
            status = push_property(out, (bh_property)property, wire.values[property]);
    return status;
}

bh_bytes bh__content_string(bh_bytes properties, const char *name)
{
    content wire;
    field found;
    int is_there =
        parse_properties(&wire, properties) && find_header(&wire, bh_str(name), &found) && found.type == BH_TYPE_STRING;
    return is_there ? found.value : bh_str("");
}

int64_t bh__content_integer(bh_bytes properties, const char *name)
{
    content wire;
    field found;
    int is_there =
        parse_properties(&wire, properties) && find_header(&wire, bh_str(name), &found) && found.type == BH_TYPE_INT64;
    return is_there ? field_integer(&found) : -1;
}

/* ------------------------------------------------------------------------------ the fingerprint */

static int counts_deliveries(bh_bytes header)
{
    return bh__same(header, bh_str("x-delivery-count")) || bh__same(header, bh_str("x-acquired-count"));
}

static int has_id(const content *self)
{
    field id;
    return self->values[BH_PROPERTY_MESSAGE_ID].size > 0 ||
           (find_header(self, bh_str("backhop-id"), &id) && id.type == BH_TYPE_STRING && id.value.size > 0);
}

/* The broker writes the headers again if it adds one, perhaps in another order. */
static uint64_t fingerprint_headers(bh__siphash_key key, bh_bytes headers)
{
    reader wire = {headers.data, headers.data + headers.size};
    uint64_t sum = 0;
    field next;
    while (bytes_left(&wire) > 0 && take_field(&wire, 0, &next)) {
        const uint64_t parts[] = {bh__siphash(key, next.name), bh__siphash(key, next.whole)};
        if (!counts_deliveries(next.name))
            sum += bh__siphash(key, (bh_bytes){(const char *)parts, sizeof parts});
    }
    return sum;
}

uint64_t bh__content_fingerprint(bh__siphash_key key, bh_bytes exchange, bh_bytes routing_key, bh_bytes properties,
                                 bh_bytes body)
{
    content wire;
    uint64_t parts[BH_PROPERTY_LAST + 3];
    size_t count = 0;
    if (!parse_properties(&wire, properties) || !has_id(&wire))
        return 0;
    for (int property = 0; property < BH_PROPERTY_LAST; property++) {
        bh_bytes value = wire.values[property];
        parts[count++] = !value.data                       ? 0
                         : property == BH_PROPERTY_HEADERS ? fingerprint_headers(key, value)
                                                           : bh__siphash(key, value);
    }
    parts[count++] = bh__siphash(key, exchange);
    parts[count++] = bh__siphash(key, routing_key);
    parts[count++] = bh__siphash(key, body);
    uint64_t sum = bh__siphash(key, (bh_bytes){(const char *)parts, sizeof parts});
    return sum ? sum : 1;
}

/* ------------------------------------------------------------------------------------- the copy */

enum { HEADER_ROOM = 255 + 32 }; /* of a header that the plan sets: its name, and all but its string */

/* Writes a header that the plan sets. */
static void put_header(bh__buffer *out, const bh_header *header, const content *original)
{
    field source;
    if (bh__plan_put_header(header, out))
        return;
    if (find_header(original, header->source, &source))
        bh__put_bytes(out, source.whole);
    else
        bh__put_number(out, BH_TYPE_VOID, TYPE_BYTES);
}

static void put_headers(bh__buffer *out, const bh_plan *plan, const content *original)
{
    bh_bytes headers = original->values[BH_PROPERTY_HEADERS];
    reader wire = {headers.data, headers.data ? headers.data + headers.size : NULL};
    size_t start = bh__begin_counted(out, LENGTH_BYTES);
    field kept;
    while (wire.at != wire.end && take_field(&wire, 0, &kept)) {
        if (!bh_plan_keeps_header(plan, kept.name))
            continue;
        bh__put_counted(out, kept.name, 1);
        bh__put_bytes(out, kept.whole);
    }
    bh_header header;
    for (size_t i = 0; bh_plan_header(plan, i, &header) == BH_OK; i++)
        put_header(out, &header, original);
    bh__end_counted(out, start, LENGTH_BYTES);
}

/* Returns an upper bound of the bytes of the copy's properties. */
static size_t most_bytes(const bh_plan *plan, const content *original, bh_bytes properties)
{
    size_t most = 2 * properties.size + 512;
    bh_header header;
    for (size_t i = 0; bh_plan_header(plan, i, &header) == BH_OK; i++) {
        field source;
        most += HEADER_ROOM + header.string.size;
        if (header.type == BH_TYPE_VOID && find_header(original, header.source, &source))
            most += source.whole.size;
    }
    return most;
}

/* Writes a property as it arrived. */
static void put_property(bh__buffer *out, int property, bh_bytes value)
{
    if (property == BH_PROPERTY_PRIORITY || property == BH_PROPERTY_TIMESTAMP || property == BH_PROPERTY_DELIVERY_MODE)
        bh__put_bytes(out, value);
    else
        bh__put_counted(out, value, 1);
}

static void put_flags(bh__buffer *out, size_t at, unsigned flags)
{
    size_t end = out->end;
    out->end = at;
    bh__put_number(out, flags, 2);
    out->end = end;
}

bh_status bh__content_copy(bh__buffer *out, const bh_plan *plan, bh_bytes properties)
{
    content original;
    if (!parse_properties(&original, properties))
        return BH_ERR_CONTENT;
    if (!bh__buffer_reserve(out, most_bytes(plan, &original, properties)))
        return BH_ERR_NO_MEMORY;
    bh_copy copy;
    bh_plan_copy(plan, &copy);
    unsigned flags = 0;
    size_t flags_at = out->end;
    bh__put_number(out, 0, 2);
    for (int property = 0; property < BH_PROPERTY_LAST; property++) {
        bh_bytes value = original.values[property];
        int is_set = 1;
        if (property == BH_PROPERTY_HEADERS) {
            put_headers(out, plan, &original);
        } else if (property == BH_PROPERTY_DELIVERY_MODE) {
            bh__put_number(out, 2, 1);
        } else if (property == BH_PROPERTY_EXPIRATION && copy.expiration.size) {
            bh__put_counted(out, copy.expiration, 1);
        } else if (value.data && bh_plan_keeps_property(plan, (bh_property)property)) {
            put_property(out, property, value);
        } else {
            is_set = 0;
        }
        flags |= (unsigned)is_set << (15 - property);
    }
    put_flags(out, flags_at, flags);
    return BH_OK;
}

/* --------------------------------------------------------------- published again by an operator */

static int is_of_the_route(bh_bytes header)
{
    return bh__same(header, bh_str("CC")) || bh__same(header, bh_str("BCC")) || bh__same(header, bh_str("x-delay")) ||
           counts_deliveries(header);
}

static void put_stripped_headers(bh__buffer *out, bh_bytes headers)
{
    reader wire = {headers.data, headers.data + headers.size};
    size_t start = bh__begin_counted(out, LENGTH_BYTES);
    field each;
    while (wire.at != wire.end && take_field(&wire, 0, &each)) {
        if (is_of_the_route(each.name))
            continue;
        bh__put_counted(out, each.name, 1);
        bh__put_bytes(out, each.whole);
    }
    bh__end_counted(out, start, LENGTH_BYTES);
}

bh_status bh__content_strip(bh__buffer *out, bh_bytes properties)
{
    content original;
    if (!parse_properties(&original, properties))
        return BH_ERR_CONTENT;
    if (!bh__buffer_reserve(out, properties.size))
        return BH_ERR_NO_MEMORY;
    unsigned flags = 0;
    size_t flags_at = out->end;
    bh__put_number(out, 0, 2);
    for (int property = 0; property < BH_PROPERTY_LAST; property++) {
        bh_bytes value = original.values[property];
        if (!value.data || property == BH_PROPERTY_EXPIRATION || property == BH_PROPERTY_USER_ID)
            continue;
        if (property == BH_PROPERTY_HEADERS)
            put_stripped_headers(out, value);
        else
            put_property(out, property, value);
        flags |= 1u << (15 - property);
    }
    put_flags(out, flags_at, flags);
    return BH_OK;
}
