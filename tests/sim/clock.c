#include "worker/wire/clock.h"

#include "schedule.h"

int64_t bh__monotonic_us(void)
{
    return SCHEDULE_BEGIN_US + schedule_now_us();
}

int64_t bh__monotonic_ms(void)
{
    return bh__monotonic_us() / 1000;
}

int64_t bh__epoch_ms(void)
{
    return SCHEDULE_EPOCH_MS + schedule_now_ms() + schedule_jumped_ms();
}

int bh__random(void *bytes, size_t size)
{
    tape_fill(bytes, size, schedule_random());
    return 1;
}
