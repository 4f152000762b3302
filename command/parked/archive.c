#include "parked/archive.h"

#include "common/output.h"
#include "plan/internal.h"
#include "delivery/internal.h"

#include <backhop/adapter/delivery.h>
#include <stdarg.h>
#include <stdio.h>

static const char *const properties_by_name[BH_PROPERTY_LAST] = {
    "content-type", "content-encoding", "headers",   "delivery-mode", "priority", "correlation-id", "reply-to",
    "expiration",   "message-id",       "timestamp", "type",          "user-id",  "app-id",         "cluster-id"};

static int is_number(int property)
{
    return property == BH_PROPERTY_DELIVERY_MODE || property == BH_PROPERTY_PRIORITY ||
           property == BH_PROPERTY_TIMESTAMP;
}

/* --------------------------------------------------------------------------------------- base64 */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

json_t *archive_base64(bh_bytes bytes)
{
    char *out = must(malloc(bytes.size / 3 * 4 + 8));
    size_t used = 0;
    for (size_t i = 0; i < bytes.size; i += 3) {
        size_t have = bytes.size - i < 3 ? bytes.size - i : 3;
        unsigned char in[3] = {0, 0, 0};
        memcpy(in, bytes.data + i, have);
        out[used++] = digits[in[0] >> 2];
        out[used++] = digits[(in[0] & 3) << 4 | in[1] >> 4];
        out[used++] = (char)(have > 1 ? digits[(in[1] & 15) << 2 | in[2] >> 6] : '=');
        out[used++] = (char)(have > 2 ? digits[in[2] & 63] : '=');
    }
    json_t *text = must(json_stringn(out, used));
    free(out);
    return text;
}

static int digit_of(char character)
{
    const char *at = character ? strchr(digits, character) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Appends the bytes. Returns false if the text is no base64. */
static int put_base64(bh__buffer *out, const json_t *text)
{
    const char *in = json_string_value(text);
    size_t size = json_string_length(text);
    if (!json_is_string(text) || size % 4 != 0)
        return 0;
    if (!bh__buffer_reserve(out, size + 1))
        must(NULL);
    for (size_t i = 0; i < size; i += 4) {
        int a = digit_of(in[i]), b = digit_of(in[i + 1]), c = digit_of(in[i + 2]), d = digit_of(in[i + 3]);
        int is_last = i + 4 == size, pads = is_last ? (in[i + 3] == '=') + (in[i + 2] == '=' && in[i + 3] == '=') : 0;
        if (a < 0 || b < 0 || (c < 0 && pads < 2) || (d < 0 && pads < 1))
            return 0;
        uint64_t bits =
            (uint64_t)a << 18 | (uint64_t)b << 12 | (uint64_t)(c < 0 ? 0 : c) << 6 | (uint64_t)(d < 0 ? 0 : d);
        bh__put_number(out, bits >> 8 * pads, (size_t)(3 - pads));
    }
    return 1;
}

/* -------------------------------------------------------------------------------------- writing */

static json_t *text_value(bh_bytes text)
{
    json_t *value = json_stringn(text.data, text.size);
    return value ? value : must(json_pack("{s:o}", "base64", archive_base64(text)));
}

static json_t *value_of(const bh_delivery *delivery, size_t index, const bh_value *value);

static json_t *list_of(const bh_delivery *delivery, size_t from, size_t to, int is_array)
{
    json_t *list = must(json_array());
    bh_value value;
    for (size_t i = from; i < to; i = value.end) {
        bh_delivery_value(delivery, i, &value);
        char type[2] = {(char)value.type, '\0'};
        json_t *item = must(json_array());
        if (!is_array)
            json_array_append_new(item, text_value(value.name));
        json_array_append_new(item, json_string(type));
        json_array_append_new(item, value_of(delivery, i, &value));
        json_array_append_new(list, item);
    }
    return list;
}

/* Recursion is bounded: a delivery keeps BH_DELIVERY_MAX_DEPTH levels. */
static json_t *value_of(const bh_delivery *delivery, size_t index, /* NOLINT(misc-no-recursion) */
                        const bh_value *value)
{
    switch (value->type) {
    case BH_TYPE_FLOAT:
    case BH_TYPE_DOUBLE: {
        json_t *real = json_real(value->number);
        return real ? real : json_null(); /* not a number: "wire" has it */
    }
    case BH_TYPE_STRING:
        return text_value(value->string);
    case BH_TYPE_BYTES:
        return must(json_pack("{s:o}", "base64", archive_base64(value->string)));
    case BH_TYPE_DECIMAL:
        return must(json_pack("[i, I]", value->places, (json_int_t)value->integer));
    case BH_TYPE_VOID:
        return json_null();
    case BH_TYPE_BOOLEAN:
        return json_boolean(value->integer);
    case BH_TYPE_ARRAY:
    case BH_TYPE_TABLE:
        return list_of(delivery, index + 1, value->end, value->type == BH_TYPE_ARRAY);
    default:
        return must(json_integer(value->integer));
    }
}

json_t *archive_headers(const bh_delivery *delivery)
{
    return list_of(delivery, 0, bh__delivery_value_count(delivery), 0);
}

json_t *archive_properties(const bh_delivery *delivery)
{
    json_t *object = must(json_object());
    for (int i = 0; i < BH_PROPERTY_LAST; i++)
        if (i != BH_PROPERTY_HEADERS && bh_delivery_has_property(delivery, (bh_property)i))
            json_object_set_new(object, properties_by_name[i],
                                is_number(i) ? json_integer(bh_delivery_number(delivery, (bh_property)i))
                                             : text_value(bh_delivery_property(delivery, (bh_property)i)));
    return object;
}

json_t *archive_object(const char *queue, const bh_message *message, const bh_delivery *delivery, const char *id)
{
    json_t *object =
        must(json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "queue", json_text(bh_str(queue)), "exchange",
                       text_value(message->exchange), "routing_key", text_value(message->routing_key), "id",
                       json_text(bh_str(id)), "properties", archive_properties(delivery), "headers",
                       archive_headers(delivery), "body", archive_base64(message->body)));
    bh__buffer properties = {.data = NULL}, body = {.data = NULL};
    char problem[256];
    int is_same = archive_read(object, &properties, &body, problem) &&
                  bh__same((bh_bytes){properties.data, bh__buffer_size(&properties)}, message->properties);
    if (!is_same)
        json_object_set_new(object, "wire", archive_base64(message->properties));
    bh__buffer_free(&properties);
    bh__buffer_free(&body);
    return object;
}

