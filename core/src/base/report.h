/* Report: a status and its text, which is appended piece by piece. Internal. */
#ifndef BACKHOP_REPORT_H
#define BACKHOP_REPORT_H

#include <backhop/status.h>
#include <stdint.h>

/* All fields 0: an empty report. */
typedef struct bh__report {
    bh_status status;
    char *text;
    size_t size;
    size_t capacity;
} bh__report;

void bh__report_free(bh__report *self);
void bh__report_clear(bh__report *self);
/* Appends a text. If memory runs out, the text is cut. */
void bh__report_add(bh__report *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a duration: "0.25 s", "12 s", "4 min 30 s", "2 h". */
void bh__report_add_duration(bh__report *self, int64_t span_ms);
/* Appends "once", "3 times". */
void bh__report_add_times(bh__report *self, int64_t count);
/*
 * Appends untrusted text: each byte that is not UTF-8, and each control character (bh__is_control),
 * as "?". Line feeds and tabs stay if `has_lines`, else they become spaces.
 */
void bh__report_add_shown(bh__report *self, bh_bytes text, int has_lines);
/* Replaces status and text, and returns the status. */
bh_status bh__report_set(bh__report *self, bh_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns the text; bh_status_text of the status if the text is empty. */
bh_bytes bh__report_text(const bh__report *self);

#endif
