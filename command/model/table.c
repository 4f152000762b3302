/* Table: reading, writing and merging. The tags are RabbitMQ's: s is a 16-bit integer, l and L have
 * 64 bits. */
#include "model/table.h"

#include <stdlib.h>

/* Returns the size of a value of a fixed size; 0 for others. */
static size_t fixed_size(char type)
{
    switch (type) {
    case 't':
    case 'b':
    case 'B':
        return 1;
    case 's':
    case 'u':
        return 2;
    case 'I':
    case 'i':
    case 'f':
        return 4;
    case 'D':
        return 5;
    case 'l':
    case 'L':
    case 'd':
    case 'T':
        return 8;
    default:
        return 0;
    }
}

/* Splits `size` bytes off. Returns 0 if there are fewer. */
static int take(bh_bytes *rest, size_t size, bh_bytes *out)
{
    if (rest->size < size)
        return 0;
    *out = (bh_bytes){rest->data, size};
    rest->data += size;
    rest->size -= size;
    return 1;
}

static int take_value(bh_bytes *rest, model_field *out)
{
    bh_bytes part;
    if (!take(rest, 1, &part))
        return 0;
    out->type = part.data[0];
    if (out->type == 'V')
        return take(rest, 0, &out->value);
    if (fixed_size(out->type))
        return take(rest, fixed_size(out->type), &out->value);
    if (!strchr("SxFA", out->type) || !out->type || !take(rest, 4, &part))
        return 0;
    return take(rest, bh__get_number(part.data, 4), &out->value);
}

int model_table_next(bh_bytes *rest, model_field *out)
{
    bh_bytes part;
    const char *start = rest->data;
    if (rest->size == 0)
        return 0;
    if (!take(rest, 1, &part) || !take(rest, (unsigned char)part.data[0], &out->name) || !take_value(rest, out))
        return -1;
    out->whole = (bh_bytes){start, (size_t)(rest->data - start)};
    return 1;
}

int model_array_next(bh_bytes *rest, model_field *out)
{
    const char *start = rest->data;
    if (rest->size == 0)
        return 0;
    out->name = bh_str("");
    if (!take_value(rest, out))
        return -1;
    out->whole = (bh_bytes){start, (size_t)(rest->data - start)};
    return 1;
}

int model_table_is_valid(bh_bytes table)
{
    model_field field;
    int is_there;
    while ((is_there = model_table_next(&table, &field)) > 0)
        ;
    return is_there == 0;
}

int model_table_find(bh_bytes table, const char *name, model_field *out)
{
    while (model_table_next(&table, out) > 0)
        if (bh__same(out->name, bh_str(name)))
            return 1;
    return 0;
}

int model_field_integer(const model_field *field, int64_t *out)
{
    if (!strchr("bBsuIilL", field->type) || !field->type)
        return 0;
    uint64_t number = bh__get_number(field->value.data, field->value.size);
    size_t bits = 8 * field->value.size;
    int is_signed = strchr("bsIlL", field->type) != NULL; /* RabbitMQ reads L as l */
    if (is_signed && bits < 64 && number >> (bits - 1))
        number |= UINT64_MAX << bits;
    *out = number > INT64_MAX ? -(int64_t)(UINT64_MAX - number) - 1 : (int64_t)number;
    return 1;
}

const char *model_field_type(const model_field *field)
{
    static const struct {
        char type;
        const char *name;
    } names[] = {{'S', "longstr"},      {'I', "signedint"},     {'D', "decimal"},    {'T', "timestamp"}, {'F', "table"},
                 {'A', "array"},        {'b', "byte"},          {'d', "double"},     {'f', "float"},     {'l', "long"},
                 {'L', "long"},         {'s', "short"},         {'t', "bool"},       {'x', "binary"},    {'V', "void"},
                 {'B', "unsignedbyte"}, {'u', "unsignedshort"}, {'i', "unsignedint"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].type == field->type)
            return names[i].name;
    return "unknown";
}

/* Appends a name, if there is one, and a tag, with room for `size` bytes more. */
static int put_head(bh__buffer *out, const char *name, char type, size_t size)
{
    bh_bytes text = bh_str(name);
    if (!bh__buffer_reserve(out, text.size + size + 2))
        return 0;
    if (name)
        bh__put_counted(out, text, 1);
    bh__put_number(out, (unsigned char)type, 1);
    return 1;
}

