#include "move/mover.h"

#include "common/output.h"
#include "setup/setup.h"

#include "base/memory.h"
#include "ledger/internal.h"
#include "worker/wire/content.h"

#include <stdlib.h>
#include <sysexits.h>

enum { MOST_UNSENT_BYTES = 1048576, PUMP_MS = 50 };

/* A copy on its way. */
struct moving {
    int64_t entry;
    bh_message *message;                            /* NULL: done */
    bh_bytes exchange, routing_key, properties, id; /* in `data` */
    int mandatory;
    uint64_t mark;
    char *data;
};

static void stop(mover *self, const char *why, int code)
{
    if (self->end)
        return;
    self->end = why;
    self->end_code = code;
}

/* ------------------------------------------------------------------------------- open and close */

int mover_open(mover *self, connection *broker)
{
    static const char random[BH_LEDGER_RANDOM_BYTES];
    amqp_confirm_select_t select = {.nowait = 0};
    bh_policy *back_off = setup_policy(&(policy_options){.initial = "100ms", .max = "10s", .jitter = "none"});
    *self = (mover){.broker = broker, .unconfirmed = -1};
    bh_status status = bh_ledger_new(&self->ledger, back_off, (bh_bytes){random, sizeof random});
    bh_policy_free(back_off);
    if (status == BH_OK)
        status = bh_ledger_open_publisher(self->ledger, &self->publisher);
    if (status != BH_OK)
        must(NULL);
    bh__ledger_set_most_sent(self->ledger, MOVER_MOST_SENT);
    status = connection_open_channel(broker, CHANNEL_PUBLISH);
    if (status == BH_OK)
        status = connection_call(broker, CHANNEL_PUBLISH, AMQP_CONFIRM_SELECT_METHOD, &select,
                                 AMQP_CONFIRM_SELECT_OK_METHOD, 0, "asking for confirms");
    return status == BH_OK ? EX_OK : connection_complain(broker);
}

void mover_close(mover *self)
{
    bh_ledger_free(self->ledger);
    bh__buffer_free(&self->scratch);
    bh__assembler_clear(&self->returned);
    free(self->copies);
    *self = (mover){.broker = NULL};
}

/* --------------------------------------------------------------------------------------- copies */

bh_status mover_begin_plan(const mover *self, bh_plan *plan, char random[BH_PLAN_RANDOM_BYTES])
{
    if (!bh__random(random, BH_PLAN_RANDOM_BYTES))
        return BH_ERR_STATE;
    return bh_plan_set_frame_max(plan, (int64_t)self->broker->link.frame_max);
}

int mover_has_room(const mover *self)
{
    return self->kept_bytes < MOVER_MOST_KEPT_BYTES;
}

bh_status mover_try(mover *self, const bh_message *message, const bh_plan *plan)
{
    bh__buffer_clear(&self->scratch);
    bh_status status = bh__content_copy(&self->scratch, plan, message->properties);
    if (status == BH_OK && bh__buffer_size(&self->scratch) > bh__link_header_room(&self->broker->link))
        status = BH_ERR_FRAME;
    if (status == BH_ERR_NO_MEMORY)
        must(NULL);
    return status;
}

bh_status mover_keep(mover *self, bh_message *message, const bh_plan *plan, uint64_t mark)
{
    bh_status status = mover_try(self, message, plan);
    if (status != BH_OK)
        return status;
    bh_bytes properties = {self->scratch.data, bh__buffer_size(&self->scratch)};
    bh_copy planned;
    bh_plan_copy(plan, &planned);
    bh_bytes exchange = planned.exchange, key = planned.routing_key;
    bh_bytes id = bh__content_string(properties, "backhop-id");
    size_t size = properties.size + exchange.size + key.size + id.size + 4;
    char *at = must(malloc(size));
    void *copies = self->copies;
    if (!bh__reserve(&copies, &self->capacity, sizeof *self->copies, self->count + 1))
        must(NULL);
    self->copies = copies;
    moving *copy = &self->copies[self->count++];
    *copy = (moving){.message = message, .mandatory = planned.mandatory, .mark = mark, .data = at};
    copy->properties = bh__keep(&at, properties);
    copy->exchange = bh__keep(&at, exchange);
    copy->routing_key = bh__keep(&at, key);
    copy->id = bh__keep(&at, id);
    self->kept_bytes += sizeof *copy + sizeof *message + size + message->properties.size + message->body.size;
    self->remaining++;
    /* For the ledger it is a replay, whatever the plan: the operator started it, and it is not
     * repeated. */
    if (bh_ledger_arrive(self->ledger, self->channel, (int64_t)message->delivery_tag, &copy->entry) != BH_OK ||
        bh_ledger_settle(self->ledger, copy->entry, BH_ACTION_REPLAY, 0, copy->id, copy->exchange, copy->routing_key) !=
            BH_OK)
        must(NULL);
    return BH_OK;
}

