/* Clock: time and random bytes, which the pure core gets as arguments. Internal. */
#ifndef BACKHOP_WORKER_WIRE_CLOCK_H
#define BACKHOP_WORKER_WIRE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Return monotonic milliseconds and microseconds, from an unknown start. */
int64_t bh__monotonic_ms(void);
int64_t bh__monotonic_us(void);
/* Returns milliseconds since the epoch. */
int64_t bh__epoch_ms(void);
/* Returns the earlier of two times. */
static inline int64_t bh__earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Fills at most 256 bytes. Returns 0 if the system has no random bytes. */
int bh__random(void *bytes, size_t size);

#endif
