#include "vectors.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define SHOWN_BYTES 300
#define RUNNER_ERROR "the vectors cannot be used: "

const vector_name vector_properties[] = {
    {"content-type", BH_PROPERTY_CONTENT_TYPE},
    {"content-encoding", BH_PROPERTY_CONTENT_ENCODING},
    {"headers", BH_PROPERTY_HEADERS},
    {"delivery-mode", BH_PROPERTY_DELIVERY_MODE},
    {"priority", BH_PROPERTY_PRIORITY},
    {"correlation-id", BH_PROPERTY_CORRELATION_ID},
    {"reply-to", BH_PROPERTY_REPLY_TO},
    {"expiration", BH_PROPERTY_EXPIRATION},
    {"message-id", BH_PROPERTY_MESSAGE_ID},
    {"timestamp", BH_PROPERTY_TIMESTAMP},
    {"type", BH_PROPERTY_TYPE},
    {"user-id", BH_PROPERTY_USER_ID},
    {"app-id", BH_PROPERTY_APP_ID},
    {"cluster-id", BH_PROPERTY_CLUSTER_ID},
    {NULL, 0},
};

const vector_name vector_types[] = {
    {"boolean", BH_TYPE_BOOLEAN},
    {"int8", BH_TYPE_INT8},
    {"uint8", BH_TYPE_UINT8},
    {"int16", BH_TYPE_INT16},
    {"uint16", BH_TYPE_UINT16},
    {"int32", BH_TYPE_INT32},
    {"uint32", BH_TYPE_UINT32},
    {"int64", BH_TYPE_INT64},
    {"uint64", BH_TYPE_UINT64},
    {"float", BH_TYPE_FLOAT},
    {"double", BH_TYPE_DOUBLE},
    {"decimal", BH_TYPE_DECIMAL},
    {"string", BH_TYPE_STRING},
    {"bytes", BH_TYPE_BYTES},
    {"timestamp", BH_TYPE_TIMESTAMP},
    {"void", BH_TYPE_VOID},
    {"array", BH_TYPE_ARRAY},
    {"table", BH_TYPE_TABLE},
    {NULL, 0},
};

const vector_name vector_strategies[] = {
    {"ladder", BH_STRATEGY_LADDER}, {"message-ttl", BH_STRATEGY_MESSAGE_TTL},
    {"reject", BH_STRATEGY_REJECT}, {"delayed-exchange", BH_STRATEGY_DELAYED_EXCHANGE},
    {"native", BH_STRATEGY_NATIVE}, {NULL, 0},
};

const vector_name vector_queue_types[] = {
    {"quorum", BH_QUEUE_QUORUM},
    {"classic", BH_QUEUE_CLASSIC},
    {NULL, 0},
};

const vector_name vector_kinds[] = {
    {"exponential", BH_KIND_EXPONENTIAL},
    {"linear", BH_KIND_LINEAR},
    {"fixed", BH_KIND_FIXED},
    {"steps", BH_KIND_STEPS},
    {NULL, 0},
};

const vector_name vector_jitters[] = {
    {"none", BH_JITTER_NONE},
    {"spread", BH_JITTER_SPREAD},
    {"equal", BH_JITTER_EQUAL},
    {"full", BH_JITTER_FULL},
    {"decorrelated", BH_JITTER_DECORRELATED},
    {NULL, 0},
};

static const vector_name statuses[] = {
#define STATUS_NAME(name, code, sentence) {#name, (code)},
    BH_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
        {NULL, 0},
};

/* --- Memory of the case that runs
 * ------------------------------------------------------------------------------- */

typedef struct block {
    struct block *next;
    max_align_t data[];
} block;

static block *blocks;

static void *allocate(size_t size)
{
    block *one = calloc(1, sizeof *one + size);
    if (!one)
        abort();
    one->next = blocks;
    blocks = one;
    return one->data;
}

static void free_all(void)
{
    while (blocks) {
        block *next = blocks->next;
        free(blocks);
        blocks = next;
    }
}

/* --- Loading
 * ---------------------------------------------------------------------------------------------------- */

static const char *directory(void)
{
    const char *path = getenv("BACKHOP_VECTORS");
#ifdef BACKHOP_VECTORS
    if (!path || !*path)
        path = BACKHOP_VECTORS;
#endif
    if (!path || !*path) {
        fputs(RUNNER_ERROR "set BACKHOP_VECTORS to the directory tests/vectors\n", stderr);
        exit(EXIT_FAILURE);
    }
    return path;
}