/* The copy of an entry; not far behind the oldest one that is not done, as they go in order. */
static moving *find_copy(mover *self, int64_t entry)
{
    for (size_t i = self->oldest; i < self->count; i++)
        if (self->copies[i].entry == entry && self->copies[i].message)
            return &self->copies[i];
    return NULL;
}

static void forget_copy(mover *self, moving *copy)
{
    bh_message_free(copy->message);
    free(copy->data);
    *copy = (moving){.message = NULL};
    self->remaining--;
    while (self->oldest < self->count && !self->copies[self->oldest].message)
        self->oldest++;
}

/* ---------------------------------------------------------------------------------------- books */

static void on_event(mover *self, const bh_step *step)
{
    moving *copy = find_copy(self, step->entry);
    bh_event_kind event = step->event;
    if (event == BH_EVENT_REPLAYED) {
        self->done++;
        if (copy && self->confirmed)
            self->confirmed(self->data, copy->mark);
        if (copy)
            forget_copy(self, copy);
        return;
    }
    bh_bytes none = bh_str(""),
             words = bh_ledger_text(self->ledger, copy ? copy->exchange : none, copy ? copy->routing_key : none,
                                    bh_str(self->return_text), none);
    complain("%s", words.data);
    stop(self, event == BH_EVENT_NACKED ? "a queue takes no more" : "a message was not taken by the broker",
         EX_UNAVAILABLE);
}

static void publish(mover *self, const bh_step *step, int64_t now_ms)
{
    const moving *copy = find_copy(self, step->entry);
    if (!copy)
        return;
    amqp_basic_publish_t method = {.exchange = bh__to_amqp(copy->exchange),
                                   .routing_key = bh__to_amqp(copy->routing_key),
                                   .mandatory = copy->mandatory};
    bh__link_publish(&self->broker->link, CHANNEL_PUBLISH, &method, copy->properties, copy->message->body);
    if (self->went)
        self->went(self->data, now_ms);
}

/* Executes the ledger's steps; is_sending: copies may go. */
static void advance(mover *self, int is_sending)
{
    for (;;) {
        int64_t now_ms = bh__monotonic_ms();
        const bh__link *link = &self->broker->link;
        int may_publish = is_sending && !self->end && !self->is_held_back && !is_interrupted() && !link->is_blocked &&
                          bh__buffer_size(&link->out) < MOST_UNSENT_BYTES &&
                          (!self->next_ms || self->next_ms(self->data, now_ms) <= now_ms);
        bh_step step;
        if (!bh_ledger_next(self->ledger, now_ms, may_publish, &step))
            return;
        switch (step.kind) {
        case BH_STEP_PUBLISH:
            publish(self, &step, now_ms);
            break;
        case BH_STEP_ACK:
            snapshot_ack(&self->shot, (uint64_t)step.tag);
            break;
        case BH_STEP_EMIT:
            on_event(self, &step);
            break;
        default:
            break; /* the end of the channel gives back the other messages */
        }
    }
}