/* -------------------------------------------------------------------------------------- reading */

enum { LENGTH_BYTES = 4, DEEPEST = 2 * BH_DELIVERY_MAX_DEPTH };

static int is_wrong(char problem[256], const char *format, ...) __attribute__((format(printf, 2, 3)));
static int is_wrong(char problem[256], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, 256, format, arguments);
    va_end(arguments);
    return 0;
}

static void put(bh__buffer *out, uint64_t number, size_t size)
{
    if (!bh__buffer_reserve(out, size))
        must(NULL);
    bh__put_number(out, number, size);
}

/* Appends a text behind its length. Returns false if it is no text, or too long for a length of so
 * many bytes. */
static int put_text(bh__buffer *out, const json_t *text, size_t length_bytes)
{
    put(out, 0, length_bytes);
    size_t begin = out->end - out->begin;
    const json_t *encoded = json_object_get(text, "base64");
    if (json_is_string(text)) {
        bh_bytes bytes = {json_string_value(text), json_string_length(text)};
        if (!bh__buffer_reserve(out, bytes.size + 1))
            must(NULL);
        bh__put_bytes(out, bytes);
    } else if (!encoded || !put_base64(out, encoded)) {
        return 0;
    }
    size_t size = out->end - out->begin - begin, end = out->end;
    if (length_bytes == 1 && size > 255)
        return 0;
    out->end = out->begin + begin - length_bytes;
    bh__put_number(out, size, length_bytes);
    out->end = end;
    return 1;
}

static int put_list(bh__buffer *out, const json_t *list, int is_array, int depth, char problem[256]);

static int put_real(bh__buffer *out, int type, const json_t *value)
{
    double large = json_number_value(value);
    float small = (float)large;
    uint64_t bits;
    uint32_t half;
    memcpy(&bits, &large, sizeof bits);
    memcpy(&half, &small, sizeof half);
    put(out, type == BH_TYPE_FLOAT ? half : bits, type == BH_TYPE_FLOAT ? 4 : 8);
    return json_is_number(value);
}

