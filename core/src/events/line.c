/* The line of an event. */
#include "events/internal.h"

#include <backhop/adapter/history.h>

enum { MOST_ID_BYTES = 128 };

static int is_about_a_message(bh_event_kind kind)
{
    switch (kind) {
    case BH_EVENT_DELIVERED:
    case BH_EVENT_SUCCEEDED:
    case BH_EVENT_FAILED:
    case BH_EVENT_RETRIED:
    case BH_EVENT_THROTTLED:
    case BH_EVENT_DEFERRED:
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

void bh__line_add_quoted(bh__report *out, bh_bytes text)
{
    bh__report_add(out, "\"");
    bh__report_add_shown(out, text, 0);
    bh__report_add(out, "\"");
}

/* Appends the separator before a part. The first part follows the name of the event. */
static void begin_part(bh__report *out, const bh_event *self)
{
    bh__report_add(out, out->size == bh_event_name((int)self->kind).size ? ": " : ", ");
}

static void add_subject(bh__report *out, const bh_event *self)
{
    bh_bytes id = bh_event_string(self, BH_FIELD_ID), queue = bh_event_string(self, BH_FIELD_QUEUE);
    int is_message = id.size || is_about_a_message(self->kind);
    if (!is_message && !queue.size)
        return;
    begin_part(out, self);
    bh__report_add(out, id.size ? "message " : is_message ? "a message" : "queue ");
    if (id.size)
        bh__line_add_quoted(out, bh__cut(id, MOST_ID_BYTES));
    if (is_message && queue.size)
        bh__report_add(out, " of ");
    if (queue.size)
        bh__line_add_quoted(out, queue);
}

static void add_breaker(bh__report *out, const bh_event *self)
{
    bh_bytes breaker = bh_event_string(self, BH_FIELD_BREAKER);
    if (!breaker.size)
        return;
    begin_part(out, self);
    bh__report_add(out, "breaker ");
    bh__line_add_quoted(out, breaker);
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

static void add_deferrals(bh__report *out, const bh_event *self)
{
    int64_t deferrals = bh_event_int(self, BH_FIELD_DEFERRALS);
    if (deferrals <= 0)
        return;
    begin_part(out, self);
    bh__report_add(out, "deferred ");
    bh__report_add_times(out, deferrals);
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

static const char *words_before_duration(bh_event_kind kind)
{
    int is_waiting = kind == BH_EVENT_BUSY || kind == BH_EVENT_DISCONNECTED;
    return is_waiting ? "for " : kind == BH_EVENT_EARLY ? "up to " : "in ";
}

static void add_spans(bh__report *out, const bh_event *self)
{
    int is_copy = self->kind == BH_EVENT_RETRIED || self->kind == BH_EVENT_DEFERRED || self->kind == BH_EVENT_PARKED;
    int has_delay_in_text = self->kind == BH_EVENT_RETURNED || self->kind == BH_EVENT_NACKED;
    add_span(out, self, BH_FIELD_LATENESS, "", " late");
    if (!is_copy) /* metrics show the duration of a copy */
        add_span(out, self, BH_FIELD_DURATION, words_before_duration(self->kind), "");
    add_span(out, self, BH_FIELD_RECOVERY, "", " after its first failure");
    if (!has_delay_in_text)
        add_span(out, self, BH_FIELD_DELAY, self->kind == BH_EVENT_BREAKER_OPENED ? "probes in " : "again in ", "");
}

static const char *counted_noun(bh_event_kind kind)
{
    return kind == BH_EVENT_MISSED ? "event" : kind == BH_EVENT_BUSY ? "handler" : "message";
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
        bh__report_add(out, "%lld %s%s", (long long)count, counted_noun(self->kind), count == 1 ? "" : "s");
    }
}

/* Appends the error and the text. Omits the class of the error if the error begins with it. */
static void add_error(bh__report *out, const bh_event *self)
{
    bh_bytes name = bh_event_string(self, BH_FIELD_ERROR_CLASS), error = bh_event_string(self, BH_FIELD_ERROR);
    int is_named = name.size && error.size >= name.size && memcmp(error.data, name.data, name.size) == 0;
    const bh_bytes parts[] = {is_named ? bh_str("") : name, bh__cut(error, BH_HISTORY_MOST_ERROR_BYTES),
                              bh__event_own_text(self)};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!parts[i].size)
            continue;
        bh__report_add(out, ": ");
        bh__report_add_shown(out, parts[i], 0);
    }
}

void bh__line_write(bh__report *out, const bh_event *self)
{
    bh__report_clear(out);
    bh__report_add(out, "%s", bh_event_name((int)self->kind).data);
    add_subject(out, self);
    add_breaker(out, self);
    add_connection(out, self);
    add_attempts(out, self);
    add_deferrals(out, self);
    add_spans(out, self);
    add_reason(out, self);
    add_error(out, self);
}

bh_bytes bh_event_line(const bh_event *self)
{
    if (!self)
        return bh_str("");
    bh__line_write(self->line, self);
    return bh__report_text(self->line);
}
