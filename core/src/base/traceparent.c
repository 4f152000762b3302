#include "base/traceparent.h"

static int is_hex(const char *text, size_t size, int *is_zero)
{
    *is_zero = 1;
    for (size_t i = 0; i < size; i++) {
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
            return 0;
        *is_zero &= text[i] == '0';
    }
    return 1;
}

int bh__is_traceparent(bh_bytes text)
{
    enum { TRACE = 3, TRACE_DIGITS = 32, SPAN = 36, SPAN_DIGITS = 16, FLAGS = 53, FLAGS_DIGITS = 2 };
    int is_no_trace, is_no_span, is_no_flag;
    return text.size == BH__TRACEPARENT_BYTES && memcmp(text.data, "00-", TRACE) == 0 && text.data[SPAN - 1] == '-' &&
           text.data[FLAGS - 1] == '-' && is_hex(text.data + TRACE, TRACE_DIGITS, &is_no_trace) && !is_no_trace &&
           is_hex(text.data + SPAN, SPAN_DIGITS, &is_no_span) && !is_no_span &&
           is_hex(text.data + FLAGS, FLAGS_DIGITS, &is_no_flag);
}
