/*
 * Chooses the headers of a copy: the original's headers that the copy keeps, and the headers that
 * the plan sets.
 */
#include "delivery/internal.h"
#include "history/internal.h"
#include "plan/data.h"
#include "topology/internal.h"

/* Headers that no copy keeps: the broker's, the routing headers, and Backhop's own, which the plan
 * sets anew. */
static const bh_bytes never_kept[] = {
    BH__LITERAL("x-death"),
    BH__LITERAL("x-delivery-count"),
    BH__LITERAL("x-acquired-count"),
    BH__LITERAL("x-delay"),
    BH__LITERAL("CC"),
    BH__LITERAL("BCC"),
    BH__LITERAL("backhop-queue"),
    BH__LITERAL("backhop-attempts"),
    BH__LITERAL("backhop-first-failure"),
    BH__LITERAL("backhop-delay"),
    BH__LITERAL("backhop-due"),
    BH__LITERAL("backhop-id"),
    BH__LITERAL("backhop-exchange"),
    BH__LITERAL("backhop-routing-key"),
    BH__LITERAL("backhop-error"),
    BH__LITERAL("backhop-parked"),
    BH__LITERAL("backhop-deferrals"),
    BH__LITERAL("backhop-crashes"),
    BH__LITERAL("backhop-replays"),
    BH__LITERAL("backhop-traceparent"),
};

size_t bh__plan_find_header(const bh_plan *self, bh_bytes name)
{
    size_t i = 0;
    while (i < self->header_count && !bh__same(self->headers[i].name, name))
        i++;
    return i;
}

static int has_header(const bh_plan *self, bh_bytes name)
{
    return bh__plan_find_header(self, name) < self->header_count;
}

int bh_plan_keeps_header(const bh_plan *self, bh_bytes name)
{
    if (!self || !name.data)
        return 0;
    for (size_t i = 0; i < sizeof never_kept / sizeof never_kept[0]; i++)
        if (bh__same(never_kept[i], name))
            return 0;
    return !bh__begins(name, "x-first-death-") && !bh__begins(name, "x-last-death-") && !has_header(self, name);
}

static void set_header(bh_plan *self, const char *name, bh_type type, bh_bytes string, int64_t number)
{
    bh__plan_header *added = &self->headers[self->header_count];
    added->name = bh_str(name);
    added->type = type;
    added->number = number;
    if (bh__store_add(&self->store, &added->string, string))
        self->header_count++;
    else
        self->no_memory = 1;
}

static void set_string(bh_plan *self, const char *name, bh_bytes value)
{
    set_header(self, name, BH_TYPE_STRING, value, 0);
}

void bh__plan_set_int(bh_plan *self, const char *name, int64_t value)
{
    set_header(self, name, BH_TYPE_INT64, bh_str(""), value);
}

void bh__plan_remove_header(bh_plan *self, size_t at)
{
    self->header_count--;
    memmove(&self->headers[at], &self->headers[at + 1], (self->header_count - at) * sizeof self->headers[0]);
}

size_t bh__plan_saved_parts(const bh_delivery *delivery, bh__saved_part out[BH__SAVED_PARTS])
{
    static const bh__saved_part parts[BH__SAVED_PARTS] = {{"backhop-expiration", BH_PROPERTY_EXPIRATION},
                                                          {"backhop-user-id", BH_PROPERTY_USER_ID},
                                                          {"backhop-cc", BH_PROPERTY_HEADERS}};
    size_t count = 0;
    for (size_t i = 0; i < BH__SAVED_PARTS; i++) {
        int is_there = parts[i].property == BH_PROPERTY_HEADERS ? bh__delivery_header(delivery, bh_str("CC")) != NULL
                                                                : bh_delivery_has_property(delivery, parts[i].property);
        if (is_there && !bh__delivery_header(delivery, bh_str(parts[i].header)))
            out[count++] = parts[i];
    }
    return count;
}

/* Saves all that a copy cannot have. The first failure saves it; later copies keep these
 * headers. */
static void save_properties(bh_plan *self, const bh__plan_input *in)
{
    bh__saved_part parts[BH__SAVED_PARTS];
    size_t count = bh__plan_saved_parts(in->delivery, parts);
    for (size_t i = 0; i < count; i++) {
        if (parts[i].property == BH_PROPERTY_HEADERS)
            set_header(self, parts[i].header, BH_TYPE_VOID, bh_str("CC"), 0);
        else
            set_string(self, parts[i].header, bh_delivery_property(in->delivery, parts[i].property));
    }
}

static void set_queue(bh_plan *self, const bh__plan_input *in)
{
    if (in->place != BH__PARK_STRAY)
        set_string(self, "backhop-queue", bh__topology_queue(in->topology));
}

