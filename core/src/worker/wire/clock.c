#include "worker/wire/clock.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static int64_t read_us(clockid_t clock)
{
    struct timespec now = {0, 0};
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t bh__monotonic_ms(void)
{
    return bh__monotonic_us() / 1000;
}

int64_t bh__monotonic_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

int64_t bh__epoch_ms(void)
{
    return read_us(CLOCK_REALTIME) / 1000;
}

int bh__random(void *bytes, size_t size)
{
    return getentropy(bytes, size) == 0;
}
