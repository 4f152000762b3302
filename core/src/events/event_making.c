/* How a worker or an adapter makes events. */
#include "events/internal.h"

#include "history/internal.h"
#include "plan/internal.h"

#include <backhop/adapter/duration.h>
#include <backhop/adapter/event.h>
#include <stdio.h>
#include <stdlib.h>

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
    case BH_OUTCOME_THROTTLED:
        return BH_EVENT_THROTTLED;
    case BH_OUTCOME_RELEASED:
        return BH_EVENT_STALE;
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
    case BH_ACTION_DEFER:
        return BH_EVENT_DEFERRED;
    default:
        return BH_EVENT_RETRIED;
    }
}

bh_bytes bh_overrun_text(bh_outcome outcome, int64_t duration_ms, int64_t limit_ms, char room[BH_OVERRUN_ROOM])
{
    char limit[BH_DURATION_ROOM];
    if ((outcome != BH_OUTCOME_OK && outcome != BH_OUTCOME_DROPPED) || limit_ms <= 0 || duration_ms < limit_ms)
        return bh_str("");
    snprintf(room, BH_OVERRUN_ROOM, "the handler ran for longer than its limit of %s",
             bh_duration_text(limit_ms, limit).data);
    return bh_str(room);
}

int bh_event_is_of_each(int kind)
{
    switch (kind) {
    case BH_EVENT_DELIVERED:
    case BH_EVENT_SUCCEEDED:
    case BH_EVENT_FAILED:
    case BH_EVENT_RETRIED:
    case BH_EVENT_THROTTLED:
    case BH_EVENT_DEFERRED:
    case BH_EVENT_DROPPED:
        return 1;
    default:
        return 0;
    }
}

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

/* --------------------------------------------------------------------------------------- fields */

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
    if (!self || !bh_event_field((int)field).size || bh_event_field_is_string((int)field))
        return BH_ERR_ARGUMENT;
    self->fields[field].number = value;
    self->has |= 1U << field;
    return BH_OK;
}

bh_status bh_event_set_history(bh_event *self, const bh_history *history, int redelivered, int64_t now_ms)
{
    if (!self || !history)
        return BH_ERR_ARGUMENT;
    int64_t before = bh__history_attempts(history), recovery_ms = bh__history_recovery_ms(history, now_ms);
    int64_t late_ms = bh_history_lateness_ms(history, redelivered, now_ms);
    bh_bytes id = bh__history_event_id(history);
    if (id.size > 0 && bh_event_set_string(self, BH_FIELD_ID, id) != BH_OK)
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
    bh_planned planned;
    bh_plan_read(plan, &planned);
    const struct {
        bh_field field;
        bh_bytes value;
    } strings[] = {
        {BH_FIELD_ID, bh__plan_id(plan)}, {BH_FIELD_REASON, planned.reason}, {BH_FIELD_ERROR, bh__plan_error(plan)}};
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++)
        if (strings[i].value.size && bh_event_set_string(self, strings[i].field, strings[i].value) != BH_OK)
            return BH_ERR_NO_MEMORY;
    bh_event_set_int(self, BH_FIELD_ATTEMPTS, planned.attempts);
    if (planned.deferrals > 0)
        bh_event_set_int(self, BH_FIELD_DEFERRALS, planned.deferrals);
    if (planned.delay_ms > 0)
        bh_event_set_int(self, BH_FIELD_DELAY, planned.delay_ms);
    return BH_OK;
}

bh_status bh_event_set_cause(bh_event *self, bh_bytes cause)
{
    if (!self || !cause.data)
        return BH_ERR_ARGUMENT;
    if (cause.size == 0)
        return BH_OK;
    bh_bytes meaning = bh__event_standard_text(self);
    bh__report text = {0};
    bh__report_add(&text, "%s%s", meaning.data, meaning.size ? " (" : "");
    bh__report_add_shown(&text, bh__cut(cause, BH_HISTORY_MOST_ERROR_BYTES), 0);
    bh__report_add(&text, "%s", meaning.size ? ")" : "");
    bh_status status = bh_event_set_string(self, BH_FIELD_TEXT, bh__report_text(&text));
    bh__report_free(&text);
    return status;
}
