/* Traceparent: a span of a trace, in the form that W3C's Trace Context gives it (version 00). Internal. */
#ifndef BACKHOP_TRACEPARENT_H
#define BACKHOP_TRACEPARENT_H

#include <backhop/bytes.h>

enum { BH__TRACEPARENT_BYTES = 55 };

/* 1 where it is 00-<32 hex digits>-<16>-<2>, in lower case, and neither the trace's nor the span's id is all zeros. */
int bh__is_traceparent(bh_bytes text);

#endif