/* Appends a value of this type. Returns false if the value has another type. */
static int put_value(bh__buffer *out, int type, const json_t *value, int depth,
                     char problem[256]) /* NOLINT(misc-no-recursion) */
{
    static const struct {
        int type;
        size_t size;
    } integers[] = {{BH_TYPE_INT8, 1},   {BH_TYPE_UINT8, 1},  {BH_TYPE_INT16, 2},
                    {BH_TYPE_UINT16, 2}, {BH_TYPE_INT32, 4},  {BH_TYPE_UINT32, 4},
                    {BH_TYPE_INT64, 8},  {BH_TYPE_UINT64, 8}, {BH_TYPE_TIMESTAMP, 8}};
    switch (type) {
    case BH_TYPE_BOOLEAN:
        put(out, json_is_true(value), 1);
        return json_is_boolean(value);
    case BH_TYPE_FLOAT:
    case BH_TYPE_DOUBLE:
        return put_real(out, type, value);
    case BH_TYPE_DECIMAL:
        put(out, (uint64_t)json_integer_value(json_array_get(value, 0)), 1);
        put(out, (uint64_t)json_integer_value(json_array_get(value, 1)), 4);
        return json_array_size(value) == 2;
    case BH_TYPE_STRING:
    case BH_TYPE_BYTES:
        return put_text(out, value, LENGTH_BYTES);
    case BH_TYPE_VOID:
        return json_is_null(value);
    case BH_TYPE_ARRAY:
    case BH_TYPE_TABLE:
        return depth < DEEPEST && put_list(out, value, type == BH_TYPE_ARRAY, depth + 1, problem);
    default:
        for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++)
            if (integers[i].type == type) {
                put(out, (uint64_t)json_integer_value(value), integers[i].size);
                return json_is_integer(value);
            }
        return 0;
    }
}

static int put_list(bh__buffer *out, const json_t *list, int is_array, int depth,
                    char problem[256]) /* NOLINT(misc-no-recursion) */
{
    put(out, 0, LENGTH_BYTES);
    size_t begin = out->end - out->begin, index;
    json_t *item;
    if (!json_is_array(list))
        return is_wrong(problem, "headers, a table or an array: a list is wanted");
    json_array_foreach(list, index, item)
    {
        const json_t *name = is_array ? NULL : json_array_get(item, 0);
        const char *type = json_string_value(json_array_get(item, is_array ? 0 : 1));
        const json_t *value = json_array_get(item, is_array ? 1 : 2);
        if (json_array_size(item) != (is_array ? 2 : 3) || !type || strlen(type) != 1)
            return is_wrong(problem, "a header is wanted as [name, type, value]");
        if (name && !put_text(out, name, 1))
            return is_wrong(problem, "a header's name is no text, or longer than 255 bytes");
        put(out, (uint64_t)(unsigned char)*type, 1);
        problem[0] = '\0';
        if (!put_value(out, *type, value, depth, problem))
            return *problem ? 0 : is_wrong(problem, "a header's value does not fit its type, '%s'", type);
    }
    size_t end = out->end, size = end - out->begin - begin;
    out->end = out->begin + begin - LENGTH_BYTES;
    bh__put_number(out, size, LENGTH_BYTES);
    out->end = end;
    return 1;
}

static int put_property(bh__buffer *out, int property, const json_t *value)
{
    if (!is_number(property))
        return put_text(out, value, 1);
    put(out, (uint64_t)json_integer_value(value), property == BH_PROPERTY_TIMESTAMP ? 8 : 1);
    return json_is_integer(value);
}

static int put_properties(bh__buffer *out, const json_t *object, char problem[256])
{
    const json_t *given = json_object_get(object, "properties"), *headers = json_object_get(object, "headers");
    unsigned flags = 0;
    put(out, 0, 2);
    for (int i = 0; i < BH_PROPERTY_LAST; i++) {
        const json_t *value = i == BH_PROPERTY_HEADERS ? headers : json_object_get(given, properties_by_name[i]);
        if (!value || (i == BH_PROPERTY_HEADERS && json_array_size(value) == 0))
            continue;
        flags |= 1u << (15 - i);
        problem[0] = '\0';
        if (i == BH_PROPERTY_HEADERS ? !put_list(out, value, 0, 0, problem) : !put_property(out, i, value))
            return *problem ? 0
                            : is_wrong(problem, "the property %s has a wrong value, or does not exist",
                                       properties_by_name[i]);
    }
    size_t end = out->end;
    out->end = out->begin;
    bh__put_number(out, flags, 2);
    out->end = end;
    return 1;
}

