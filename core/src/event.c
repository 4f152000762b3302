#include "event_internal.h"

#include "history_internal.h"
#include "plan_internal.h"

#include <stdlib.h>

bh_bytes bh_event_name(int kind)
{
#define NAME(name, word, level, meaning)                                                                               \
    case name:                                                                                                         \
        return bh_str(word);
    switch (kind) {
        BH_EVENT_LIST(NAME)
    default:
        return bh_str("");
    }
#undef NAME
}

static const struct {
    bh_bytes word;
    int is_string;
} fields[] = {
#define STRING 1
#define INT 0
#define FIELD(name, word, type, meaning) [name] = {BH__LITERAL(word), type},
    BH_FIELD_LIST(FIELD)
#undef FIELD
#undef INT
#undef STRING
};

static int is_field(int field)
{
    return field >= 0 && field < BH_FIELD_LAST;
}

bh_bytes bh_event_field(int field)
{
    return is_field(field) ? fields[field].word : bh_str("");
}

int bh_event_field_is_string(int field)
{
    return is_field(field) && fields[field].is_string;
}

bh_event_kind bh_event_of(bh_outcome outcome)
{
    switch (outcome) {
    case BH_OUTCOME_OK:
        return BH_EVENT_SUCCEEDED;
    case BH_OUTCOME_DROPPED:
        return BH_EVENT_DROPPED;
    case BH_OUTCOME_FAILED:
    case BH_OUTCOME_PERMANENT:
        return BH_EVENT_FAILED;
    default:
        return BH_EVENT_LAST;
    }
}

bh_event_kind bh_event_of_copy(bh_action action)
{
    switch (action) {
    case BH_ACTION_PARK:
        return BH_EVENT_PARKED;
    case BH_ACTION_REPLAY:
        return BH_EVENT_REPLAYED;
    default:
        return BH_EVENT_RETRIED;
    }
}

int bh_event_is_of_each(int kind)
{
    switch (kind) {
    case BH_EVENT_DELIVERED:
    case BH_EVENT_SUCCEEDED:
    case BH_EVENT_FAILED:
    case BH_EVENT_RETRIED:
    case BH_EVENT_DROPPED:
        return 1;
    default:
        return 0;
    }
}

/* -------------------------------------------------------------------------------------------------------- new and free */

static int is_kind(int kind)
{
    return kind >= 0 && kind < BH_EVENT_LAST;
}

bh_status bh_event_new(bh_event **out, bh_event_kind kind)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (!is_kind((int)kind))
        return BH_ERR_ARGUMENT;
    struct {
        bh_event event;
        bh__report line;
    } *made = calloc(1, sizeof *made);
    if (!made)
        return BH_ERR_NO_MEMORY;
    made->event.kind = kind;
    made->event.line = &made->line;
    *out = &made->event;
    return BH_OK;
}

void bh_event_free(bh_event *self)
{
    if (!self)
        return;
    bh__store_free(&self->store);
    bh__report_free(self->line);
    free(self);
}

bh_status bh_event_begin(bh_event *self, bh_event_kind kind)
{
    if (!self || !is_kind((int)kind))
        return BH_ERR_ARGUMENT;
    self->kind = kind;
    self->message = 0;
    self->has = 0;
    self->store.size = 0;
    return BH_OK;
}

/* -------------------------------------------------------------------------------------------------------------- fields */

bh_status bh_event_set_string(bh_event *self, bh_field field, bh_bytes value)
{
    if (!self || !bh_event_field_is_string((int)field) || !value.data)
        return BH_ERR_ARGUMENT;
    if (!bh__store_add(&self->store, &self->fields[field].string, value))
        return BH_ERR_NO_MEMORY;
    self->has |= 1U << field;
    return BH_OK;
}

bh_status bh_event_set_int(bh_event *self, bh_field field, int64_t value)
{
    if (!self || !is_field((int)field) || bh_event_field_is_string((int)field))
        return BH_ERR_ARGUMENT;
    self->fields[field].number = value;
    self->has |= 1U << field;
    return BH_OK;
}

