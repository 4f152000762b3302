#include "observe/overdue.h"

int64_t overdue_record(overdue *self, int64_t depth, int64_t ttl_ms, int64_t now_ms)
{
    int64_t window_ms = ttl_ms + OVERDUE_GRACE_MS;
    if (depth < 0 || !self->is_begun || depth < self->last || self->count == 0)
        *self = (overdue){.since_ms = now_ms, .older_ms = now_ms, .count = depth, .older_count = depth};
    self->is_begun = depth >= 0;
    self->last = depth;
    if (now_ms - self->since_ms >= window_ms) {
        self->older_ms = self->since_ms;
        self->older_count = self->count;
        self->since_ms = now_ms;
        self->count = depth;
    }
    return now_ms - self->older_ms >= window_ms && self->older_count > 0 ? self->older_count : 0;
}