static void on_publisher_method(mover *self, const amqp_method_t *method)
{
    int64_t now_ms = bh__monotonic_ms();
    switch (method->id) {
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *ack = method->decoded;
        bh_ledger_confirm(self->ledger, self->publisher, (int64_t)ack->delivery_tag, ack->multiple, 1, now_ms);
        break;
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *nack = method->decoded;
        bh_ledger_confirm(self->ledger, self->publisher, (int64_t)nack->delivery_tag, nack->multiple, 0, now_ms);
        break;
    }
    case AMQP_BASIC_RETURN_METHOD: {
        const amqp_basic_return_t *got = method->decoded;
        bh_bytes text = bh__from_amqp(got->reply_text);
        snprintf(self->return_text, sizeof self->return_text, "%d %.*s", got->reply_code, (int)text.size, text.data);
        bh__assembler_begin(&self->returned, 0, 0, got->exchange, got->routing_key);
        break;
    }
    case AMQP_CHANNEL_CLOSE_METHOD:
        bh__link_answer_channel_close(&self->broker->link, CHANNEL_PUBLISH, method->decoded, "publishing",
                                      &self->broker->problem);
        bh_ledger_close_publisher(self->ledger, self->publisher, BH_ENDING_ERROR, now_ms);
        stop(self, "the broker refused a message", connection_complain(self->broker));
        break;
    default:
        break;
    }
}

static void on_frame(void *data, const bh__frame *frame, const amqp_method_t *method)
{
    mover *self = data;
    bh_message *copy = NULL;
    if (frame->channel != CHANNEL_PUBLISH) {
        snapshot_on_frame(&self->shot, frame, method);
    } else if (method) {
        on_publisher_method(self, method);
    } else if (bh__assembler_add(&self->returned, frame, &copy) == BH_OK && copy) {
        bh_ledger_return(self->ledger, self->publisher, bh__content_string(copy->properties, "backhop-id"),
                         copy->exchange, copy->routing_key);
        bh_message_free(copy);
    }
}

/* --------------------------------------------------------------------------------------- rounds */

static void begin(mover *self)
{
    self->shot.expires = self->expires;
    self->broker->on_frame = on_frame;
    self->broker->data = self;
    if (bh_ledger_open_channel(self->ledger, &self->channel) != BH_OK)
        must(NULL);
}

/* Forgets copies that were not sent: their originals are still held. */
static void end(mover *self)
{
    advance(self, 0); /* confirms that came during another call */
    bh_ledger_close_channel(self->ledger, self->channel);
    for (size_t i = self->oldest; i < self->count; i++)
        if (self->copies[i].message)
            forget_copy(self, &self->copies[i]);
    self->count = self->oldest = self->kept_bytes = 0;
}

/* Sends the copies that may go, and waits for answers a moment. */
static bh_status work(mover *self)
{
    advance(self, 1);
    int64_t now_ms = bh__monotonic_ms(), until_ms = now_ms + PUMP_MS, due_ms = bh_ledger_due_ms(self->ledger),
            next_ms = self->next_ms ? self->next_ms(self->data, now_ms) : now_ms;
    if (self->remaining == 0)
        return BH_OK;
    if (due_ms != BH_LEDGER_NEVER && due_ms < until_ms)
        until_ms = due_ms;
    if (next_ms > now_ms && next_ms < until_ms)
        until_ms = next_ms;
    bh_status status = connection_pump(self->broker, until_ms);
    advance(self, 1);
    return status;
}

/* Returns 1 if it ends early and no copy is in flight. */
static int is_over(const mover *self)
{
    return (self->end || self->is_held_back || is_interrupted()) && bh_ledger_count(self->ledger, BH_STATE_SENT) == 0;
}

static bh_status send_kept(mover *self)
{
    bh_status status = BH_OK;
    while (status == BH_OK && self->remaining > 0) {
        if (self->working)
            self->working(self->data, bh__monotonic_ms());
        if (is_over(self))
            break;
        status = work(self);
    }
    return status;
}

static int goes_on(const mover *self)
{
    return self->shot.status == BH_OK && !is_interrupted();
}

int mover_play(mover *self, const char *queue)
{
    int code = snapshot_begin(&self->shot, self->broker, queue);
    if (code != EX_OK)
        return code;
    begin(self);
    for (bh_message *message; (message = snapshot_next(&self->shot)) != NULL;)
        self->take(self->data, message);
    if (goes_on(self) && self->looked)
        self->looked(self->data);
    if (goes_on(self))
        self->shot.status = snapshot_close(&self->shot);
    if (goes_on(self))
        self->shot.status = send_kept(self);
    self->unconfirmed = (int64_t)bh_ledger_count(self->ledger, BH_STATE_SENT);
    end(self);
    return snapshot_end(&self->shot);
}