static _Noreturn void refuse_file(const char *file, const char *what)
{
    fprintf(stderr, RUNNER_ERROR "%s: %s\n", file, what);
    exit(EXIT_FAILURE);
}

static char *join_path(const char *one, const char *two)
{
    size_t size = strlen(one) + strlen(two) + 2;
    char *path = malloc(size);
    if (!path)
        abort();
    snprintf(path, size, "%s/%s", one, two);
    return path;
}

static size_t index_of(const json_t *entries, const json_t *name)
{
    size_t i = 0;
    while (i < json_array_size(entries) && !json_equal(json_array_get(json_array_get(entries, i), 0), name))
        i++;
    return i;
}

/* Replaces the name of a list by its entries. An entry of a name that came before replaces that one
 * in its place. */
static json_t *merge_headers(const char *file, const json_t *entries, const json_t *lists)
{
    json_t *merged = json_array();
    for (size_t i = 0; i < json_array_size(entries); i++) {
        json_t *entry = json_array_get(entries, i);
        const char *list = json_string_value(entry);
        size_t at = index_of(merged, json_array_get(entry, 0));
        if (list && !json_object_get(lists, list))
            refuse_file(file, "headers name a list that the defaults do not have");
        else if (list)
            json_array_extend(merged, json_object_get(lists, list));
        else if (at < json_array_size(merged))
            json_array_set(merged, at, entry);
        else
            json_array_append(merged, entry);
    }
    return merged;
}

/* Adds the file's defaults to a case. */
static void merge_defaults(const char *file, json_t *one, const json_t *defaults)
{
    json_t *expect = json_object_get(one, "expect"), *headers = json_object_get(expect, "headers");
    const json_t *lists = json_object_get(defaults, "headers");
    json_object_update_missing(one, json_object_get(defaults, "case"));
    if (headers && lists)
        json_object_set_new(expect, "headers", merge_headers(file, headers, lists));
}

/* Refuses a key that the format does not have. */
static void check_file(const char *file, const json_t *root)
{
    const json_t *defaults = json_object_get(root, "defaults");
    size_t known = json_object_get(defaults, "case") ? 1 : 0;
    known += json_object_get(defaults, "headers") ? 1 : 0;
    if (!json_is_string(json_object_get(root, "about")) || json_object_size(root) != (defaults ? 3 : 2))
        refuse_file(file, "it must hold \"about\", \"cases\" and perhaps \"defaults\", and nothing else");
    if (json_object_size(defaults) != known)
        refuse_file(file, "its \"defaults\" may hold \"case\" and \"headers\", and nothing else");
}

static void load_file(vectors *all, const char *folder, const char *noun, const char *base)
{
    char *path = join_path(folder, base);
    char *file = join_path(noun, base);
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    free(path);
    if (!root) {
        fprintf(stderr, RUNNER_ERROR "%s:%d: %s\n", file, error.line, error.text);
        exit(EXIT_FAILURE);
    }
    const json_t *cases = json_object_get(root, "cases");
    check_file(file, root);
    if (json_array_size(cases) == 0)
        refuse_file(file, "it has no cases");

    size_t size = json_array_size(cases);
    size_t first = (size_t)all->count;
    all->cases = realloc(all->cases, (first + size) * sizeof *all->cases);
    if (!all->cases)
        abort();
    for (size_t i = 0; i < size; i++) {
        json_t *one = json_array_get(cases, i);
        merge_defaults(file, one, json_object_get(root, "defaults"));
        const char *name = json_string_value(json_object_get(one, "name"));
        if (!name || !*name)
            refuse_file(file, "a case has no name");
        for (size_t j = first; j < first + i; j++)
            if (strcmp(all->cases[j].name, name) == 0) {
                fprintf(stderr, RUNNER_ERROR "%s: two cases have the name \"%s\"\n", file, name);
                exit(EXIT_FAILURE);
            }
        vector v = {.file = file, .name = name, .json = json_incref(one)};
        all->cases[first + i] = v;
    }
    all->count = (int)(first + size);
    json_decref(root);
}

static int is_json(const struct dirent *entry)
{
    size_t size = strlen(entry->d_name);
    return size > 5 && entry->d_name[0] != '.' && strcmp(entry->d_name + size - 5, ".json") == 0;
}

