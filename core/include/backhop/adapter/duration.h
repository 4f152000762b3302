/* Duration: a time span as text. */
#ifndef BACKHOP_ADAPTER_DURATION_H
#define BACKHOP_ADAPTER_DURATION_H

#include <backhop/bytes.h>
#include <stdint.h>

BH_BEGIN_DECLS

/* The bytes that the text of any duration needs. */
#define BH_DURATION_ROOM 32

/*
 * Writes a time span as text for people: "0.25 s", "12 s", "4 min 30 s", "2 h", "3 d 4 h".
 *
 * Below one minute the text has three significant digits. From one minute on it has whole seconds,
 * and two units at most.
 *
 * span_ms: the time span in ms.
 * room: the result points into it; BH_DURATION_ROOM bytes.
 */
BH_API bh_bytes bh_duration_text(int64_t span_ms, char room[BH_DURATION_ROOM]);

/*
 * Returns the time span of a text in ms, rounded; a span above 0 is at least 1 ms. Returns -1 if
 * the text is no time span or has more than 2^53 ms.
 *
 * text: numbers with units, as "250ms", "1.5s", "5m", "5 min", "2h", "3d", "4 min 30 s". A number
 * needs its unit.
 */
BH_API int64_t bh_duration_ms(bh_bytes text);

BH_END_DECLS

#endif
