/*
 * Writes the properties of a copy as they are on the wire: AMQP 0-9-1, section 4.2.6.1, with
 * RabbitMQ's types of headers.
 */
#include "delivery/internal.h"
#include "plan/internal.h"

enum { TYPE_BYTES = 1, SHORT_LENGTH = 1, LONG_LENGTH = 4, MOST_PRIORITY = 255 };

static void put_type(bh__buffer *out, bh_type type)
{
    bh__put_number(out, (uint64_t)type, TYPE_BYTES);
}

static void put_string(bh__buffer *out, bh_bytes text)
{
    put_type(out, BH_TYPE_STRING);
    bh__put_counted(out, text, LONG_LENGTH);
}

int bh__plan_put_header(const bh_header *header, bh__buffer *out)
{
    bh_type type = header->type;
    bh_bytes text = header->string;
    bh__put_counted(out, header->name, SHORT_LENGTH);
    if (type == BH_TYPE_INT64) {
        put_type(out, type);
        bh__put_number(out, (uint64_t)header->integer, 8);
    } else if (type == BH_TYPE_ARRAY) {
        put_type(out, type);
        size_t start = bh__begin_counted(out, LONG_LENGTH);
        put_string(out, text);
        bh__end_counted(out, start, LONG_LENGTH);
    } else if (type == BH_TYPE_STRING) {
        put_string(out, text);
    }
    return type != BH_TYPE_VOID;
}

/* Writes values of a delivery. */
typedef struct writer {
    bh__buffer *out;
    const bh_delivery *delivery;
    bh__tree tree;
    int hidden; /* bits of bh_hidden */
} writer;

static bh_type type_of(const writer *self, const bh__node *node)
{
    if (node->type == BH_TYPE_STRING && self->hidden & BH_HIDDEN_BYTES)
        return bh__is_utf8(bh__store_get(self->tree.store, node->string)) ? BH_TYPE_STRING : BH_TYPE_BYTES;
    if (node->type != BH_TYPE_INT64 || !(self->hidden & BH_HIDDEN_WIDTHS))
        return node->type;
    if (node->number >= INT8_MIN && node->number <= INT8_MAX)
        return BH_TYPE_INT8;
    if (node->number >= INT16_MIN && node->number <= INT16_MAX)
        return BH_TYPE_INT16;
    return node->number >= INT32_MIN && node->number <= INT32_MAX ? BH_TYPE_INT32 : BH_TYPE_INT64;
}

/* Returns the bits of a float or double. */
static uint64_t real_bits(bh_type type, double real)
{
    uint64_t bits = 0;
    uint32_t half = 0;
    if (type == BH_TYPE_DOUBLE) {
        memcpy(&bits, &real, sizeof bits);
        return bits;
    }
    float small = (float)real;
    memcpy(&half, &small, sizeof half);
    return half;
}

/* Writes a value that is no table and no array. */
static void put_scalar(bh__buffer *out, bh_type type, const bh__node *node, bh_bytes string)
{
    switch (type) {
    case BH_TYPE_FLOAT:
    case BH_TYPE_DOUBLE:
        bh__put_number(out, real_bits(type, node->real), bh__value_bytes(type));
        break;
    case BH_TYPE_DECIMAL:
        bh__put_number(out, (uint64_t)node->places, 1);
        bh__put_number(out, (uint64_t)node->number, 4);
        break;
    case BH_TYPE_STRING:
    case BH_TYPE_BYTES:
        bh__put_counted(out, string, LONG_LENGTH);
        break;
    default:
        bh__put_number(out, (uint64_t)node->number, bh__value_bytes(type));
    }
}

/* Writes a value and its type. Recurses into tables and arrays, at most BH_DELIVERY_MAX_DEPTH
 * levels. */
