/* Pair: a link whose broker is the test, at the other end of a pair of sockets. */
#ifndef BACKHOP_TESTS_WIRE_PAIR_H
#define BACKHOP_TESTS_WIRE_PAIR_H

#include "worker/wire/link.h"

typedef struct pair {
    bh__link link;
    int broker; /* the other end; -1: closed */
} pair;

void pair_open(pair *self);
void pair_close(pair *self);
/* Lets the link read what the broker sends; and reads what the link has written. */
void pair_send(pair *self, const void *bytes, size_t size);
size_t pair_receive(pair *self, char *bytes, size_t room);

/* Appends a frame. */
void add_frame(bh__buffer *to, int type, int channel, bh_bytes payload);
/* Appends the frame of a method. */
void add_method(bh__buffer *to, int channel, amqp_method_number_t method, void *arguments);
/* Appends a content header. */
void add_content(bh__buffer *to, int channel, uint64_t body_size, bh_bytes properties);

#endif
