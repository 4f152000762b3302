/* Clock: time and random bytes, which the pure core is handed. Internal. */
#ifndef BACKHOP_WORKER_WIRE_CLOCK_H
#define BACKHOP_WORKER_WIRE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Milliseconds, and microseconds, that only grow, from an unknown start. */
int64_t bh__monotonic_ms(void);
int64_t bh__monotonic_us(void);
/* Milliseconds since the epoch. */
int64_t bh__epoch_ms(void);
/* Fills at most 256 bytes; false where the system has none. */
int bh__random(void *bytes, size_t size);

#endif