int archive_read(json_t *object, bh__buffer *properties, bh__buffer *body, char problem[256])
{
    const json_t *wire = json_object_get(object, "wire");
    bh__buffer_clear(properties);
    bh__buffer_clear(body);
    if (!json_is_object(object))
        return is_wrong(problem, "a JSON object is wanted");
    if (wire ? !put_base64(properties, wire) : !put_properties(properties, object, problem))
        return wire ? is_wrong(problem, "\"wire\" is no base64") : 0;
    return put_base64(body, json_object_get(object, "body")) || is_wrong(problem, "\"body\" is missing or no base64");
}

/* --------------------------------------------------------------------------------------- saving */

/* Returns the header CC under the name `header`, as an item of a list. */
static json_t *saved_cc(const bh_delivery *delivery, const char *header)
{
    json_t *all = archive_headers(delivery), *each, *saved = NULL;
    size_t i;
    json_array_foreach(all, i, each)
    {
        const char *name = json_string_value(json_array_get(each, 0));
        if (!saved && name && strcmp(name, "CC") == 0)
            saved = must(json_pack("[s, O, O]", header, json_array_get(each, 1), json_array_get(each, 2)));
    }
    json_decref(all);
    return saved;
}

/* Returns the headers to append, as a list. */
static json_t *saved_headers(const bh_delivery *delivery)
{
    bh__saved_part parts[BH__SAVED_PARTS];
    size_t count = bh__plan_saved_parts(delivery, parts);
    json_t *saved = must(json_array());
    for (size_t i = 0; i < count; i++) {
        const char *header = parts[i].header;
        json_array_append_new(saved,
                              parts[i].property == BH_PROPERTY_HEADERS
                                  ? saved_cc(delivery, header)
                                  : must(json_pack("[s, s, o]", header, "S",
                                                   text_value(bh_delivery_property(delivery, parts[i].property)))));
    }
    return saved;
}

/* Returns the place of the headers' length: behind flags, content-type and content-encoding. */
static size_t headers_at(const char *properties, unsigned flags)
{
    size_t at = 2;
    for (int i = 0; i < BH_PROPERTY_HEADERS; i++)
        if (flags & 1u << (15 - i))
            at += 1 + (size_t)(unsigned char)properties[at];
    return at;
}

void archive_save(const bh_delivery *delivery, bh__buffer *properties)
{
    char problem[256];
    bh__buffer fields = {.data = NULL}, made = {.data = NULL};
    json_t *saved = saved_headers(delivery);
    if (json_array_size(saved) > 0 && put_list(&fields, saved, 0, 0, problem)) {
        const char *old = properties->data + properties->begin;
        size_t size = bh__buffer_size(properties), more = bh__buffer_size(&fields) - LENGTH_BYTES;
        unsigned flags = (unsigned)bh__get_number(old, 2), has = flags & 1u << (15 - BH_PROPERTY_HEADERS);
        size_t at = headers_at(old, flags), kept = has ? (size_t)bh__get_number(old + at, LENGTH_BYTES) : 0,
               begin = has ? at + LENGTH_BYTES : at, end = begin + kept;
        if (!bh__buffer_reserve(&made, size + more + LENGTH_BYTES))
            must(NULL);
        bh__put_number(&made, flags | 1u << (15 - BH_PROPERTY_HEADERS), 2);
        bh__put_bytes(&made, (bh_bytes){old + 2, at - 2});
        bh__put_number(&made, kept + more, LENGTH_BYTES);
        bh__put_bytes(&made, (bh_bytes){old + begin, kept});
        bh__put_bytes(&made, (bh_bytes){fields.data + fields.begin + LENGTH_BYTES, more});
        bh__put_bytes(&made, (bh_bytes){old + end, size - end});
        bh__buffer_free(properties);
        *properties = made;
    }
    bh__buffer_free(&fields);
    json_decref(saved);
}
