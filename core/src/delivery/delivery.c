/*
 * The delivery as an object: its properties, and its headers as a flat tree that ends at the
 * limits.
 */
#include "delivery/internal.h"

#include <stdlib.h>

struct bh_delivery {
    bh__store store;
    bh__node *nodes;
    size_t node_count;
    size_t node_capacity;
    char *open; /* types of the open tables and arrays, outermost first */
    size_t open_count;
    size_t open_capacity;
    size_t path[BH_DELIVERY_MAX_DEPTH]; /* nodes of the open tables and arrays that are kept */
    size_t kept_depth;
    size_t header_start; /* headers_bytes at the start of the last header */
    size_t headers_bytes;
    size_t text_bytes; /* names and strings that are kept */
    int has_headers;
    int is_truncated;
    int has_lost_headers;
    bh__text exchange;
    bh__text routing_key;
    int has_property[BH_PROPERTY_LAST];
    bh__text strings[BH_PROPERTY_LAST];
    int64_t numbers[BH_PROPERTY_LAST];
};

bh_status bh_delivery_new(bh_delivery **out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = calloc(1, sizeof **out);
    return *out ? BH_OK : BH_ERR_NO_MEMORY;
}

void bh_delivery_free(bh_delivery *self)
{
    if (!self)
        return;
    bh__store_free(&self->store);
    free(self->nodes);
    free(self->open);
    free(self);
}

void bh_delivery_clear(bh_delivery *self)
{
    if (!self)
        return;
    bh_delivery empty = {
        .store = {self->store.data, 0, self->store.capacity},
        .nodes = self->nodes,
        .node_capacity = self->node_capacity,
        .open = self->open,
        .open_capacity = self->open_capacity,
    };
    *self = empty;
}

static bh_status set_short_string(bh_delivery *self, bh__text *out, bh_bytes text)
{
    if (text.size > BH__SHORT_STRING_BYTES || !text.data)
        return BH_ERR_ARGUMENT;
    return bh__store_add(&self->store, out, text) ? BH_OK : BH_ERR_NO_MEMORY;
}

bh_status bh_delivery_set_address(bh_delivery *self, bh_bytes exchange, bh_bytes routing_key)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    bh_status status = set_short_string(self, &self->exchange, exchange);
    return status == BH_OK ? set_short_string(self, &self->routing_key, routing_key) : status;
}

static int is_property(bh_property property)
{
    return (int)property >= 0 && property < BH_PROPERTY_LAST;
}

static int is_number(bh_property property)
{
    return property == BH_PROPERTY_DELIVERY_MODE || property == BH_PROPERTY_PRIORITY ||
           property == BH_PROPERTY_TIMESTAMP;
}

bh_status bh_delivery_set_property(bh_delivery *self, bh_property property, bh_bytes value)
{
    if (!self || !is_property(property) || is_number(property) || property == BH_PROPERTY_HEADERS)
        return BH_ERR_ARGUMENT;
    bh_status status = set_short_string(self, &self->strings[property], value);
    if (status == BH_OK)
        self->has_property[property] = 1;
    return status;
}

bh_status bh_delivery_set_number(bh_delivery *self, bh_property property, int64_t value)
{
    if (!self || !is_property(property) || !is_number(property))
        return BH_ERR_ARGUMENT;
    self->numbers[property] = value;
    self->has_property[property] = 1;
    return BH_OK;
}

int bh__is_integer(bh_type type)
{
    switch (type) {
    case BH_TYPE_INT8:
    case BH_TYPE_UINT8:
    case BH_TYPE_INT16:
    case BH_TYPE_UINT16:
    case BH_TYPE_INT32:
    case BH_TYPE_UINT32:
    case BH_TYPE_INT64:
    case BH_TYPE_UINT64:
        return 1;
    default:
        return 0;
    }
}

size_t bh__value_bytes(bh_type type)
{
    switch (type) {
    case BH_TYPE_BOOLEAN:
    case BH_TYPE_INT8:
    case BH_TYPE_UINT8:
        return 1;
    case BH_TYPE_INT16:
    case BH_TYPE_UINT16:
        return 2;
    case BH_TYPE_INT32:
    case BH_TYPE_UINT32:
    case BH_TYPE_FLOAT:
    case BH_TYPE_STRING:
    case BH_TYPE_BYTES:
    case BH_TYPE_ARRAY:
    case BH_TYPE_TABLE:
        return 4;
    case BH_TYPE_INT64:
    case BH_TYPE_UINT64:
    case BH_TYPE_DOUBLE:
    case BH_TYPE_TIMESTAMP:
        return 8;
    case BH_TYPE_DECIMAL:
        return 5;
    case BH_TYPE_VOID:
        break;
    }
    return 0;
}

enum { KNOWN = 1, HAS_STRING = 2, HAS_INTEGER = 4, HAS_NUMBER = 8, HAS_PLACES = 16, TYPES = 128 };

