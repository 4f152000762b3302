/* Event, as the worker makes it. Internal. */
#ifndef BACKHOP_EVENT_INTERNAL_H
#define BACKHOP_EVENT_INTERNAL_H

#include "memory.h"
#include "report.h"

#include <backhop/event.h>

struct bh_event {
    bh_event *next; /* in the worker's queue */
    bh_event_kind kind;
    int64_t message; /* the number of the worker's message that it is about; 0: none */
    uint32_t has;    /* a bit for each field that is set */
    union {
        int64_t number;
        bh__text string; /* in the store */
    } fields[BH_FIELD_LAST];
    bh__store store;
    bh__report *line; /* beside the event, so that who may only read it has its line */
};

/* The text that was set, else what the kind means each time. */
bh_bytes bh__event_words(const bh_event *self);

/* 1 where a failure with this status goes on until a person changes a setting, a permission, a certificate, the broker. */
int bh__needs_a_person(bh_status status);

#endif