int model_put_string(bh__buffer *out, const char *name, bh_bytes value)
{
    if (!put_head(out, name, 'S', value.size + 4))
        return 0;
    bh__put_counted(out, value, 4);
    return 1;
}

static int put_integer(bh__buffer *out, const char *name, char type, uint64_t value, size_t size)
{
    if (!put_head(out, name, type, size))
        return 0;
    bh__put_number(out, value, size);
    return 1;
}

int model_put_long(bh__buffer *out, const char *name, int64_t value)
{
    return put_integer(out, name, 'l', (uint64_t)value, 8);
}

int model_put_boolean(bh__buffer *out, const char *name, int value)
{
    return put_integer(out, name, 't', value != 0, 1);
}

int model_put_timestamp(bh__buffer *out, const char *name, int64_t seconds)
{
    return put_integer(out, name, 'T', (uint64_t)seconds, 8);
}

int model_put_bytes(bh__buffer *out, bh_bytes bytes)
{
    if (!bh__buffer_reserve(out, bytes.size))
        return 0;
    bh__put_bytes(out, bytes);
    return 1;
}

size_t model_begin(bh__buffer *out, const char *name, char type)
{
    if (!put_head(out, name, type, 4))
        return 0;
    return bh__begin_counted(out, 4) - out->begin;
}

void model_end(bh__buffer *out, size_t start)
{
    bh__end_counted(out, start + out->begin, 4);
}

int model_put_item(bh__buffer *out, bh_bytes value)
{
    return model_put_string(out, NULL, value);
}

/* A field to be sorted: equal names keep their order. */
typedef struct sorted {
    model_field field;
    size_t position;
} sorted;

static int compare(const void *a, const void *b)
{
    const sorted *one = a, *other = b;
    bh_bytes first = one->field.name, second = other->field.name;
    size_t size = first.size < second.size ? first.size : second.size;
    int order = size ? memcmp(first.data, second.data, size) : 0;
    if (order == 0 && first.size != second.size)
        order = first.size < second.size ? -1 : 1;
    return order ? order : (one->position > other->position) - (one->position < other->position);
}

static size_t count_fields(bh_bytes table)
{
    model_field field;
    size_t count = 0;
    while (model_table_next(&table, &field) > 0)
        count++;
    return count;
}

/* Makes 64-bit unsigned integers signed, as RabbitMQ does with the tables that it writes, in nested
 * tables too. A table deeper than the stack of places here stays as it is. */
static void sign(char *data, size_t size)
{
    enum { MOST_DEPTH = 32 };
    struct {
        bh_bytes rest;
        int is_array;
    } stack[MOST_DEPTH] = {{{data, size}, 0}};
    int depth = 1;
    while (depth > 0) {
        model_field field;
        bh_bytes *rest = &stack[depth - 1].rest;
        int is_array = stack[depth - 1].is_array;
        if ((is_array ? model_array_next(rest, &field) : model_table_next(rest, &field)) <= 0) {
            depth--;
            continue;
        }
        if (field.type == 'L')
            data[field.value.data - 1 - data] = 'l';
        if ((field.type == 'F' || field.type == 'A') && depth < MOST_DEPTH) {
            stack[depth].rest = field.value;
            stack[depth++].is_array = field.type == 'A';
        }
    }
}

int model_table_merge(bh__buffer *out, bh_bytes first, bh_bytes second, int is_set)
{
    size_t count = count_fields(first) + count_fields(second), used = 0;
    sorted *fields = malloc((count + 1) * sizeof *fields);
    if (!fields || !bh__buffer_reserve(out, first.size + second.size)) {
        free(fields);
        return 0;
    }
    while (used < count && model_table_next(&first, &fields[used].field) > 0)
        fields[used].position = used, used++;
    while (used < count && model_table_next(&second, &fields[used].field) > 0)
        fields[used].position = used, used++;
    qsort(fields, used, sizeof *fields, compare);
    size_t start = out->end;
    for (size_t i = 0; i < used; i++)
        if (!is_set || i == 0 || !bh__same(fields[i].field.name, fields[i - 1].field.name))
            bh__put_bytes(out, fields[i].field.whole);
    if (out->end > start)
        sign(out->data + start, out->end - start);
    free(fields);
    return 1;
}