vectors vectors_load(const char *noun)
{
    vectors all = {NULL, 0};
    char *folder = join_path(directory(), noun);
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_json, alphasort);
    if (count <= 0)
        refuse_file(folder, "there is no .json file");
    for (int i = 0; i < count; i++) {
        load_file(&all, folder, noun, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    free(folder);
    return all;
}

void vectors_add(Suite *suite, const vectors *all, const TTest *test)
{
    TCase *cases = tcase_create("vectors");
    tcase_add_loop_test(cases, test, 0, all->count);
    suite_add_tcase(suite, cases);
}

/* --- A case
 * ----------------------------------------------------------------------------------------------------- */

_Noreturn void vector_fail(const vector *v, const char *field, const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    ck_abort_msg("%s: \"%s\": %s: %s", v->file, v->name, field, text);
    abort();
}

static int listed(const char *keys, const char *key)
{
    size_t size = strlen(key);
    for (const char *at = keys; size && (at = strstr(at, key)); at += size)
        if ((at == keys || at[-1] == ' ') && (at[size] == ' ' || !at[size]))
            return 1;
    return 0;
}

void vector_keys(const vector *v, const char *where, const json_t *object, const char *keys)
{
    if (!json_is_object(object))
        vector_fail(v, where, "must be a JSON object");
    for (void *i = json_object_iter((json_t *)object); i; i = json_object_iter_next((json_t *)object, i))
        if (!listed(keys, json_object_iter_key(i)))
            vector_fail(v, where, "unknown key \"%s\"; known are: %s", json_object_iter_key(i), keys);
}

void vector_begin(vector *v, const char *keys, const char *expect_keys)
{
    free_all();
    v->checks = 0;
    v->expect = json_object_get(v->json, "expect");
    char known[512];
    snprintf(known, sizeof known, "name expect %s", keys);
    vector_keys(v, "case", v->json, known);
    vector_keys(v, "expect", v->expect, expect_keys);
}

void vector_end(vector *v)
{
    if (v->checks == 0)
        vector_fail(v, "expect", "the case compares nothing");
    free_all();
}

const json_t *vector_get(const vector *v, const char *key)
{
    return json_object_get(v->json, key);
}

int vector_name_value(const vector *v, const char *field, const json_t *json, const vector_name *names)
{
    const char *text = json_string_value(json);
    if (!text)
        vector_fail(v, field, "must be a name");
    for (; names->name; names++)
        if (strcmp(names->name, text) == 0)
            return names->value;
    vector_fail(v, field, "unknown name \"%s\"", text);
}

bh_status vector_status(const vector *v, const json_t *json)
{
    return json ? (bh_status)vector_name_value(v, "status", json, statuses) : BH_OK;
}

int64_t vector_int(const vector *v, const char *field, const json_t *json)
{
    if (json_is_integer(json))
        return json_integer_value(json);
    const char *text = json_string_value(json);
    const char *digits = text && *text == '-' ? text + 1 : text;
    if (!digits || !*digits || digits[strspn(digits, "0123456789")])
        vector_fail(v, field, "must be an integer, or one as a string");
    /* A number that only fits uint64 keeps its bits. */
    return *text == '-' ? strtoll(text, NULL, 10) : (int64_t)strtoull(text, NULL, 10);
}

double vector_double(const vector *v, const char *field, const json_t *json)
{
    if (json_is_number(json))
        return json_number_value(json);
    const char *text = json_string_value(json);
    if (text && strcmp(text, "nan") == 0)
        return (double)NAN;
    if (text && strcmp(text, "inf") == 0)
        return (double)INFINITY;
    if (text && strcmp(text, "-inf") == 0)
        return -(double)INFINITY;
    vector_fail(v, field, "must be a number, \"nan\", \"inf\" or \"-inf\"");
}

/* --- Bytes
 * ------------------------------------------------------------------------------------------------------ */

static unsigned hex_digit(const vector *v, const char *field, char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    if (c >= 'a' && c <= 'f')
        return (unsigned)(c - 'a' + 10);
    vector_fail(v, field, "bad hex digit '%c'; they are lower-case", c);
}

/* Writes the bytes to `out` unless it is NULL; returns how many there are. */
static size_t write_bytes(const vector *v, const char *field, const json_t *json, char *out)
{
    if (json_is_string(json)) {
        size_t size = json_string_length(json);
        if (out)
            memcpy(out, json_string_value(json), size);
        return size;
    }
    if (json_object_get(json, "hex")) {
        vector_keys(v, field, json, "hex");
        const json_t *hex = json_object_get(json, "hex");
        const char *digits = json_string_value(hex);
        if (!digits || json_string_length(hex) % 2)
            vector_fail(v, field, "hex must be a string of an even length");
        size_t size = json_string_length(hex) / 2;
        for (size_t i = 0; out && i < size; i++)
            out[i] = (char)(hex_digit(v, field, digits[2 * i]) << 4 | hex_digit(v, field, digits[2 * i + 1]));
        return size;
    }
    if (json_object_get(json, "times")) {
        vector_keys(v, field, json, "times text");
        size_t times = (size_t)vector_int(v, field, json_object_get(json, "times"));
        size_t size = write_bytes(v, field, json_object_get(json, "text"), NULL);
        for (size_t i = 0; out && i < times; i++)
            write_bytes(v, field, json_object_get(json, "text"), out + i * size);
        return times * size;
    }
    if (json_object_get(json, "join")) {
        vector_keys(v, field, json, "join");
        const json_t *parts = json_object_get(json, "join");
        size_t size = 0;
        for (size_t i = 0; i < json_array_size(parts); i++)
            size += write_bytes(v, field, json_array_get(parts, i), out ? out + size : NULL);
        return size;
    }
    vector_fail(v, field, "must be bytes: a string, or an object with hex, times and text, or join");
}

bh_bytes vector_bytes(const vector *v, const char *field, const json_t *json)
{
    if (json_is_string(json)) {
        bh_bytes text = {json_string_value(json), json_string_length(json)};
        return text;
    }
    size_t size = write_bytes(v, field, json, NULL);
    char *data = allocate(size + 1);
    write_bytes(v, field, json, data);
    bh_bytes bytes = {data, size};
    return bytes;
}

int vector_same(bh_bytes a, bh_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

const char *vector_show(bh_bytes bytes)
{
    size_t shown = bytes.size > SHOWN_BYTES ? SHOWN_BYTES : bytes.size;
    size_t room = shown * 4 + 64;
    char *text = allocate(room);
    char *at = text;
    *at++ = '"';
    for (size_t i = 0; i < shown; i++) {
        unsigned char c = (unsigned char)bytes.data[i];
        if (c >= 32 && c < 127)
            *at++ = (char)c;
        else
            at += snprintf(at, 5, "\\x%02x", c);
    }
    snprintf(at, room - (size_t)(at - text), "\"%s (%zu bytes)", shown < bytes.size ? "..." : "", bytes.size);
    return text;
}

/* --- Delivery
 * --------------------------------------------------------------------------------------------------- */

bh_type vector_value(const vector *v, const char *field, const json_t *json, const json_t **content)
{
    *content = json;
    switch (json_typeof(json)) {
    case JSON_STRING:
        return BH_TYPE_STRING;
    case JSON_INTEGER:
        return BH_TYPE_INT64;
    case JSON_REAL:
        return BH_TYPE_DOUBLE;
    case JSON_TRUE:
    case JSON_FALSE:
        return BH_TYPE_BOOLEAN;
    case JSON_NULL:
        return BH_TYPE_VOID;
    case JSON_OBJECT: {
        void *only = json_object_iter((json_t *)json);
        if (json_object_size(json) != 1)
            break;
        json_t *type = json_string(json_object_iter_key(only));
        int value = vector_name_value(v, field, type, vector_types);
        json_decref(type);
        *content = json_object_iter_value(only);
        return (bh_type)value;
    }
    case JSON_ARRAY:
        break;
    }
    vector_fail(v, field, "must be a typed value such as {\"int32\": 3}");
}

static bh_status push(const vector *v, bh_delivery *d, bh_bytes name, const json_t *json);

static bh_status begin(bh_delivery *d, bh_bytes name, bh_type type)
{
    return bh_delivery_push(d, &(bh_value){.type = type, .name = name});
}

static bh_status push_nest(const vector *v, bh_delivery *d, bh_bytes name, const json_t *json)
{
    vector_keys(v, "nest", json, "nest of");
    int64_t depth = vector_int(v, "nest", json_object_get(json, "nest"));
    bh_type type = (bh_type)vector_name_value(v, "of", json_object_get(json, "of"), vector_types);
    bh_status status = BH_OK;
    for (int64_t i = 0; !status && i < depth; i++)
        status = begin(d, i == 0 ? name : bh_str("n"), type);
    for (int64_t i = 0; !status && i < depth; i++)
        status = bh_delivery_end(d);
    return status;
}

static bh_status push_entry(const vector *v, bh_delivery *d, const json_t *entry, const char *suffix)
{
    if (!json_is_array(entry) || json_array_size(entry) != 2)
        vector_fail(v, "headers", "an entry must be [name, value]");
    bh_bytes name = vector_bytes(v, "headers", json_array_get(entry, 0));
    if (*suffix) {
        char *longer = allocate(name.size + strlen(suffix) + 1);
        memcpy(longer, name.data, name.size);
        memcpy(longer + name.size, suffix, strlen(suffix));
        name.data = longer;
        name.size += strlen(suffix);
    }
    return push(v, d, name, json_array_get(entry, 1));
}

static bh_status push_entries(const vector *v, bh_delivery *d, const json_t *entries)
{
    if (!json_is_array(entries))
        vector_fail(v, "headers", "must be a list of [name, value]");
    bh_status status = BH_OK;
    for (size_t i = 0; !status && i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i);
        if (!json_is_object(entry)) {
            status = push_entry(v, d, entry, "");
            continue;
        }
        vector_keys(v, "headers", entry, "times entry");
        int64_t times = vector_int(v, "times", json_object_get(entry, "times"));
        for (int64_t n = 0; !status && n < times; n++) {
            char suffix[24];
            snprintf(suffix, sizeof suffix, "%" PRId64, n);
            status = push_entry(v, d, json_object_get(entry, "entry"), suffix);
        }
    }
    return status;
}

static bh_status push_elements(const vector *v, bh_delivery *d, const json_t *elements)
{
    if (!json_is_array(elements))
        vector_fail(v, "headers", "an array must be a list");
    bh_status status = BH_OK;
    for (size_t i = 0; !status && i < json_array_size(elements); i++) {
        const json_t *element = json_array_get(elements, i);
        if (!json_object_get(element, "times")) {
            status = push(v, d, bh_str(""), element);
            continue;
        }
        vector_keys(v, "headers", element, "times value");
        int64_t times = vector_int(v, "times", json_object_get(element, "times"));
        for (int64_t n = 0; !status && n < times; n++)
            status = push(v, d, bh_str(""), json_object_get(element, "value"));
    }
    return status;
}

static bh_status push(const vector *v, bh_delivery *d, bh_bytes name, const json_t *json)
{
    if (json_object_get(json, "nest"))
        return push_nest(v, d, name, json);
    const json_t *content;
    bh_type type = vector_value(v, "headers", json, &content);
    switch (type) {
    case BH_TYPE_BOOLEAN:
        if (!json_is_boolean(content))
            vector_fail(v, "headers", "a boolean must be true or false");
        return bh_delivery_push(d, &(bh_value){.type = type, .name = name, .integer = json_is_true(content)});
    case BH_TYPE_INT8:
    case BH_TYPE_UINT8:
    case BH_TYPE_INT16:
    case BH_TYPE_UINT16:
    case BH_TYPE_INT32:
    case BH_TYPE_UINT32:
    case BH_TYPE_INT64:
    case BH_TYPE_UINT64:
    case BH_TYPE_TIMESTAMP:
        return bh_delivery_push(d,
                                &(bh_value){.type = type, .name = name, .integer = vector_int(v, "headers", content)});
    case BH_TYPE_FLOAT:
    case BH_TYPE_DOUBLE:
        return bh_delivery_push(
            d, &(bh_value){.type = type, .name = name, .number = vector_double(v, "headers", content)});
    case BH_TYPE_DECIMAL:
        vector_keys(v, "decimal", content, "places value");
        return bh_delivery_push(
            d, &(bh_value){.type = BH_TYPE_DECIMAL,
                           .name = name,
                           .integer = vector_int(v, "value", json_object_get(content, "value")),
                           .places = (int)vector_int(v, "places", json_object_get(content, "places"))});
    case BH_TYPE_STRING:
    case BH_TYPE_BYTES:
        return bh_delivery_push(d,
                                &(bh_value){.type = type, .name = name, .string = vector_bytes(v, "headers", content)});
    case BH_TYPE_VOID:
        return bh_delivery_push(d, &(bh_value){.type = BH_TYPE_VOID, .name = name});
    case BH_TYPE_ARRAY:
    case BH_TYPE_TABLE: {
        bh_status status = begin(d, name, type);
        if (!status)
            status = type == BH_TYPE_TABLE ? push_entries(v, d, content) : push_elements(v, d, content);
        return status ? status : bh_delivery_end(d);
    }
    }
    vector_fail(v, "headers", "a type that the runner lacks");
}

static bh_status set_property(const vector *v, bh_delivery *d, bh_property property, const json_t *value)
{
    if (property == BH_PROPERTY_HEADERS)
        vector_fail(v, "properties", "headers have their own key");
    if (property == BH_PROPERTY_DELIVERY_MODE || property == BH_PROPERTY_PRIORITY || property == BH_PROPERTY_TIMESTAMP)
        return bh_delivery_set_number(d, property, vector_int(v, "properties", value));
    return bh_delivery_set_property(d, property, vector_bytes(v, "properties", value));
}

bh_status vector_fill_delivery(const vector *v, const json_t *json, bh_delivery *delivery)
{
    bh_bytes exchange = bh_str("events");
    bh_bytes routing_key = bh_str("order.created");
    if (json) {
        vector_keys(v, "delivery", json, "exchange routing_key properties headers");
        if (json_object_get(json, "exchange"))
            exchange = vector_bytes(v, "exchange", json_object_get(json, "exchange"));
        if (json_object_get(json, "routing_key"))
            routing_key = vector_bytes(v, "routing_key", json_object_get(json, "routing_key"));
    }
    bh_status status = bh_delivery_set_address(delivery, exchange, routing_key);
    json_t *properties = json_object_get(json, "properties");
    for (void *i = json_object_iter(properties); !status && i; i = json_object_iter_next(properties, i)) {
        json_t *name = json_string(json_object_iter_key(i));
        bh_property property = (bh_property)vector_name_value(v, "properties", name, vector_properties);
        json_decref(name);
        status = set_property(v, delivery, property, json_object_iter_value(i));
    }
    if (!status && json_object_get(json, "headers"))
        status = push_entries(v, delivery, json_object_get(json, "headers"));
    return status;
}

/* --- Policy
 * ----------------------------------------------------------------------------------------------------- */

typedef struct snapshot {
    int64_t numbers[14];
} snapshot;

static snapshot look(const bh_policy *policy)
{
    snapshot s = {{settings_of(policy).kind, settings_of(policy).jitter, limits_of(policy).max_attempts,
                   limits_of(policy).max_ms, limits_of(policy).max_age_ms, limits_of(policy).max_retry_after_ms,
                   limits_of(policy).max_crashes, limits_of(policy).max_deferrals}};
    /* Without a step there is no delay of kind steps to look at. */
    if (settings_of(policy).kind != BH_KIND_STEPS)
        for (int i = 0; i < 3; i++) {
            s.numbers[8 + 2 * i] = bh_policy_delay_ms(policy, i + 1, 0, 0);
            s.numbers[9 + 2 * i] = bh_policy_delay_ms(policy, i + 1, 5000, 0.75);
        }
    return s;
}

/* One value of a policy, set by the setter of its field. */
static bh_status set_field(const vector *v, bh_policy *policy, const char *field, const json_t *value, double ratio)
{
    if (strcmp(field, "kind") == 0)
        return policy_set_kind(policy, (bh_kind)vector_name_value(v, field, value, vector_kinds));
    if (strcmp(field, "factor") == 0)
        return policy_set_factor(policy, vector_double(v, field, value));
    if (strcmp(field, "ratio") == 0)
        return policy_set_jitter(policy, (bh_jitter)vector_name_value(v, "jitter", value, vector_jitters), ratio);
    int64_t number = vector_int(v, field, value);
    if (strcmp(field, "initial_ms") == 0)
        return policy_set_initial_ms(policy, number);
    if (strcmp(field, "max_ms") == 0)
        return policy_set_max_ms(policy, number);
    if (strcmp(field, "steps_ms") == 0)
        return policy_add_step_ms(policy, number);
    if (strcmp(field, "max_attempts") == 0)
        return policy_set_max_attempts(policy, number);
    if (strcmp(field, "max_age_ms") == 0)
        return policy_set_max_age_ms(policy, number);
    if (strcmp(field, "max_retry_after_ms") == 0)
        return policy_set_max_retry_after_ms(policy, number);
    if (strcmp(field, "max_crashes") == 0)
        return policy_set_max_crashes(policy, number);
    return policy_set_max_deferrals(policy, number);
}

static bh_status set_and_look(const vector *v, bh_policy *policy, const char *field, const json_t *value, double ratio)
{
    snapshot before = look(policy);
    bh_status status = set_field(v, policy, field, value, ratio);
    snapshot after = look(policy);
    if (status && memcmp(&before, &after, sizeof before) != 0)
        vector_fail(v, field, "its setter refused the value and changed the policy all the same");
    return status;
}

bh_status vector_fill_policy(const vector *v, const json_t *json, bh_policy *policy, const char **field)
{
    static const char *const fields[] = {
        "kind",       "initial_ms",         "factor",      "max_ms",       "steps_ms", "ratio", "max_attempts",
        "max_age_ms", "max_retry_after_ms", "max_crashes", "max_deferrals"};
    if (!json)
        return BH_OK;
    vector_keys(v, "policy", json,
                "kind initial_ms factor max_ms steps_ms jitter ratio max_attempts max_age_ms max_retry_after_ms "
                "max_crashes max_deferrals");
    const json_t *ratio = json_object_get(json, "ratio");
    if (ratio && !json_object_get(json, "jitter"))
        vector_fail(v, "ratio", "needs jitter beside it");
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        *field = fields[i];
        int is_jitter = strcmp(fields[i], "ratio") == 0;
        const json_t *value = json_object_get(json, is_jitter ? "jitter" : fields[i]);
        if (!value)
            continue;
        bh_status status = BH_OK;
        if (strcmp(fields[i], "steps_ms") != 0) {
            status = set_and_look(v, policy, fields[i], value, ratio ? vector_double(v, "ratio", ratio) : 0.2);
        } else if (!json_is_array(value)) {
            vector_fail(v, fields[i], "must be a list");
        }
        for (size_t s = 0; !status && json_is_array(value) && s < json_array_size(value); s++) {
            const json_t *step = json_array_get(value, s);
            if (!json_is_object(step)) {
                status = set_and_look(v, policy, fields[i], step, 0);
                continue;
            }
            vector_keys(v, fields[i], step, "times value");
            int64_t times = vector_int(v, "times", json_object_get(step, "times"));
            for (int64_t n = 0; !status && n < times; n++)
                status = set_and_look(v, policy, fields[i], json_object_get(step, "value"), 0);
        }
        if (status)
            return status;
    }
    return BH_OK;
}