bh_status bh_event_set_history(bh_event *self, const bh_history *history, int redelivered, int64_t now_ms)
{
    if (!self || !history)
        return BH_ERR_ARGUMENT;
    int64_t before = bh_history_attempts(history), recovery_ms = bh__history_recovery_ms(history, now_ms);
    int64_t late_ms = bh_history_lateness_ms(history, redelivered, now_ms);
    if (bh_history_has_id(history) && bh_event_set_string(self, BH_FIELD_ID, bh_history_id(history)) != BH_OK)
        return BH_ERR_NO_MEMORY;
    bh_event_set_int(self, BH_FIELD_ATTEMPT, before + 1);
    bh_event_set_int(self, BH_FIELD_ATTEMPTS, before + (self->kind == BH_EVENT_FAILED));
    if (self->kind == BH_EVENT_DELIVERED && late_ms >= 0)
        bh_event_set_int(self, BH_FIELD_LATENESS, late_ms);
    if (self->kind == BH_EVENT_SUCCEEDED && recovery_ms >= 0)
        bh_event_set_int(self, BH_FIELD_RECOVERY, recovery_ms);
    return BH_OK;
}

bh_status bh_event_set_plan(bh_event *self, const bh_plan *plan)
{
    if (!self || !plan)
        return BH_ERR_ARGUMENT;
    const struct {
        bh_field field;
        bh_bytes value;
    } strings[] = {{BH_FIELD_ID, bh_plan_id(plan)},
                   {BH_FIELD_REASON, bh_plan_reason(plan)},
                   {BH_FIELD_ERROR, bh__plan_error(plan)}};
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++)
        if (strings[i].value.size && bh_event_set_string(self, strings[i].field, strings[i].value) != BH_OK)
            return BH_ERR_NO_MEMORY;
    bh_event_set_int(self, BH_FIELD_ATTEMPTS, bh_plan_attempts(plan));
    if (bh_plan_delay_ms(plan) > 0)
        bh_event_set_int(self, BH_FIELD_DELAY, bh_plan_delay_ms(plan));
    return BH_OK;
}

bh_event_kind bh_event_what(const bh_event *self)
{
    return self ? self->kind : BH_EVENT_LAST;
}

int64_t bh_event_message(const bh_event *self)
{
    return self ? self->message : 0;
}

int bh_event_has(const bh_event *self, bh_field field)
{
    return self && is_field((int)field) && self->has >> field & 1;
}

bh_bytes bh_event_string(const bh_event *self, bh_field field)
{
    return bh_event_has(self, field) && fields[field].is_string
               ? bh__store_get(&self->store, self->fields[field].string)
               : bh_str("");
}

int64_t bh_event_int(const bh_event *self, bh_field field)
{
    return bh_event_has(self, field) && !fields[field].is_string ? self->fields[field].number : 0;
}

/* ---------------------------------------------------------------------------------------------------------------- text */

static bh_bytes unavailable_text(bh_bytes connection)
{
    if (bh__same(connection, bh_str("publish")))
        return bh_str("there is no channel to publish on: copies wait, and their originals are unacknowledged");
    return bh_str(bh__same(connection, bh_str("consume")) ? "the queue cannot be consumed: it is tried again" : "");
}

static bh_bytes replayed_text(bh_status status)
{
    switch (status) {
    case BH_ERR_CONTENT:
        return bh_str("a message can be neither read nor copied: it stays parked");
    case BH_ERR_CONNECTION:
        return bh_str("the connection was lost: what was not replayed stays parked");
    case BH_ERR_PUBLISH:
        return bh_str("no copy can be published: what was not replayed stays parked");
    default:
        return bh_str("");
    }
}

