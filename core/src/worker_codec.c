#include "worker_codec.h"

#include "memory.h"

#include <stdlib.h>

/* A table or array that is being walked. */
typedef struct level {
    const amqp_table_entry_t *entries; /* of a table */
    const amqp_field_value_t *values;  /* of an array */
    int count;
    int next;
} level;

static level table_level(const amqp_table_t *table)
{
    return (level){.entries = table->entries, .count = table->entries ? table->num_entries : 0};
}

static level array_level(const amqp_array_t *array)
{
    return (level){.values = array->entries, .count = array->entries ? array->num_entries : 0};
}

/* Everything but tables and arrays. */
static bh_status push_scalar(bh_delivery *out, bh_bytes name, const amqp_field_value_t *field)
{
    switch (field->kind) {
    case AMQP_FIELD_KIND_BOOLEAN:
        return bh_delivery_push_int(out, name, BH_TYPE_BOOLEAN, field->value.boolean);
    case AMQP_FIELD_KIND_I8:
        return bh_delivery_push_int(out, name, BH_TYPE_INT8, field->value.i8);
    case AMQP_FIELD_KIND_U8:
        return bh_delivery_push_int(out, name, BH_TYPE_UINT8, field->value.u8);
    case AMQP_FIELD_KIND_I16:
        return bh_delivery_push_int(out, name, BH_TYPE_INT16, field->value.i16);
    case AMQP_FIELD_KIND_U16:
        return bh_delivery_push_int(out, name, BH_TYPE_UINT16, field->value.u16);
    case AMQP_FIELD_KIND_I32:
        return bh_delivery_push_int(out, name, BH_TYPE_INT32, field->value.i32);
    case AMQP_FIELD_KIND_U32:
        return bh_delivery_push_int(out, name, BH_TYPE_UINT32, field->value.u32);
    case AMQP_FIELD_KIND_I64:
        return bh_delivery_push_int(out, name, BH_TYPE_INT64, field->value.i64);
    case AMQP_FIELD_KIND_U64: /* above 2^63 - 1 it turns negative: absurd either way */
        return bh_delivery_push_int(out, name, BH_TYPE_UINT64, (int64_t)field->value.u64);
    case AMQP_FIELD_KIND_TIMESTAMP:
        return bh_delivery_push_int(out, name, BH_TYPE_TIMESTAMP, (int64_t)field->value.u64);
    case AMQP_FIELD_KIND_F32:
        return bh_delivery_push_float(out, name, BH_TYPE_FLOAT, (double)field->value.f32);
    case AMQP_FIELD_KIND_F64:
        return bh_delivery_push_float(out, name, BH_TYPE_DOUBLE, field->value.f64);
    case AMQP_FIELD_KIND_DECIMAL:
        return bh_delivery_push_decimal(out, name, field->value.decimal.decimals, field->value.decimal.value);
    case AMQP_FIELD_KIND_UTF8:
        return bh_delivery_push_string(out, name, BH_TYPE_STRING, bh__from_amqp(field->value.bytes));
    case AMQP_FIELD_KIND_BYTES:
        return bh_delivery_push_string(out, name, BH_TYPE_BYTES, bh__from_amqp(field->value.bytes));
    default:
        return bh_delivery_push_void(out, name);
    }
}

/* Walks with a stack of its own: a stranger's nesting is bounded by memory alone. */
static bh_status push_headers(bh_delivery *out, const amqp_table_t *headers)
{
    level *open = NULL;
    size_t capacity = 0;
    size_t depth = 0;
    level current = table_level(headers);
    bh_status status = BH_OK;
    while (status == BH_OK) {
        if (current.next == current.count) {
            if (depth == 0)
                break;
            status = bh_delivery_end(out);
            current = open[--depth];
            continue;
        }
        int index = current.next++;
        const amqp_field_value_t *field = current.entries ? &current.entries[index].value : &current.values[index];
        bh_bytes name = current.entries ? bh__from_amqp(current.entries[index].key) : bh_str("");
        int is_table = field->kind == AMQP_FIELD_KIND_TABLE;
        if (!is_table && field->kind != AMQP_FIELD_KIND_ARRAY) {
            status = push_scalar(out, name, field);
            continue;
        }
        status = is_table ? bh_delivery_begin_table(out, name) : bh_delivery_begin_array(out, name);
        void *levels = open;
        if (status == BH_OK && !bh__reserve(&levels, &capacity, sizeof *open, depth + 1))
            status = BH_ERR_NO_MEMORY;
        open = levels;
        if (status == BH_OK) {
            open[depth++] = current;
            current = is_table ? table_level(&field->value.table) : array_level(&field->value.array);
        }
    }
    free(open);
    return status;
}

/* The string properties: each one's flag and place. */
#define STRINGS(X)                                                                                                     \
    X(BH_PROPERTY_CONTENT_TYPE, AMQP_BASIC_CONTENT_TYPE_FLAG, content_type)                                            \
    X(BH_PROPERTY_CONTENT_ENCODING, AMQP_BASIC_CONTENT_ENCODING_FLAG, content_encoding)                                \
    X(BH_PROPERTY_CORRELATION_ID, AMQP_BASIC_CORRELATION_ID_FLAG, correlation_id)                                      \
    X(BH_PROPERTY_REPLY_TO, AMQP_BASIC_REPLY_TO_FLAG, reply_to)                                                        \
    X(BH_PROPERTY_EXPIRATION, AMQP_BASIC_EXPIRATION_FLAG, expiration)                                                  \
    X(BH_PROPERTY_MESSAGE_ID, AMQP_BASIC_MESSAGE_ID_FLAG, message_id)                                                  \
    X(BH_PROPERTY_TYPE, AMQP_BASIC_TYPE_FLAG, type)                                                                    \
    X(BH_PROPERTY_USER_ID, AMQP_BASIC_USER_ID_FLAG, user_id)                                                           \
    X(BH_PROPERTY_APP_ID, AMQP_BASIC_APP_ID_FLAG, app_id)                                                              \
    X(BH_PROPERTY_CLUSTER_ID, AMQP_BASIC_CLUSTER_ID_FLAG, cluster_id)

