/*
 * Difference: how an exchange or queue differs, read from the broker's text. Internal.
 *
 * RabbitMQ writes: "PRECONDITION_FAILED - inequivalent arg 'A' for queue 'Q' in vhost 'V': received
 * R but current is C". It writes a value as 'V', as "the value 'V' of type 'T'", or as none. It
 * cuts the text to 255 bytes. If names are long, the values can be missing.
 */
#ifndef BACKHOP_TOPOLOGY_DIFFERENCE_H
#define BACKHOP_TOPOLOGY_DIFFERENCE_H

#include <backhop/topology.h>

typedef struct bh__difference {
    bh_bytes argument; /* "": the broker's text has another form */
    bh_bytes received; /* "": cut off, and so is `current` */
    bh_bytes current;
    int is_cut; /* the end of the text is missing */
} bh__difference;

bh__difference bh__read_difference(bh_bytes text);
/* Returns V of "the value 'V' of type 'T'" or 'V'; other texts unchanged. */
bh_bytes bh__bare_value(bh_bytes text);
/* Returns 1 if the current value, which may be cut, is <before><value><after>. */
int bh__is_current(const bh__difference *found, const char *before, bh_bytes value, const char *after);

/* Returns the argument that keeps a step that compares from creating anything. */
bh_bytes bh__blocking_argument(const bh_declaration *step);

#endif
