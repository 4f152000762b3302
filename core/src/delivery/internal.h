/* The delivery's header tree, for history, plan and relay. Internal. */
#ifndef BACKHOP_DELIVERY_INTERNAL_H
#define BACKHOP_DELIVERY_INTERNAL_H

#include "base/memory.h"

#include <backhop/adapter/delivery.h>

enum { BH__SHORT_STRING_BYTES = 255 }; /* the longest short string of AMQP */

/*
 * A value of the header tree. The tree is an array: each value is followed by the values inside it.
 * `end` is the index after the last of them.
 */
typedef struct bh__node {
    bh_type type;
    int places; /* of a decimal: number * 10^-places */
    bh__text name;
    size_t end;
    size_t bytes; /* on the wire, with name and type; set for headers only */
    int64_t number;
    double real; /* of a float or double */
    bh__text string;
} bh__node;

/* Headers are the nodes 0, nodes[0].end, nodes[nodes[0].end].end, ... below count. */
typedef struct bh__tree {
    const bh__node *nodes;
    size_t count;
    const bh__store *store;
} bh__tree;

/* Return what bh_delivery_view has of these names. */
bh_bytes bh__delivery_exchange(const bh_delivery *self);
bh_bytes bh__delivery_routing_key(const bh_delivery *self);
size_t bh__delivery_value_count(const bh_delivery *self);
int bh__delivery_is_truncated(const bh_delivery *self);
bh__tree bh__delivery_tree(const bh_delivery *self);
/* Returns a text of the delivery's store: a property, which is empty if it is missing; the
 * exchange; the routing key. */
bh__text bh__delivery_property_text(const bh_delivery *self, bh_property property);
bh__text bh__delivery_exchange_text(const bh_delivery *self);
bh__text bh__delivery_routing_key_text(const bh_delivery *self);
/* Returns the first header of this name, or NULL. */
const bh__node *bh__delivery_header(const bh_delivery *self, bh_bytes name);
/* Returns 1 if a whole header may be missing. Returns 0 if only values below BH_DELIVERY_MAX_DEPTH
 * are missing. */
int bh__delivery_lost_headers(const bh_delivery *self);
/* Returns 1 while a table or array is open. */
int bh__delivery_is_open(const bh_delivery *self);
int bh__is_integer(bh_type type);
/*
 * Returns the bytes of a value on the wire, without its name and type. For strings, tables and
 * arrays, these are the bytes of the length. 0 for a void, and for an unknown type.
 */
size_t bh__value_bytes(bh_type type);
/* Returns the bytes of a property on the wire; 0 if it is missing. */
size_t bh__delivery_property_bytes(const bh_delivery *self, bh_property property);
/* Returns the bytes of all headers on the wire, without the table's length. */
size_t bh__delivery_headers_bytes(const bh_delivery *self);

#endif
