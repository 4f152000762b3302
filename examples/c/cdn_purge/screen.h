/*
 * The demo's output. On a terminal the timeline grows in place; elsewhere each second is a line. Both end with the
 * whole timeline, the wait queues, the parked messages and the totals.
 */
#ifndef CDN_PURGE_SCREEN_H
#define CDN_PURGE_SCREEN_H

#include "record.h"

struct screen {
    struct record *record;
    int terminal; /* stdout is one, and it can draw in place */
    int colour;
    int utf8;
    int lines;       /* of the frame that stands there */
    int64_t next_ms; /* of the next frame, or line */
};

void screen_open(struct screen *self, struct record *record);
/* Draws the changes if it is time for it. */
void screen_update(struct screen *self);
/* Shows the results. Returns 1 if all is correct. Both threads have done their work. */
int screen_finish(struct screen *self, int64_t end_ms);
void screen_close(const struct screen *self);

#endif