static void put_value(const writer *self, size_t index)
{
    const bh__node *node = &self->tree.nodes[index];
    bh_type type = type_of(self, node);
    put_type(self->out, type);
    if (type != BH_TYPE_ARRAY && type != BH_TYPE_TABLE) {
        put_scalar(self->out, type, node, bh__store_get(self->tree.store, node->string));
        return;
    }
    size_t start = bh__begin_counted(self->out, LONG_LENGTH);
    for (size_t i = index + 1; i < node->end; i = self->tree.nodes[i].end) {
        if (type == BH_TYPE_TABLE)
            bh__put_counted(self->out, bh__store_get(self->tree.store, self->tree.nodes[i].name), SHORT_LENGTH);
        put_value(self, i);
    }
    bh__end_counted(self->out, start, LONG_LENGTH);
}

/* Writes type and value of the delivery's first header of this name; a void if it has none. */
static void put_value_of(const writer *self, bh_bytes name)
{
    const bh__node *node = bh__delivery_header(self->delivery, name);
    if (node)
        put_value(self, (size_t)(node - self->tree.nodes));
    else
        put_type(self->out, BH_TYPE_VOID);
}

static void put_headers(const writer *self, const bh_plan *plan)
{
    size_t start = bh__begin_counted(self->out, LONG_LENGTH);
    for (size_t i = 0; i < self->tree.count; i = self->tree.nodes[i].end) {
        bh_bytes name = bh__store_get(self->tree.store, self->tree.nodes[i].name);
        if (!bh_plan_keeps_header(plan, name))
            continue;
        bh__put_counted(self->out, name, SHORT_LENGTH);
        put_value(self, i);
    }
    bh_header header;
    for (size_t i = 0; bh_plan_header(plan, i, &header) == BH_OK; i++)
        if (!bh__plan_put_header(&header, self->out))
            put_value_of(self, header.source);
    bh__end_counted(self->out, start, LONG_LENGTH);
}

/* Returns 0 if the copy does not have the property. */
static int put_property(const writer *self, const bh_plan *plan, bh_bytes expiration, bh_property property)
{
    const bh_delivery *delivery = self->delivery;
    int is_kept = bh_plan_keeps_property(plan, property) && bh_delivery_has_property(delivery, property);
    if (property == BH_PROPERTY_HEADERS)
        put_headers(self, plan);
    else if (property == BH_PROPERTY_DELIVERY_MODE)
        bh__put_number(self->out, 2, 1);
    else if (property == BH_PROPERTY_EXPIRATION && expiration.size)
        bh__put_counted(self->out, expiration, SHORT_LENGTH);
    else if (is_kept && property == BH_PROPERTY_PRIORITY)
        bh__put_number(self->out, (uint64_t)bh_delivery_number(delivery, property), 1);
    else if (is_kept && property == BH_PROPERTY_TIMESTAMP)
        bh__put_number(self->out, (uint64_t)bh_delivery_number(delivery, property), 8);
    else if (is_kept)
        bh__put_counted(self->out, bh_delivery_property(delivery, property), SHORT_LENGTH);
    else
        return 0;
    return 1;
}

bh_bytes bh_plan_copy_properties(bh_plan *self, const bh_delivery *delivery, int hidden)
{
    int64_t priority = bh_delivery_number(delivery, BH_PROPERTY_PRIORITY);
    bh_copy copy;
    if (bh_plan_copy(self, &copy) != BH_OK || !delivery || bh__delivery_is_truncated(delivery) ||
        bh__delivery_is_open(delivery) || priority < 0 || priority > MOST_PRIORITY)
        return bh_str("");
    bh__buffer *out = bh__plan_buffer(self);
    if (!bh__buffer_reserve(out, bh__plan_copy_bytes(self, delivery)))
        return bh_str("");
    writer values = {out, delivery, bh__delivery_tree(delivery), hidden};
    unsigned flags = 0;
    bh__put_number(out, 0, 2);
    for (int property = 0; property < BH_PROPERTY_LAST; property++)
        if (put_property(&values, self, copy.expiration, (bh_property)property))
            flags |= 1U << (15 - property);
    size_t end = out->end;
    out->end = 0;
    bh__put_number(out, flags, 2);
    out->end = end;
    return (bh_bytes){out->data, end};
}
