#include "worker/procedures/runner.h"

#include "worker/engine/pacing.h"

#include <stdio.h>

/* Returns the deadline of an answer. While closing, it is the stop's limit and BH__GOODBYE_MS at
 * least: without the answer, the connection would be dropped, and settlements would have no
 * effect. */
static int64_t deadline_of(const bh__runner *self, int64_t begun_ms, int64_t timeout_ms)
{
    if (self->engine.stage != BH__CLOSING)
        return begun_ms + timeout_ms;
    int64_t limit_ms = atomic_load(&self->context->mailbox->stop_ms) - begun_ms;
    int64_t most_ms = limit_ms < timeout_ms ? limit_ms : timeout_ms;
    return begun_ms + (most_ms > BH__GOODBYE_MS ? most_ms : BH__GOODBYE_MS);
}

/* Returns 1 if a stop ends the call. On an open connection only the stop's limit ends it,
 * because half a procedure would have to be undone. */
static int is_given_up(const bh__runner *self, const bh__link *link)
{
    if (!link->is_open)
        return bh__engine_is_interrupted(&self->engine);
    return self->engine.stage != BH__CLOSING && bh__monotonic_ms() >= atomic_load(&self->context->mailbox->stop_ms);
}

/* Waits for the reply that the link expects. */
static bh_status await_reply(bh__runner *self, bh__link *link, int64_t timeout_ms)
{
    int64_t begun_ms = bh__monotonic_ms();
    while (link->reply.id == 0 && !bh__link_is_broken(link)) {
        if (is_given_up(self, link))
            return bh__report_set(&self->problem, BH_ERR_CONNECTION, "the worker is stopping");
        int64_t deadline_ms = deadline_of(self, begun_ms, timeout_ms);
        if (bh__monotonic_ms() >= deadline_ms) {
            bh__link_fail(link, BH_ERR_CONNECTION,
                          "the broker did not answer within %lld ms; this node may have lost its cluster",
                          (long long)(deadline_ms - begun_ms));
            break;
        }
        bh__engine_pump(&self->engine, deadline_ms);
    }
    if (link->reply.id)
        return BH_OK;
    return bh__report_set(&self->problem, link->problem.status, "%s", bh__report_text(&link->problem).data);
}

bh_status bh__call_within(bh__runner *self, bh__link *link, amqp_channel_t channel, amqp_method_number_t method,
                          void *arguments, amqp_method_number_t reply, amqp_method_number_t other, int64_t timeout_ms)
{
    link->reply = (amqp_method_t){0, NULL};
    link->reply_channel = channel;
    link->awaited = reply;
    link->awaited_too = other;
    if (method)
        bh__link_send(link, channel, method, arguments);
    bh_status status = await_reply(self, link, timeout_ms);
    link->awaited = link->awaited_too = 0;
    return status;
}

bh_status bh__call(bh__runner *self, bh__link *link, amqp_channel_t channel, amqp_method_number_t method,
                   void *arguments, amqp_method_number_t reply, amqp_method_number_t other, const char *what,
                   bh__answer *out)
{
    int64_t confirm_ms = self->context->settings->confirm_timeout_ms;
    *out = (bh__answer){.code = 0};
    bh_status status = bh__call_within(self, link, channel, method, arguments, reply, other,
                                       confirm_ms < BH__ANSWER_MS ? confirm_ms : BH__ANSWER_MS);
    if (status != BH_OK) {
        char reason[512];
        snprintf(reason, sizeof reason, "%s", bh__report_text(&self->problem).data);
        snprintf(out->text, sizeof out->text, "%s", link->close_text);
        return bh__report_set(&self->problem, status, "%s failed: %s", what, reason);
    }
    out->method = link->reply;
    if (link->reply.id != AMQP_CHANNEL_CLOSE_METHOD)
        return BH_OK;
    const amqp_channel_close_t *close = link->reply.decoded;
    bh_bytes text = bh__from_amqp(close->reply_text);
    out->code = close->reply_code;
    snprintf(out->text, sizeof out->text, "%.*s", (int)text.size, text.data);
    return bh__link_answer_channel_close(link, channel, close, what, &self->problem);
}

bh_status bh__call_open_channel(bh__runner *self, bh__link *link, amqp_channel_t channel, bh__answer *out)
{
    amqp_channel_open_t open = {.out_of_band = amqp_empty_bytes};
    return bh__call(self, link, channel, AMQP_CHANNEL_OPEN_METHOD, &open, AMQP_CHANNEL_OPEN_OK_METHOD, 0,
                    "opening a channel", out);
}

bh_status bh__call_close_channel(bh__runner *self, bh__link *link, amqp_channel_t channel, bh__answer *out)
{
    amqp_channel_close_t close = {.reply_code = AMQP_REPLY_SUCCESS, .reply_text = amqp_empty_bytes};
    return bh__call(self, link, channel, AMQP_CHANNEL_CLOSE_METHOD, &close, AMQP_CHANNEL_CLOSE_OK_METHOD, 0,
                    "closing a channel", out);
}
