/* Log: the bound on the lines of each second. */
#include "events/internal.h"

#include <backhop/adapter/history.h>

#include <stdlib.h>

enum {
    LINES_A_SECOND = 10,
    SECOND_MS = 1000,
    QUEUES = 32 /* buckets by a hash of the name; the queues of a bucket share their lines */
};

/* The lines of one event kind and bucket. */
typedef struct flood {
    int64_t since_ms; /* when the current second began */
    int count;        /* lines in that second */
    int64_t omitted;  /* lines since the last one that was written */
} flood;

struct bh_log {
    flood events[BH_EVENT_LAST][QUEUES];
    flood listeners[QUEUES]; /* failures of listeners */
};

bh_status bh_log_new(bh_log **out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = calloc(1, sizeof **out);
    return *out ? BH_OK : BH_ERR_NO_MEMORY;
}

void bh_log_free(bh_log *self)
{
    free(self);
}

static size_t queue_of(const bh_event *event)
{
    return bh__hash(bh_event_string(event, BH_FIELD_QUEUE)) % QUEUES;
}

/* Returns 1 if the log may write one more line now. */
static int admit_line(flood *self, int64_t now_ms)
{
    if (self->count == 0 || now_ms < self->since_ms || now_ms - self->since_ms >= SECOND_MS) {
        self->since_ms = now_ms;
        self->count = 0;
    }
    if (self->count >= LINES_A_SECOND) {
        self->omitted++;
        return 0;
    }
    self->count++;
    return 1;
}

/* Appends how many lines are omitted. */
static bh_bytes end_line(flood *self, bh__report *line)
{
    if (self->omitted)
        bh__report_add(line, " (%lld more like it were left out before)", (long long)self->omitted);
    if (self->count == LINES_A_SECOND)
        bh__report_add(line, " (further ones of this second are left out)");
    self->omitted = 0;
    return bh__report_text(line);
}

bh_bytes bh_log_line(bh_log *self, const bh_event *event, int64_t now_ms)
{
    if (!self || !event)
        return bh_str("");
    if (bh_event_level(event) == BH_LEVEL_DEBUG)
        return bh_event_line(event);
    flood *of = &self->events[event->kind][queue_of(event)];
    if (!admit_line(of, now_ms))
        return bh_str("");
    bh__line_write(event->line, event);
    return end_line(of, event->line);
}

bh_bytes bh_log_omitted_line(bh_log *self, const bh_event *event, int64_t now_ms)
{
    if (!self || !event)
        return bh_str("");
    flood *of = &self->events[event->kind][queue_of(event)];
    int is_over = now_ms < of->since_ms || now_ms - of->since_ms >= SECOND_MS;
    if (!of->omitted || !is_over)
        return bh_str("");
    bh_bytes queue = bh_event_string(event, BH_FIELD_QUEUE);
    bh__report_clear(event->line);
    bh__report_add(event->line, "%s: %lld more lines", bh_event_name((int)event->kind).data, (long long)of->omitted);
    if (queue.size) {
        bh__report_add(event->line, " of ");
        bh__line_add_quoted(event->line, queue);
    }
    bh__report_add(event->line, " were left out");
    of->omitted = 0;
    return bh__report_text(event->line);
}

bh_bytes bh_log_listener_line(bh_log *self, const bh_event *event, bh_bytes error, int64_t now_ms)
{
    if (!self || !event || !error.data)
        return bh_str("");
    flood *of = &self->listeners[queue_of(event)];
    if (!admit_line(of, now_ms))
        return bh_str("");
    bh_bytes queue = bh_event_string(event, BH_FIELD_QUEUE);
    bh__report_clear(event->line);
    bh__report_add(event->line, "a listener failed at %s", bh_event_name((int)event->kind).data);
    if (queue.size) {
        bh__report_add(event->line, " of ");
        bh__line_add_quoted(event->line, queue);
    }
    bh__report_add(event->line, ": ");
    bh__report_add_shown(event->line, bh__cut(error, BH_HISTORY_MOST_ERROR_BYTES), 0);
    return end_line(of, event->line);
}
