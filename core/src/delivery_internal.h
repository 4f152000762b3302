/* Delivery, as history and plan see it: the header tree. Internal. */
#ifndef BACKHOP_DELIVERY_INTERNAL_H
#define BACKHOP_DELIVERY_INTERNAL_H

#include "memory.h"

#include <backhop/delivery.h>

/* A value. The tree lies flat, each value before what is in it; `end` is the index after the last value within. */
typedef struct bh__node {
    bh_type type;
    int places; /* of a decimal, whose digits are the number */
    bh__text name;
    size_t end;
    size_t bytes; /* on the wire, name and type included; of a header only */
    int64_t number;
    double real; /* a float's or double's */
    bh__text string;
} bh__node;

/* Headers are the nodes 0, nodes[0].end, nodes[nodes[0].end].end, ... below count. */
typedef struct bh__tree {
    const bh__node *nodes;
    size_t count;
    const bh__store *store;
} bh__tree;

bh__tree bh__delivery_tree(const bh_delivery *self);
/* The text of a string property, all zero where it is absent; of the exchange and the routing key. */
bh__text bh__delivery_property_text(const bh_delivery *self, bh_property property);
bh__text bh__delivery_exchange_text(const bh_delivery *self);
bh__text bh__delivery_routing_key_text(const bh_delivery *self);
/* The first header of this name; NULL for none. */
const bh__node *bh__delivery_header(const bh_delivery *self, bh_bytes name);
/* 1 where more was left out than what lies too deep to matter: a whole header, perhaps. */
int bh__delivery_lost_headers(const bh_delivery *self);
/* 1 while a table or array is open. */
int bh__delivery_is_open(const bh_delivery *self);
int bh__is_integer(bh_type type);
/* Bytes of a value on the wire, without its name and type; of a string, table or array those of its length. 0 for a void,
 * and for a number that is no type. */
size_t bh__value_bytes(bh_type type);
/* Bytes of a property on the wire, 0 where it is absent. */
size_t bh__delivery_property_bytes(const bh_delivery *self, bh_property property);
/* Bytes of all headers on the wire, the table's length not included. */
size_t bh__delivery_headers_bytes(const bh_delivery *self);

#endif
