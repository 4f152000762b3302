#define _DEFAULT_SOURCE

#include "memory.h"
#include "worker_internal.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

enum {
    SLICE_MS = 1000, /* heartbeats are looked after as often */
    TAKE_MS = 60000
};

static int is_stopped(bh_worker *self)
{
    return atomic_load(&self->is_stopped);
}

/* Waits, unless told to stop. */
static void pause_for(bh_worker *self, int64_t ms)
{
    int64_t end_ms = bh__monotonic_ms() + ms;
    for (int64_t left_ms = ms; left_ms > 0 && !is_stopped(self); left_ms = end_ms - bh__monotonic_ms()) {
        struct pollfd wake = {.fd = self->wake[0], .events = POLLIN};
        poll(&wake, 1, (int)(left_ms < SLICE_MS ? left_ms : SLICE_MS));
        bh__worker_service(self);
    }
}

static double draw(void)
{
    char bytes[8] = {0};
    bh__random(bytes, sizeof bytes);
    return bh__random_number(bytes);
}

/* Until the copy is safe, or the worker stopped. */
static bh_status settle(bh_worker *self, bh_outcome outcome)
{
    bh_bytes error = {self->error, self->error_size};
    for (int64_t attempt = 1;; attempt++) {
        bh_status status = bh_worker_settle(self, outcome, error, self->retry_after_ms);
        if (status != BH_ERR_PUBLISH)
            return status;
        pause_for(self, bh_policy_delay_ms(self->back_off, attempt, 0, draw()));
        if (is_stopped(self))
            return BH_OK;
    }
}

static void forget_failure(bh_worker *self)
{
    self->error_size = 0;
    self->retry_after_ms = 0;
}

static void forget_stop(bh_worker *self)
{
    char bytes[64];
    while (read(self->wake[0], bytes, sizeof bytes) > 0)
        continue;
    atomic_store(&self->is_stopped, 0);
}

/* A message that is current still was refused; the channel that ended took it along. */
static bh_status handle(bh_worker *self, bh_handler handler, void *data)
{
    forget_failure(self);
    bh_status status = settle(self, handler(self, data));
    if (!bh__worker_is_refusal(status) || !self->is_current)
        return status;
    bh__worker_keep_refusal(self);
    return bh__worker_leave_behind(self);
}

bh_status bh_worker_run(bh_worker *self, bh_handler handler, void *data)
{
    if (!self || !handler)
        return BH_ERR_ARGUMENT;
    self->is_running = 1;
    bh__report_clear(&self->refusal);
    bh_status status = BH_OK;
    while (status == BH_OK && !is_stopped(self)) {
        status = self->is_current ? BH_OK : bh__worker_take(self, TAKE_MS);
        if (status == BH_ERR_TIMEOUT)
            status = BH_OK;
        else if (status == BH_OK)
            status = handle(self, handler, data);
    }
    self->is_running = 0;
    forget_stop(self);
    return status == BH_OK ? bh__worker_end_refusals(self) : status;
}

bh_status bh_worker_fail(bh_worker *self, bh_bytes error, int64_t retry_after_ms)
{
    if (!self || (error.size && !error.data) || retry_after_ms < 0)
        return BH_ERR_ARGUMENT;
    if (!self->is_current)
        return bh__report_set(&self->report, BH_ERR_STATE, "no message is taken");
    self->error_size = error.size < sizeof self->error ? error.size : sizeof self->error;
    if (self->error_size)
        memcpy(self->error, error.data, self->error_size);
    self->retry_after_ms = retry_after_ms;
    return BH_OK;
}

void bh_worker_stop(bh_worker *self)
{
    if (!self)
        return;
    int kept = errno;
    atomic_store(&self->is_stopped, 1);
    ssize_t written = write(self->wake[1], "", 1);
    (void)written; /* a full pipe wakes too */
    errno = kept;
}