/* Sets the id of the history. If it has none, makes one of the last random bytes. */
static void set_id(bh_plan *self, const bh__plan_input *in)
{
    bh_bytes id = bh__history_event_id(in->history);
    char digits[BH__HISTORY_ID_ROOM];
    if (id.size == 0) {
        bh__history_write_id(in->random.data + BH_PLAN_RANDOM_BYTES - BH_HISTORY_ID_RANDOM_BYTES, digits);
        id = bh_str(digits);
    }
    set_string(self, "backhop-id", id);
}

/* Sets exchange and routing key of the first publish. */
static void set_origin(bh_plan *self, const bh__plan_input *in)
{
    const bh__plan_origin as_read = {bh__history_exchange(in->history), bh__history_routing_key(in->history)};
    const bh__plan_origin *first = in->origin ? in->origin : &as_read;
    set_string(self, "backhop-exchange", first->exchange);
    set_string(self, "backhop-routing-key", first->routing_key);
}

/* Sets the counts of crashes and replays, if they are not 0. */
static void set_counts(bh_plan *self, const bh__plan_input *in)
{
    int is_replayed = self->action == BH_ACTION_REPLAY && !bh__history_is_back(in->history);
    int64_t replays = bh__history_past(in->history).replays + is_replayed;
    if (self->crashes > 0)
        bh__plan_set_int(self, "backhop-crashes", self->crashes);
    if (replays > 0)
        bh__plan_set_int(self, "backhop-replays",
                         replays < BH_HISTORY_MOST_ATTEMPTS ? replays : BH_HISTORY_MOST_ATTEMPTS);
}

/* Sets the span of the last attempt that failed, if there is one. */
static void set_traceparent(bh_plan *self, const bh__plan_input *in)
{
    if (in->traceparent.size > 0)
        set_string(self, "backhop-traceparent", in->traceparent);
}

void bh__plan_set_headers(bh_plan *self, const bh__plan_input *in)
{
    set_queue(self, in);
    bh__plan_set_int(self, "backhop-attempts", self->attempts);
    if (self->deferrals > 0)
        bh__plan_set_int(self, "backhop-deferrals", self->deferrals);
    set_counts(self, in);
    if (self->first_failure_ms >= 0)
        bh__plan_set_int(self, "backhop-first-failure", self->first_failure_ms);
    if (bh__plan_waits(self)) {
        bh__plan_set_int(self, "backhop-delay", self->delay_ms);
        bh__plan_set_int(self, "backhop-due", in->now_ms + self->delay_ms);
    }
    set_id(self, in);
    set_origin(self, in);
    if (in->error.size > 0)
        set_string(self, "backhop-error", bh__cut(in->error, BH_HISTORY_MOST_ERROR_BYTES));
    set_traceparent(self, in);
    save_properties(self, in);
    if (self->action == BH_ACTION_PARK)
        set_string(self, "backhop-parked", bh_str(self->reason));
}

void bh__plan_set_return_key(bh_plan *self, const bh__plan_input *in)
{
    set_header(self, "BCC", BH_TYPE_ARRAY, bh__topology_return_key(in->topology), 0);
}

void bh__plan_set_least_headers(bh_plan *self, const bh__plan_input *in)
{
    set_string(self, "backhop-parked", bh_str(self->reason));
    bh__plan_set_int(self, "backhop-attempts", self->attempts);
    if (self->first_failure_ms >= 0)
        bh__plan_set_int(self, "backhop-first-failure", self->first_failure_ms);
    set_id(self, in);
    set_queue(self, in);
    set_origin(self, in);
}

/* Sets the times of the last failure: the lateness is counted by the due time. */
static void keep_times(bh_plan *self, const bh__plan_input *in)
{
    bh_past past = bh__history_past(in->history);
    int64_t due_ms = bh__history_due_ms(in->history);
    if (past.first_failure_ms >= 0)
        bh__plan_set_int(self, "backhop-first-failure", past.first_failure_ms);
    if (past.last_delay_ms >= 0)
        bh__plan_set_int(self, "backhop-delay", past.last_delay_ms);
    if (due_ms >= 0)
        bh__plan_set_int(self, "backhop-due", due_ms);
}

void bh__plan_set_replay_headers(bh_plan *self, const bh__plan_input *in, int goes_on)
{
    bh_past past = bh__history_past(in->history);
    set_queue(self, in);
    bh__plan_set_int(self, "backhop-attempts",
                     self->attempts); /* counts before a legacy counter, which the copy keeps */
    if (self->deferrals > 0)
        bh__plan_set_int(self, "backhop-deferrals", self->deferrals);
    set_counts(self, in);
    if (goes_on)
        keep_times(self, in);
    set_id(self, in);
    set_origin(self, in);
    if (goes_on && past.last_error.size > 0)
        set_string(self, "backhop-error", past.last_error);
    set_traceparent(self, in);
    save_properties(self, in); /* somebody put it into the parked queue by hand */
}
