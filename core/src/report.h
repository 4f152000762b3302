/* Report: a text that is put together from pieces, as the sentence that a failed call leaves behind. Internal. */
#ifndef BACKHOP_REPORT_H
#define BACKHOP_REPORT_H

#include <backhop/status.h>
#include <stdint.h>

/* Zero bytes are an empty one. */
typedef struct bh__report {
    bh_status status;
    char *text;
    size_t size;
    size_t capacity;
} bh__report;

void bh__report_free(bh__report *self);
void bh__report_clear(bh__report *self);
/* Appends; without memory the sentence ends early. */
void bh__report_add(bh__report *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a time span for people: "0.25 s", "12 s", "4 min 30 s", "2 h". */
void bh__report_add_duration(bh__report *self, int64_t span_ms);
/* Appends "once", "3 times". */
void bh__report_add_times(bh__report *self, int64_t count);
/* Appends what strangers wrote: bytes that are no UTF-8, and characters that control a terminal, as "?". Lines stay, or
 * become one. */
void bh__report_add_shown(bh__report *self, bh_bytes text, int has_lines);
/* Replaces the sentence and returns the status. */
bh_status bh__report_set(bh__report *self, bh_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The sentence; that of the status where there is none. */
bh_bytes bh__report_text(const bh__report *self);

#endif
