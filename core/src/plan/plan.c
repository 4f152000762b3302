/*
 * The plan as an object: its settings, and the getters of its decision.
 */
#include "plan/data.h"
#include "base/traceparent.h"

#include <stdlib.h>

bh_status bh_plan_new(bh_plan **out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return BH_ERR_NO_MEMORY;
    (*out)->frame_max = BH_PLAN_DEFAULT_FRAME_MAX;
    (*out)->reason = "";
    return BH_OK;
}

void bh_plan_free(bh_plan *self)
{
    if (!self)
        return;
    bh__store_free(&self->store);
    bh__buffer_free(&self->copied);
    free(self);
}

bh_status bh_plan_set_frame_max(bh_plan *self, int64_t frame_max)
{
    if (!self || frame_max < 0)
        return BH_ERR_ARGUMENT;
    self->frame_max = frame_max;
    return BH_OK;
}

bh_status bh_plan_set_traceparent(bh_plan *self, bh_bytes traceparent)
{
    if (!self || !traceparent.data || (traceparent.size && !bh__is_traceparent(traceparent)))
        return BH_ERR_ARGUMENT;
    if (traceparent.size)
        memcpy(self->traceparent, traceparent.data, traceparent.size);
    self->traceparent[traceparent.size] = '\0';
    return BH_OK;
}

void bh__plan_clear(bh_plan *self)
{
    bh_plan empty = {
        .frame_max = self->frame_max,
        .is_retry_after_met = 1,
        .reason = "",
        .store = {self->store.data, 0, self->store.capacity},
        .copied = self->copied,
    };
    *self = empty;
}

bh_action bh__plan_action(const bh_plan *self)
{
    return self ? self->action : BH_ACTION_NONE;
}

int bh__plan_publishes(const bh_plan *self)
{
    bh_action action = bh__plan_action(self);
    return action == BH_ACTION_RETRY || action == BH_ACTION_DEFER || action == BH_ACTION_PARK ||
           action == BH_ACTION_REPLAY;
}

void bh_plan_read(const bh_plan *self, bh_planned *out)
{
    if (!out)
        return;
    *out = (bh_planned){.retry_after_met = 1, .reason = bh_str("")};
    if (!self)
        return;
    out->action = self->action;
    out->attempts = self->attempts;
    out->deferrals = self->deferrals;
    out->delay_ms = self->delay_ms;
    out->retry_after_met = self->is_retry_after_met;
    out->reason = bh_str(self->reason);
    out->header_count = self->header_count;
}

static bh_bytes get(const bh_plan *self, bh__text text)
{
    return bh__store_get(&self->store, text);
}

static bh_bytes get_header(const bh_plan *self, const char *name)
{
    size_t at = self ? bh__plan_find_header(self, bh_str(name)) : 0;
    return self && at < self->header_count ? get(self, self->headers[at].string) : bh_str("");
}

bh_bytes bh__plan_error(const bh_plan *self)
{
    return get_header(self, "backhop-error");
}

bh_bytes bh__plan_id(const bh_plan *self)
{
    return get_header(self, "backhop-id");
}

bh_status bh_plan_copy(const bh_plan *self, bh_copy *out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = (bh_copy){.id = bh_str(""), .exchange = bh_str(""), .routing_key = bh_str(""), .expiration = bh_str("")};
    if (!bh__plan_publishes(self))
        return self ? BH_ERR_STATE : BH_ERR_ARGUMENT;
    out->id = bh__plan_id(self);
    out->exchange = get(self, self->exchange);
    out->routing_key = get(self, self->routing_key);
    out->expiration = get(self, self->expiration);
    out->rung_ms = self->is_on_demand ? self->delay_ms : 0;
    /* The x-delayed-message exchange returns every mandatory message that it delays. */
    out->mandatory = bh__plan_find_header(self, bh_str("x-delay")) == self->header_count;
    out->on_demand = self->is_on_demand;
    return BH_OK;
}

int bh_plan_keeps_property(const bh_plan *self, bh_property property)
{
    return self && (int)property >= 0 && property < BH_PROPERTY_LAST && property != BH_PROPERTY_HEADERS &&
           property != BH_PROPERTY_DELIVERY_MODE && property != BH_PROPERTY_EXPIRATION &&
           property != BH_PROPERTY_USER_ID;
}

bh_status bh_plan_header(const bh_plan *self, size_t index, bh_header *out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = (bh_header){.name = bh_str(""), .string = bh_str(""), .source = bh_str("")};
    if (!self || index >= self->header_count)
        return BH_ERR_ARGUMENT;
    const bh__plan_header *header = &self->headers[index];
    out->name = header->name;
    out->type = header->type;
    out->integer = header->number;
    if (header->type == BH_TYPE_VOID)
        out->source = get(self, header->string);
    else
        out->string = get(self, header->string);
    return BH_OK;
}

bh__buffer *bh__plan_buffer(bh_plan *self)
{
    bh__buffer_clear(&self->copied);
    return &self->copied;
}
