#include "event_internal.h"

#include <stdlib.h>

enum {
    MOST_ID_BYTES = 128,
    LINES_A_SECOND = 10,
    SECOND_MS = 1000,
    QUEUES = 32 /* that a log tells apart, by a hash: others share their ten lines */
};

/* ---------------------------------------------------------------------------------------------------------------- line */

static int is_about_a_message(bh_event_kind kind)
{
    switch (kind) {
    case BH_EVENT_DELIVERED:
    case BH_EVENT_SUCCEEDED:
    case BH_EVENT_FAILED:
    case BH_EVENT_RETRIED:
    case BH_EVENT_PARKED:
    case BH_EVENT_DROPPED:
    case BH_EVENT_RETURNED:
    case BH_EVENT_NACKED:
    case BH_EVENT_REFUSED:
    case BH_EVENT_STALE:
        return 1;
    default:
        return 0;
    }
}

static void add_quoted(bh__report *out, bh_bytes text)
{
    bh__report_add(out, "\"");
    bh__report_add_shown(out, text, 0);
    bh__report_add(out, "\"");
}

/* Before each part: the first one comes behind the event's name. */
static void begin_part(bh__report *out, const bh_event *self)
{
    bh__report_add(out, out->size == bh_event_name((int)self->kind).size ? ": " : ", ");
}

/* Whom it is about: the message, the queue. */
static void add_subject(bh__report *out, const bh_event *self)
{
    bh_bytes id = bh_event_string(self, BH_FIELD_ID), queue = bh_event_string(self, BH_FIELD_QUEUE);
    int is_message = id.size || is_about_a_message(self->kind);
    if (!is_message && !queue.size)
        return;
    begin_part(out, self);
    bh__report_add(out, id.size ? "message " : is_message ? "a message" : "queue ");
    if (id.size)
        add_quoted(out, bh__cut(id, MOST_ID_BYTES));
    if (is_message && queue.size)
        bh__report_add(out, " of ");
    if (queue.size)
        add_quoted(out, queue);
}

static void add_connection(bh__report *out, const bh_event *self)
{
    bh_bytes connection = bh_event_string(self, BH_FIELD_CONNECTION), host = bh_event_string(self, BH_FIELD_HOST);
    if (!connection.size && !host.size)
        return;
    begin_part(out, self);
    bh__report_add_shown(out, connection, 0);
    bh__report_add(out, "%sconnection%s", connection.size ? " " : "", host.size ? " to " : "");
    bh__report_add_shown(out, host, 0);
}

static void add_attempts(bh__report *out, const bh_event *self)
{
    int64_t attempts = bh_event_int(self, BH_FIELD_ATTEMPTS);
    if (!bh_event_has(self, BH_FIELD_ATTEMPT) && attempts <= 0)
        return;
    begin_part(out, self);
    if (bh_event_has(self, BH_FIELD_ATTEMPT)) {
        bh__report_add(out, "attempt %lld", (long long)bh_event_int(self, BH_FIELD_ATTEMPT));
    } else {
        bh__report_add(out, "failed ");
        bh__report_add_times(out, attempts);
    }
}

static void add_span(bh__report *out, const bh_event *self, bh_field field, const char *before, const char *after)
{
    int64_t span = bh_event_int(self, field);
    if (span <= 0)
        return;
    begin_part(out, self);
    bh__report_add(out, "%s", before);
    if (field == BH_FIELD_DURATION && span < 60000000)
        bh__report_add(out, "%.3g s", (double)span / 1e6);
    else
        bh__report_add_duration(out, field == BH_FIELD_DURATION ? span / 1000 : span);
    bh__report_add(out, "%s", after);
}

static void add_spans(bh__report *out, const bh_event *self)
{
    int is_copy = self->kind == BH_EVENT_RETRIED || self->kind == BH_EVENT_PARKED;
    int tells_delay = self->kind == BH_EVENT_RETURNED || self->kind == BH_EVENT_NACKED;
    add_span(out, self, BH_FIELD_LATENESS, "", " late");
    if (!is_copy) /* how long its confirm took is for metrics */
        add_span(out, self, BH_FIELD_DURATION, "in ", "");
    add_span(out, self, BH_FIELD_RECOVERY, "", " after its first failure");
    if (!tells_delay) /* their texts do */
        add_span(out, self, BH_FIELD_DELAY, "again in ", "");
}

static void add_reason(bh__report *out, const bh_event *self)
{
    int64_t count = bh_event_int(self, BH_FIELD_COUNT);
    bh_bytes reason = bh_event_string(self, BH_FIELD_REASON);
    if (reason.size) {
        begin_part(out, self);
        bh__report_add_shown(out, reason, 0);
    }
    if (count > 0 && !is_about_a_message(self->kind)) {
        begin_part(out, self);
        bh__report_add(out, "%lld %s%s", (long long)count, self->kind == BH_EVENT_MISSED ? "event" : "message",
                       count == 1 ? "" : "s");
    }
}

/* The error's class, where its text does not begin with it; and the texts. */
static void add_error(bh__report *out, const bh_event *self)
{
    bh_bytes name = bh_event_string(self, BH_FIELD_ERROR_CLASS), error = bh_event_string(self, BH_FIELD_ERROR);
    int is_named = name.size && error.size >= name.size && memcmp(error.data, name.data, name.size) == 0;
    const bh_bytes parts[] = {is_named ? bh_str("") : name, bh__cut(error, BH_HISTORY_MOST_ERROR_BYTES),
                              bh__event_words(self)};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!parts[i].size)
            continue;
        bh__report_add(out, ": ");
        bh__report_add_shown(out, parts[i], 0);
    }
}

static void write_line(bh__report *out, const bh_event *self)
{
    bh__report_clear(out);
    bh__report_add(out, "%s", bh_event_name((int)self->kind).data);
    add_subject(out, self);
    add_connection(out, self);
    add_attempts(out, self);
    add_spans(out, self);
    add_reason(out, self);
    add_error(out, self);
}

bh_bytes bh_event_line(const bh_event *self)
{
    if (!self)
        return bh_str("");
    write_line(self->line, self);
    return bh__report_text(self->line);
}

/* ----------------------------------------------------------------------------------------------------------------- log */

/* Lines of one kind. */
typedef struct flood {
    int64_t since_ms; /* the second of which the lines are counted */
    int count;
    int64_t left_out; /* since the last line */
} flood;

struct bh_log {
    flood events[BH_EVENT_LAST][QUEUES];
    flood listeners[QUEUES]; /* that failed */
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

/* Whether one more line is to be written now. */
static int admit_line(flood *self, int64_t now_ms)
{
    if (self->count == 0 || now_ms < self->since_ms || now_ms - self->since_ms >= SECOND_MS) {
        self->since_ms = now_ms;
        self->count = 0;
    }
    if (self->count >= LINES_A_SECOND) {
        self->left_out++;
        return 0;
    }
    self->count++;
    return 1;
}

/* Says in a line that was admitted what is left out. */
static bh_bytes end_line(flood *self, bh__report *line)
{
    if (self->left_out)
        bh__report_add(line, " (%lld more like it were left out before)", (long long)self->left_out);
    if (self->count == LINES_A_SECOND)
        bh__report_add(line, " (further ones of this second are left out)");
    self->left_out = 0;
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
    write_line(event->line, event);
    return end_line(of, event->line);
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
        add_quoted(event->line, queue);
    }
    bh__report_add(event->line, ": ");
    bh__report_add_shown(event->line, bh__cut(error, BH_HISTORY_MOST_ERROR_BYTES), 0);
    return end_line(of, event->line);
}