/* --- Topology and history
 * --------------------------------------------------------------------------------------- */

static bh_status add_arguments(const vector *v, const json_t *arguments, bh_topology *topology)
{
    bh_status status = BH_OK;
    for (size_t i = 0; !status && i < json_array_size(arguments); i++) {
        bh_bytes name = vector_bytes(v, "work_queue_arguments", json_array_get(json_array_get(arguments, i), 0));
        const json_t *value = json_array_get(json_array_get(arguments, i), 1);
        if (json_is_integer(value))
            status = add_int_argument(topology, name, json_integer_value(value));
        else
            status = add_string_argument(topology, name, vector_bytes(v, "work_queue_arguments", value));
    }
    return status;
}

bh_status vector_new_topology(const vector *v, const json_t *json, bh_topology **out, const char **field)
{
    if (json)
        vector_keys(v, "topology", json,
                    "queue strategy queue_type namespace series stripes work_queue_type work_queue_arguments policies");
    const json_t *value = json_object_get(json, "queue");
    *out = NULL;
    *field = "queue";
    bh_status status = bh_topology_new(out, value ? vector_bytes(v, "queue", value) : bh_str("orders"));
    if (!status && (value = json_object_get(json, "strategy"))) {
        *field = "strategy";
        status = topology_set_strategy(*out, (bh_strategy)vector_name_value(v, *field, value, vector_strategies));
    }
    if (!status && (value = json_object_get(json, "queue_type"))) {
        *field = "queue_type";
        status = topology_set_queue_type(*out, (bh_queue_type)vector_name_value(v, *field, value, vector_queue_types));
    }
    if (!status && (value = json_object_get(json, "namespace"))) {
        *field = "namespace";
        status = topology_set_name_space(*out, vector_bytes(v, *field, value));
    }
    if (!status && (value = json_object_get(json, "series"))) {
        *field = "series";
        status = topology_set_series(*out, (bh_series)vector_int(v, *field, value));
    }
    if (!status && (value = json_object_get(json, "stripes"))) {
        *field = "stripes";
        status = topology_set_stripes(*out, (int)vector_int(v, *field, value));
    }
    if (!status && (value = json_object_get(json, "work_queue_type"))) {
        *field = "work_queue_type";
        status =
            topology_declare_work_queue(*out, (bh_queue_type)vector_name_value(v, *field, value, vector_queue_types));
    }
    if (!status && (value = json_object_get(json, "work_queue_arguments"))) {
        *field = "work_queue_arguments";
        status = add_arguments(v, value, *out);
    }
    value = json_object_get(json, "policies");
    for (size_t i = 0; !status && i < json_array_size(value); i++) {
        const char *refused = "";
        bh_policy *policy = NULL;
        *field = "policies";
        ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
        if (vector_fill_policy(v, json_array_get(value, i), policy, &refused))
            vector_fail(v, refused, "was refused: %s", bh_policy_error(policy).data);
        status = bh_topology_add_policy(*out, policy);
        bh_policy_free(policy);
    }
    return status;
}

