/* Traceparent: the header of W3C Trace Context, version 00. Internal. */
#ifndef BACKHOP_TRACEPARENT_H
#define BACKHOP_TRACEPARENT_H

#include <backhop/bytes.h>

enum { BH__TRACEPARENT_BYTES = 55 };

/*
 * Returns 1 for 00-<32 hex digits>-<16>-<2> in lower case, if neither the trace id nor the span id
 * is all zeros.
 */
int bh__is_traceparent(bh_bytes text);

#endif