#define NUMBERS(X)                                                                                                     \
    X(BH_PROPERTY_DELIVERY_MODE, AMQP_BASIC_DELIVERY_MODE_FLAG, delivery_mode)                                         \
    X(BH_PROPERTY_PRIORITY, AMQP_BASIC_PRIORITY_FLAG, priority)                                                        \
    X(BH_PROPERTY_TIMESTAMP, AMQP_BASIC_TIMESTAMP_FLAG, timestamp)

bh_status bh__decode(bh_delivery *out, amqp_bytes_t exchange, amqp_bytes_t routing_key,
                     const amqp_basic_properties_t *properties)
{
    bh_delivery_clear(out);
    bh_status status = bh_delivery_set_exchange(out, bh__from_amqp(exchange));
    if (status == BH_OK)
        status = bh_delivery_set_routing_key(out, bh__from_amqp(routing_key));
#define SET_STRING(property, flag, place)                                                                              \
    if (status == BH_OK && (properties->_flags & (flag)))                                                              \
        status = bh_delivery_set_property(out, property, bh__from_amqp(properties->place));
    STRINGS(SET_STRING)
#undef SET_STRING
#define SET_NUMBER(property, flag, place)                                                                              \
    if (status == BH_OK && (properties->_flags & (flag)))                                                              \
        status = bh_delivery_set_number(out, property, (int64_t)properties->place);
    NUMBERS(SET_NUMBER)
#undef SET_NUMBER
    if (status == BH_OK && (properties->_flags & AMQP_BASIC_HEADERS_FLAG))
        status = push_headers(out, &properties->headers);
    return status;
}

/* The first header of this name, as the delivery has it; void where there is none. */
static amqp_field_value_t found(const amqp_table_t *headers, bh_bytes name)
{
    for (int i = 0; i < headers->num_entries; i++)
        if (bh__same(bh__from_amqp(headers->entries[i].key), name))
            return headers->entries[i].value;
    return (amqp_field_value_t){.kind = AMQP_FIELD_KIND_VOID};
}

static amqp_field_value_t string_field(bh_bytes text)
{
    amqp_field_value_t field = {.kind = AMQP_FIELD_KIND_UTF8};
    field.value.bytes = bh__to_amqp(text);
    return field;
}

/* A header that the plan sets; `element` is room for the one element of an array. */
static amqp_field_value_t plan_field(const bh_plan *plan, size_t index, const amqp_table_t *headers,
                                     amqp_field_value_t *element)
{
    amqp_field_value_t field = {.kind = AMQP_FIELD_KIND_VOID};
    bh_bytes text = bh_plan_header_string(plan, index);
    switch (bh_plan_header_type(plan, index)) {
    case BH_TYPE_STRING:
        return string_field(text);
    case BH_TYPE_INT64:
        field.kind = AMQP_FIELD_KIND_I64;
        field.value.i64 = bh_plan_header_int(plan, index);
        return field;
    case BH_TYPE_ARRAY:
        *element = string_field(text);
        field.kind = AMQP_FIELD_KIND_ARRAY;
        field.value.array = (amqp_array_t){1, element};
        return field;
    default:
        return found(headers, bh_plan_header_source(plan, index));
    }
}

bh_status bh__encode(bh__copy *self, const bh_plan *plan, const amqp_basic_properties_t *original)
{
    const amqp_table_t none = {0, NULL};
    const amqp_table_t *headers = original->_flags & AMQP_BASIC_HEADERS_FLAG ? &original->headers : &none;
    size_t set = bh_plan_header_count(plan);
    if (!bh__reserve(&self->entries, &self->capacity, sizeof(amqp_table_entry_t), (size_t)headers->num_entries + set) ||
        !bh__reserve(&self->elements, &self->element_capacity, sizeof(amqp_field_value_t), set))
        return BH_ERR_NO_MEMORY;
    amqp_table_entry_t *entries = self->entries;
    amqp_field_value_t *elements = self->elements;
    int count = 0;
    for (int i = 0; i < headers->num_entries; i++)
        if (bh_plan_keeps_header(plan, bh__from_amqp(headers->entries[i].key)))
            entries[count++] = headers->entries[i];
    for (size_t i = 0; i < set; i++, count++) {
        entries[count].key = bh__to_amqp(bh_plan_header_name(plan, i));
        entries[count].value = plan_field(plan, i, headers, &elements[i]);
    }

    amqp_basic_properties_t *copy = &self->properties;
    *copy = *original;
#define KEEP(property, flag, place)                                                                                    \
    if (!bh_plan_keeps_property(plan, property))                                                                       \
        copy->_flags &= ~(amqp_flags_t)(flag);
    STRINGS(KEEP)
    NUMBERS(KEEP)
#undef KEEP
    copy->_flags |= AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG;
    copy->headers = (amqp_table_t){count, entries};
    copy->delivery_mode = 2;
    bh_bytes expiration = bh_plan_expiration(plan);
    if (expiration.size) {
        copy->_flags |= AMQP_BASIC_EXPIRATION_FLAG;
        copy->expiration = bh__to_amqp(expiration);
    }
    return BH_OK;
}

void bh__copy_free(bh__copy *self)
{
    free(self->entries);
    free(self->elements);
}