void vector_fill_history(const vector *v, bh_history *history)
{
    const json_t *counter = vector_get(v, "legacy_counter");
    if (counter)
        ck_assert_int_eq(bh_history_set_legacy_counter(history, vector_bytes(v, "legacy_counter", counter)), BH_OK);
    const json_t *queues = vector_get(v, "wait_queues");
    for (size_t i = 0; i < json_array_size(queues); i++)
        ck_assert_int_eq(bh_history_add_wait_queue(history, vector_bytes(v, "wait_queues", json_array_get(queues, i))),
                         BH_OK);
}

/* --- Comparisons
 * ------------------------------------------------------------------------------------------------ */

static const char *name_of(const vector_name *names, int value)
{
    for (; names->name; names++)
        if (names->value == value)
            return names->name;
    char *number = allocate(32);
    snprintf(number, 32, "%d, which has no name", value);
    return number;
}

void same_int(vector *v, const char *field, int64_t expected, int64_t got)
{
    v->checks++;
    if (expected != got)
        vector_fail(v, field, "expected %" PRId64 ", got %" PRId64, expected, got);
}

void same_bytes(vector *v, const char *field, bh_bytes expected, bh_bytes got)
{
    v->checks++;
    if (!got.data)
        vector_fail(v, field, "got NULL");
    if (!vector_same(expected, got))
        vector_fail(v, field, "expected %s, got %s", vector_show(expected), vector_show(got));
    if (got.data[got.size])
        vector_fail(v, field, "no zero byte follows %s", vector_show(got));
}

