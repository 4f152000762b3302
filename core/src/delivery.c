#include "delivery_internal.h"

#include <stdlib.h>

enum { LONGEST_SHORT_STRING = 255 };

struct bh_delivery {
    bh__store store;
    bh__node *nodes;
    size_t node_count;
    size_t node_capacity;
    char *open; /* types of the tables and arrays that are open, outermost first */
    size_t open_count;
    size_t open_capacity;
    size_t path[BH_DELIVERY_MAX_DEPTH]; /* their nodes, as far as they are kept */
    size_t kept_depth;
    size_t header_start; /* headers_bytes where the header being pushed began */
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
    if (text.size > LONGEST_SHORT_STRING || !text.data)
        return BH_ERR_ARGUMENT;
    return bh__store_add(&self->store, out, text) ? BH_OK : BH_ERR_NO_MEMORY;
}

bh_status bh_delivery_set_exchange(bh_delivery *self, bh_bytes exchange)
{
    return self ? set_short_string(self, &self->exchange, exchange) : BH_ERR_ARGUMENT;
}

bh_status bh_delivery_set_routing_key(bh_delivery *self, bh_bytes routing_key)
{
    return self ? set_short_string(self, &self->routing_key, routing_key) : BH_ERR_ARGUMENT;
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

/* Appends a value under the table or array begun last, or leaves it out where that one was left out or a limit is
 * reached. What is left out is measured all the same. */
static bh_status push(bh_delivery *self, bh_bytes name, bh__node node, bh_bytes string)
{
    if (!self || !name.data || !string.data)
        return BH_ERR_ARGUMENT;
    bh_type type = node.type;
    int in_array = self->open_count > 0 && self->open[self->open_count - 1] == BH_TYPE_ARRAY;
    if (in_array)
        name.size = 0;
    if (name.size > LONGEST_SHORT_STRING)
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
        void *nodes = self->nodes;
        if (!bh__reserve(&nodes, &self->node_capacity, sizeof *self->nodes, self->node_count + 1))
            return BH_ERR_NO_MEMORY;
        self->nodes = nodes;
        node.end = self->node_count + 1;
        if (!bh__store_add(&self->store, &node.name, name) || !bh__store_add(&self->store, &node.string, string))
            return BH_ERR_NO_MEMORY;
        self->nodes[self->node_count++] = node;
        self->text_bytes += name.size + string.size;
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

bh_status bh_delivery_push_int(bh_delivery *self, bh_bytes name, bh_type type, int64_t value)
{
    if (!bh__is_integer(type) && type != BH_TYPE_BOOLEAN && type != BH_TYPE_TIMESTAMP)
        return BH_ERR_ARGUMENT;
    return push(self, name, (bh__node){.type = type, .number = value}, bh_str(""));
}

bh_status bh_delivery_push_float(bh_delivery *self, bh_bytes name, bh_type type, double value)
{
    if (type != BH_TYPE_FLOAT && type != BH_TYPE_DOUBLE)
        return BH_ERR_ARGUMENT;
    return push(self, name, (bh__node){.type = type, .real = value}, bh_str(""));
}

bh_status bh_delivery_push_decimal(bh_delivery *self, bh_bytes name, int places, int64_t value)
{
    if (places < 0 || places > 255)
        return BH_ERR_ARGUMENT;
    return push(self, name, (bh__node){.type = BH_TYPE_DECIMAL, .places = places, .number = value}, bh_str(""));
}

bh_status bh_delivery_push_string(bh_delivery *self, bh_bytes name, bh_type type, bh_bytes value)
{
    if (type != BH_TYPE_STRING && type != BH_TYPE_BYTES)
        return BH_ERR_ARGUMENT;
    return push(self, name, (bh__node){.type = type}, value);
}

bh_status bh_delivery_push_void(bh_delivery *self, bh_bytes name)
{
    return push(self, name, (bh__node){.type = BH_TYPE_VOID}, bh_str(""));
}

bh_status bh_delivery_begin_table(bh_delivery *self, bh_bytes name)
{
    return push(self, name, (bh__node){.type = BH_TYPE_TABLE}, bh_str(""));
}

bh_status bh_delivery_begin_array(bh_delivery *self, bh_bytes name)
{
    return push(self, name, (bh__node){.type = BH_TYPE_ARRAY}, bh_str(""));
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

bh_bytes bh_delivery_exchange(const bh_delivery *self)
{
    return self ? bh__store_get(&self->store, self->exchange) : bh_str("");
}

bh_bytes bh_delivery_routing_key(const bh_delivery *self)
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

int bh_delivery_header_type(const bh_delivery *self, bh_bytes name)
{
    const bh__node *node = self ? bh__delivery_header(self, name) : NULL;
    return node ? (int)node->type : 0;
}

bh_bytes bh_delivery_header_string(const bh_delivery *self, bh_bytes name)
{
    const bh__node *node = self ? bh__delivery_header(self, name) : NULL;
    return node ? bh__store_get(&self->store, node->string) : bh_str("");
}

int64_t bh_delivery_header_int(const bh_delivery *self, bh_bytes name)
{
    const bh__node *node = self ? bh__delivery_header(self, name) : NULL;
    return node && node->type != BH_TYPE_DECIMAL ? node->number : 0;
}

size_t bh_delivery_value_count(const bh_delivery *self)
{
    return self ? self->node_count : 0;
}

static const bh__node *value_at(const bh_delivery *self, size_t index)
{
    static const bh__node none;
    return self && index < self->node_count ? &self->nodes[index] : &none;
}

int bh_delivery_value_type(const bh_delivery *self, size_t index)
{
    return (int)value_at(self, index)->type;
}

bh_bytes bh_delivery_value_name(const bh_delivery *self, size_t index)
{
    return self ? bh__store_get(&self->store, value_at(self, index)->name) : bh_str("");
}

size_t bh_delivery_value_end(const bh_delivery *self, size_t index)
{
    return value_at(self, index)->end;
}

bh_bytes bh_delivery_value_string(const bh_delivery *self, size_t index)
{
    return self ? bh__store_get(&self->store, value_at(self, index)->string) : bh_str("");
}

int64_t bh_delivery_value_int(const bh_delivery *self, size_t index)
{
    return value_at(self, index)->number;
}

double bh_delivery_value_float(const bh_delivery *self, size_t index)
{
    return value_at(self, index)->real;
}

int bh_delivery_value_places(const bh_delivery *self, size_t index)
{
    return value_at(self, index)->places;
}

int bh_delivery_is_truncated(const bh_delivery *self)
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
