/* Event: its data, for the sources of events and for the worker. Internal. */
#ifndef BACKHOP_EVENT_INTERNAL_H
#define BACKHOP_EVENT_INTERNAL_H

#include "base/memory.h"
#include "base/report.h"

#include <backhop/event.h>

struct bh_event {
    bh_event *next; /* in the worker's queue */
    bh_event_kind kind;
    int64_t message; /* number of the worker's message; 0: none */
    uint32_t has;    /* one bit per field that is set */
    union {
        int64_t number;
        bh__text string; /* in the store */
    } fields[BH_FIELD_LAST];
    bh__store store;
    bh__report *line; /* a pointer, so that bh_event_line can write it for a const event */
};

/* Returns the text that was set, or the standard text of the kind. */
bh_bytes bh__event_own_text(const bh_event *self);
/* Returns 1 if events of this kind can change a health (bh_health_observe). */
int bh__health_concerns(bh_event_kind kind);
/* Returns the standard text of the event's kind, status and connection, or "". */
bh_bytes bh__event_standard_text(const bh_event *self);

/* Writes the line of the event, in place of what `out` holds. */
void bh__line_write(bh__report *out, const bh_event *self);
/* Appends untrusted text in quotes. */
void bh__line_add_quoted(bh__report *out, bh_bytes text);

/*
 * Returns 1 if a failure with this status lasts until an operator acts: on a setting, a permission,
 * a certificate or the broker.
 */
int bh__needs_a_person(bh_status status);

#endif