void expect_int(vector *v, const json_t *expect, const char *key, int64_t got)
{
    const json_t *expected = json_object_get(expect, key);
    if (expected)
        same_int(v, key, vector_int(v, key, expected), got);
}

void expect_flag(vector *v, const json_t *expect, const char *key, int got)
{
    const json_t *expected = json_object_get(expect, key);
    if (!expected)
        return;
    if (!json_is_boolean(expected))
        vector_fail(v, key, "must be true or false");
    same_int(v, key, json_is_true(expected), got);
}

void expect_bytes(vector *v, const json_t *expect, const char *key, bh_bytes got)
{
    const json_t *expected = json_object_get(expect, key);
    if (expected)
        same_bytes(v, key, vector_bytes(v, key, expected), got);
}

void expect_name(vector *v, const json_t *expect, const char *key, const vector_name *names, int got)
{
    const json_t *expected = json_object_get(expect, key);
    if (!expected)
        return;
    v->checks++;
    if (vector_name_value(v, key, expected, names) != got)
        vector_fail(v, key, "expected %s, got %s", json_string_value(expected), name_of(names, got));
}

static void contains(vector *v, const json_t *text, bh_bytes got)
{
    v->checks++;
    if (!json_is_string(text))
        vector_fail(v, "error", "must be a text or a list of texts");
    if (!got.data || !strstr(got.data, json_string_value(text)))
        vector_fail(v, "error", "\"%s\" is not in %s", json_string_value(text), vector_show(got));
}

void expect_error(vector *v, const json_t *expect, bh_bytes got)
{
    const json_t *expected = json_object_get(expect, "error");
    if (!expected)
        return;
    if (!json_is_array(expected))
        contains(v, expected, got);
    for (size_t i = 0; json_is_array(expected) && i < json_array_size(expected); i++)
        contains(v, json_array_get(expected, i), got);
}

int expect_status(vector *v, bh_status got, bh_bytes detail)
{
    const json_t *expected = json_object_get(v->expect, "status");
    if (expected)
        v->checks++;
    if (vector_status(v, expected) != got)
        vector_fail(v, "status", "expected %s, got %s: %s", expected ? json_string_value(expected) : "BH_OK",
                    name_of(statuses, got), vector_show(detail));
    return got == BH_OK;
}

unsigned draw_by_seed(void *state, unsigned below)
{
    uint64_t z = *(uint64_t *)state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)((z ^ (z >> 31)) >> 33) % below;
}