/* The fields of a bh_value that each type has; 0 for an unknown type. */
static const unsigned char fields_of[TYPES] = {
    [BH_TYPE_BOOLEAN] = KNOWN | HAS_INTEGER,
    [BH_TYPE_INT8] = KNOWN | HAS_INTEGER,
    [BH_TYPE_UINT8] = KNOWN | HAS_INTEGER,
    [BH_TYPE_INT16] = KNOWN | HAS_INTEGER,
    [BH_TYPE_UINT16] = KNOWN | HAS_INTEGER,
    [BH_TYPE_INT32] = KNOWN | HAS_INTEGER,
    [BH_TYPE_UINT32] = KNOWN | HAS_INTEGER,
    [BH_TYPE_INT64] = KNOWN | HAS_INTEGER,
    [BH_TYPE_UINT64] = KNOWN | HAS_INTEGER,
    [BH_TYPE_TIMESTAMP] = KNOWN | HAS_INTEGER,
    [BH_TYPE_FLOAT] = KNOWN | HAS_NUMBER,
    [BH_TYPE_DOUBLE] = KNOWN | HAS_NUMBER,
    [BH_TYPE_DECIMAL] = KNOWN | HAS_INTEGER | HAS_PLACES,
    [BH_TYPE_STRING] = KNOWN | HAS_STRING,
    [BH_TYPE_BYTES] = KNOWN | HAS_STRING,
    [BH_TYPE_VOID] = KNOWN,
    [BH_TYPE_ARRAY] = KNOWN,
    [BH_TYPE_TABLE] = KNOWN,
};

/* Returns 1 if the type is known, and the value has no field that the type does not have. */
static int is_valid(const bh_value *value, unsigned fields)
{
    return fields && (fields & HAS_STRING ? value->string.data != NULL : value->string.size == 0) &&
           (fields & HAS_INTEGER || value->integer == 0) && (fields & HAS_NUMBER || value->number == 0) &&
           value->places >= 0 && value->places <= (fields & HAS_PLACES ? 255 : 0);
}

/* Appends the value to the tree. */
static bh_status keep(bh_delivery *self, bh_bytes name, bh__node *node, bh_bytes string)
{
    void *nodes = self->nodes;
    if (!bh__reserve(&nodes, &self->node_capacity, sizeof *self->nodes, self->node_count + 1))
        return BH_ERR_NO_MEMORY;
    self->nodes = nodes;
    node->end = self->node_count + 1;
    if (!bh__store_add(&self->store, &node->name, name) || !bh__store_add(&self->store, &node->string, string))
        return BH_ERR_NO_MEMORY;
    self->nodes[self->node_count++] = *node;
    self->text_bytes += name.size + string.size;
    return BH_OK;
}

/* Appends a value to the last open table or array, unless that was left out or a limit is reached.
 * Always measures it. */
static bh_status push(bh_delivery *self, bh_bytes name, bh__node *node, bh_bytes string)
{
    bh_type type = node->type;
    int in_array = self->open_count > 0 && self->open[self->open_count - 1] == BH_TYPE_ARRAY;
    if (in_array)
        name.size = 0;
    if (name.size > BH__SHORT_STRING_BYTES)
        return BH_ERR_ARGUMENT;
    int is_container = type == BH_TYPE_ARRAY || type == BH_TYPE_TABLE;
    void *open = self->open;
    if (is_container && !bh__reserve(&open, &self->open_capacity, 1, self->open_count + 1))
        return BH_ERR_NO_MEMORY;
    self->open = open;

    int is_too_deep = is_container && self->open_count == BH_DELIVERY_MAX_DEPTH;
    int has_room = self->node_count < BH_DELIVERY_MAX_ENTRIES && string.size <= BH_DELIVERY_MAX_BYTES &&
                   self->text_bytes + name.size + string.size <= BH_DELIVERY_MAX_BYTES;
    int is_kept = has_room && !is_too_deep && self->kept_depth == self->open_count;
    if (is_kept) {
        bh_status status = keep(self, name, node, string);
        if (status != BH_OK)
            return status;
    } else {
        self->is_truncated = 1;
        self->has_lost_headers |= !has_room;
    }

    size_t bytes = (in_array ? 0 : 1 + name.size) + 1 + bh__value_bytes(type) + string.size;
    if (self->open_count == 0)
        self->header_start = self->headers_bytes;
    self->headers_bytes += bytes;
    self->has_headers = 1;
    if (is_container) {
        self->open[self->open_count++] = (char)type;
        if (is_kept)
            self->path[self->kept_depth++] = self->node_count - 1;
    } else if (self->open_count == 0 && is_kept) {
        self->nodes[self->node_count - 1].bytes = bytes;
    }
    return BH_OK;
}

