/* Event, as the worker makes it. Internal. */
#ifndef BACKHOP_EVENT_INTERNAL_H
#define BACKHOP_EVENT_INTERNAL_H

#include <backhop/event.h>

struct bh_event {
    bh_event *next; /* in the worker's queue */
    bh_event_kind kind;
    bh_status status;
    int64_t attempts;
    int64_t delay_ms;
    int64_t count;
    bh_bytes text; /* in `data` */
    bh_bytes id;
    bh_bytes connection;
    bh_bytes host;
    char data[];
};

/* An event with copies of the strings; NULL: no memory. */
bh_event *bh__event_new(bh_event_kind kind, bh_status status, bh_bytes text, bh_bytes id, bh_bytes connection,
                        bh_bytes host);

#endif