/* What a kind means each time, where nobody says more. */
static bh_bytes standard_text(const bh_event *self)
{
    switch (self->kind) {
    case BH_EVENT_REPLAYED:
        return replayed_text((bh_status)bh_event_int(self, BH_FIELD_STATUS));
    case BH_EVENT_REFUSED:
        return bh_str("it can be neither read nor copied: it stays unacknowledged for a while, and then comes again");
    case BH_EVENT_STALE:
        return bh_str(
            bh_event_int(self, BH_FIELD_STATUS) == BH_ERR_STATE
                ? "its handler ended after the worker had stopped: the broker delivers it again; give handlers "
                  "more time to drain"
                : "it was settled after its channel or connection was gone: the broker delivers it again");
    case BH_EVENT_DISCONNECTED:
        return bh_str("the connection was lost: the broker delivers again what was not acknowledged");
    case BH_EVENT_UNAVAILABLE:
        return unavailable_text(bh_event_string(self, BH_FIELD_CONNECTION));
    case BH_EVENT_BLOCKED:
        return bh_str("the broker takes no publishes: memory or disk run low");
    case BH_EVENT_UNBLOCKED:
        return bh_str("the broker takes publishes again");
    case BH_EVENT_CANCELLED:
        return bh_str(bh_event_int(self, BH_FIELD_STATUS) == BH_ERR_CANCELLED
                          ? "the broker cancelled the consumer, as it does when its queue is deleted: it consumes again"
                          : "the consumer has ended: it consumes again");
    case BH_EVENT_MISSED:
        return bh_str("events were not taken in time, and are gone");
    case BH_EVENT_DRAINED:
        return bh_str(
            bh_event_int(self, BH_FIELD_STATUS) == BH_ERR_TIMEOUT
                ? "messages were not settled, or their copies not confirmed, before the limit: they go back to "
                  "the queue"
                : "");
    default:
        return bh_str("");
    }
}

bh_bytes bh__event_words(const bh_event *self)
{
    return bh_event_has(self, BH_FIELD_TEXT) ? bh_event_string(self, BH_FIELD_TEXT) : standard_text(self);
}

bh_bytes bh_event_text(const bh_event *self)
{
    const bh_field others[] = {BH_FIELD_REASON, BH_FIELD_ERROR};
    if (!self)
        return bh_str("");
    bh_bytes text = bh__event_words(self);
    for (size_t i = 0; text.size == 0 && i < sizeof others / sizeof others[0]; i++)
        text = bh_event_string(self, others[i]);
    return text;
}

bh_status bh_event_set_cause(bh_event *self, bh_bytes cause)
{
    if (!self || !cause.data)
        return BH_ERR_ARGUMENT;
    if (cause.size == 0)
        return BH_OK;
    bh_bytes meaning = standard_text(self);
    bh__report text = {0};
    bh__report_add(&text, "%s%s", meaning.data, meaning.size ? " (" : "");
    bh__report_add_shown(&text, bh__cut(cause, BH_HISTORY_MOST_ERROR_BYTES), 0);
    bh__report_add(&text, "%s", meaning.size ? ")" : "");
    bh_status status = bh_event_set_string(self, BH_FIELD_TEXT, bh__report_text(&text));
    bh__report_free(&text);
    return status;
}

/* --------------------------------------------------------------------------------------------------------------- level */

int bh__needs_a_person(bh_status status)
{
    switch (status) {
    case BH_ERR_ACCESS:
    case BH_ERR_MISSING:
    case BH_ERR_CLASH:
    case BH_ERR_BROKER:
    case BH_ERR_TLS:
        return 1;
    default:
        return 0;
    }
}

bh_level bh_event_level(const bh_event *self)
{
    static const bh_level levels[] = {
#define LEVEL(name, word, level, meaning) [name] = BH_LEVEL_##level,
        BH_EVENT_LIST(LEVEL)
#undef LEVEL
    };
    if (!self)
        return BH_LEVEL_DEBUG;
    bh_status status = (bh_status)bh_event_int(self, BH_FIELD_STATUS);
    switch (self->kind) {
    case BH_EVENT_UNAVAILABLE:
    case BH_EVENT_DRAINED:
        return bh__needs_a_person(status) ? BH_LEVEL_ERROR : status != BH_OK ? BH_LEVEL_WARNING : levels[self->kind];
    case BH_EVENT_RETURNED: /* an exchange that is missing can be declared meanwhile */
        return status == BH_ERR_ACCESS ? BH_LEVEL_ERROR : levels[self->kind];
    case BH_EVENT_REPLAYED:
        return status == BH_ERR_ACCESS ? BH_LEVEL_ERROR : status != BH_OK ? BH_LEVEL_WARNING : levels[self->kind];
    default:
        return levels[self->kind];
    }
}