bh_status bh_delivery_push(bh_delivery *self, const bh_value *value)
{
    if (!self || !value || !value->name.data)
        return BH_ERR_ARGUMENT;
    unsigned fields = (unsigned)value->type < TYPES ? fields_of[value->type] : 0;
    if (!is_valid(value, fields))
        return BH_ERR_ARGUMENT;
    bh__node node = {.type = value->type, .places = value->places, .number = value->integer, .real = value->number};
    return push(self, value->name, &node, fields & HAS_STRING ? value->string : bh_str(""));
}

bh_status bh_delivery_end(bh_delivery *self)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    if (self->open_count == 0)
        return BH_ERR_STATE;
    if (self->kept_depth == self->open_count) {
        bh__node *node = &self->nodes[self->path[--self->kept_depth]];
        node->end = self->node_count;
        if (self->kept_depth == 0)
            node->bytes = self->headers_bytes - self->header_start;
    }
    self->open_count--;
    return BH_OK;
}

bh_bytes bh__delivery_exchange(const bh_delivery *self)
{
    return self ? bh__store_get(&self->store, self->exchange) : bh_str("");
}

bh_bytes bh__delivery_routing_key(const bh_delivery *self)
{
    return self ? bh__store_get(&self->store, self->routing_key) : bh_str("");
}

int bh_delivery_has_property(const bh_delivery *self, bh_property property)
{
    if (!self || !is_property(property))
        return 0;
    return property == BH_PROPERTY_HEADERS ? self->has_headers : self->has_property[property];
}

bh_bytes bh_delivery_property(const bh_delivery *self, bh_property property)
{
    return self && is_property(property) ? bh__store_get(&self->store, self->strings[property]) : bh_str("");
}

int64_t bh_delivery_number(const bh_delivery *self, bh_property property)
{
    return self && is_property(property) ? self->numbers[property] : 0;
}

bh__tree bh__delivery_tree(const bh_delivery *self)
{
    bh__tree tree = {self->nodes, self->node_count, &self->store};
    return tree;
}

bh__text bh__delivery_property_text(const bh_delivery *self, bh_property property)
{
    return self->strings[property];
}

bh__text bh__delivery_exchange_text(const bh_delivery *self)
{
    return self->exchange;
}

bh__text bh__delivery_routing_key_text(const bh_delivery *self)
{
    return self->routing_key;
}

const bh__node *bh__delivery_header(const bh_delivery *self, bh_bytes name)
{
    for (size_t i = 0; i < self->node_count; i = self->nodes[i].end)
        if (bh__same(bh__store_get(&self->store, self->nodes[i].name), name))
            return &self->nodes[i];
    return NULL;
}

int bh__delivery_is_open(const bh_delivery *self)
{
    return self->open_count > 0;
}

static bh_status fill(const bh_delivery *self, const bh__node *node, bh_value *out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    if (!node) {
        *out = (bh_value){.name = bh_str(""), .string = bh_str("")};
        return BH_ERR_ARGUMENT;
    }
    *out = (bh_value){
        .type = node->type,
        .name = bh__store_get(&self->store, node->name),
        .string = bh__store_get(&self->store, node->string),
        .integer = node->number,
        .number = node->real,
        .places = node->places,
        .end = node->end,
    };
    return BH_OK;
}

bh_status bh_delivery_header(const bh_delivery *self, bh_bytes name, bh_value *out)
{
    return fill(self, self ? bh__delivery_header(self, name) : NULL, out);
}

size_t bh__delivery_value_count(const bh_delivery *self)
{
    return self ? self->node_count : 0;
}

void bh_delivery_read(const bh_delivery *self, bh_delivery_view *out)
{
    if (out)
        *out = (bh_delivery_view){.exchange = bh__delivery_exchange(self),
                                  .routing_key = bh__delivery_routing_key(self),
                                  .value_count = bh__delivery_value_count(self),
                                  .is_truncated = bh__delivery_is_truncated(self)};
}

bh_status bh_delivery_value(const bh_delivery *self, size_t index, bh_value *out)
{
    return fill(self, self && index < self->node_count ? &self->nodes[index] : NULL, out);
}

int bh__delivery_is_truncated(const bh_delivery *self)
{
    return self ? self->is_truncated : 0;
}

int bh__delivery_lost_headers(const bh_delivery *self)
{
    return self->has_lost_headers;
}

size_t bh__delivery_property_bytes(const bh_delivery *self, bh_property property)
{
    if (!self->has_property[property])
        return 0;
    if (property == BH_PROPERTY_TIMESTAMP)
        return 8;
    return is_number(property) ? 1 : 1 + self->strings[property].size;
}

size_t bh__delivery_headers_bytes(const bh_delivery *self)
{
    return self->headers_bytes;
}

int64_t bh_delivery_header_bytes(const bh_delivery *self)
{
    if (!self)
        return 0;
    size_t bytes = 2;
    for (int property = 0; property < BH_PROPERTY_LAST; property++)
        bytes += bh__delivery_property_bytes(self, (bh_property)property);
    if (self->has_headers)
        bytes += 4 + self->headers_bytes;
    return (int64_t)bytes;
}
