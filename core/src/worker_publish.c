#include "worker_internal.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    FEWEST_SENT = 64,
    KEPT = 4,                   /* a publication's bytes, a zero byte behind each */
    MOST_WAITING_BYTES = 262144 /* written to the link and not taken by its socket: the rest of the copies wait */
};

/* ------------------------------------------------------------------------------------------------------------ lists */

static void push(bh__publications *self, bh__publication *publication)
{
    publication->next = NULL;
    if (self->last)
        self->last->next = publication;
    else
        self->first = publication;
    self->last = publication;
    self->count++;
}

static void push_front(bh__publications *self, bh__publication *publication)
{
    publication->next = self->first;
    self->first = publication;
    if (!self->last)
        self->last = publication;
    self->count++;
}

static bh__publication *pop(bh__publications *self)
{
    bh__publication *first = self->first;
    if (!first)
        return NULL;
    self->first = first->next;
    if (!self->first)
        self->last = NULL;
    self->count--;
    return first;
}

static void release(bh__publication *self)
{
    bh_message_free(self->message);
    free(self);
}

static bh__publication **sent_at(const bh__confirms *self, uint64_t tag)
{
    return &self->sent[tag & (self->capacity - 1)];
}

static int reserve_sent(bh__confirms *self)
{
    size_t used = (size_t)(self->next - self->first);
    if (used < self->capacity)
        return 1;
    size_t capacity = self->capacity ? 2 * self->capacity : FEWEST_SENT;
    bh__publication **sent = calloc(capacity, sizeof(bh__publication *));
    if (!sent)
        return 0;
    for (uint64_t tag = self->first; tag < self->next; tag++)
        sent[tag & (capacity - 1)] = *sent_at(self, tag);
    free(self->sent);
    self->sent = sent;
    self->capacity = capacity;
    return 1;
}

void bh__publisher_free(bh__publisher *self)
{
    bh__buffer_free(&self->scratch);
    for (size_t i = 0; i < BH__PUBLISH_CHANNELS; i++)
        free(self->channels[i].sent);
    free(self->rungs);
}

static size_t count_sent(const bh__publisher *self)
{
    size_t count = 0;
    for (size_t i = 0; i < BH__PUBLISH_CHANNELS; i++)
        count += self->channels[i].sent_count;
    return count;
}

size_t bh__worker_count_copies(const bh_worker *self)
{
    return self->publisher.due.count + self->publisher.waiting.count + count_sent(&self->publisher);
}

/* ---------------------------------------------------------------------------------------------------- the channels */

int bh__publisher_is_open(const bh__publisher *self)
{
    for (size_t i = 0; i < BH__PUBLISH_CHANNELS; i++)
        if (!self->channels[i].is_open)
            return 0;
    return 1;
}

static bh_status open_confirms(bh_worker *self, bh__confirms *confirms, amqp_channel_t channel)
{
    bh__answer answer;
    amqp_confirm_select_t confirm = {.nowait = 0};
    bh_status status = bh__worker_open_channel(self, &self->publish.link, channel, &answer);
    if (status == BH_OK)
        status = bh__worker_call(self, &self->publish.link, channel, AMQP_CONFIRM_SELECT_METHOD, &confirm,
                                 AMQP_CONFIRM_SELECT_OK_METHOD, 0, "switching confirms on", &answer);
    confirms->channel = channel;
    confirms->is_open = status == BH_OK;
    confirms->first = confirms->next = 1;
    return status;
}

bh_status bh__worker_open_publisher(bh_worker *self)
{
    bh_status status = BH_OK;
    for (size_t i = 0; status == BH_OK && i < BH__PUBLISH_CHANNELS; i++)
        if (!self->publisher.channels[i].is_open)
            status = open_confirms(self, &self->publisher.channels[i], (amqp_channel_t)(BH__CHANNEL_PUBLISH + i));
    return status;
}

/* What was not confirmed on it is the first that is due. */
static void end_confirms(bh__publisher *self, bh__confirms *confirms)
{
    confirms->is_open = 0;
    bh__assembler_clear(&confirms->returned);
    for (uint64_t tag = confirms->next; tag-- > confirms->first;) {
        bh__publication *publication = *sent_at(confirms, tag);
        if (!publication)
            continue;
        publication->is_returned = publication->message->is_sent = 0;
        push_front(&self->due, publication);
    }
    confirms->first = confirms->next = 1;
    confirms->sent_count = 0;
}

void bh__worker_end_publisher(bh_worker *self)
{
    for (size_t i = 0; i < BH__PUBLISH_CHANNELS; i++)
        end_confirms(&self->publisher, &self->publisher.channels[i]);
}

void bh__worker_drop_copies(bh_worker *self)
{
    bh__worker_end_publisher(self);
    for (bh__publication *publication; (publication = pop(&self->publisher.due));)
        release(publication);
    for (bh__publication *publication; (publication = pop(&self->publisher.waiting));)
        release(publication);
}

/* ------------------------------------------------------------------------------------------------------- the copies */

static int is_replay(const bh__publication *self)
{
    return self->action == BH_ACTION_REPLAY;
}

/* Whether the copy still has an original here to acknowledge. */
static int is_wanted(const bh_worker *self, const bh__publication *publication)
{
    return is_replay(publication) ? publication->message == self->replay_message
                                  : bh__worker_holds(self, publication->message);
}

static void drop_unwanted(const bh_worker *self, bh__publications *list)
{
    bh__publications all = *list;
    *list = (bh__publications){.first = NULL};
    for (bh__publication *publication; (publication = pop(&all));) {
        if (is_wanted(self, publication))
            push(list, publication);
        else
            release(publication);
    }
}

void bh__worker_drop_unwanted(bh_worker *self)
{
    drop_unwanted(self, &self->publisher.due);
    drop_unwanted(self, &self->publisher.waiting);
}

bh_status bh__worker_queue_copy(bh_worker *self, bh_message *message)
{
    const bh_plan *plan = self->plan;
    bh__buffer *scratch = &self->publisher.scratch;
    bh__buffer_clear(scratch);
    bh_status status = bh__content_copy(scratch, plan, message->properties);
    if (status != BH_OK)
        return status;
    bh_bytes properties = {scratch->data, bh__buffer_size(scratch)};
    if (properties.size > bh__link_header_room(&self->publish.link))
        return BH_ERR_FRAME;
    bh_bytes exchange = bh_plan_exchange(plan), routing_key = bh_plan_routing_key(plan);
    bh_bytes reason = bh_plan_reason(plan);
    bh__publication *publication =
        malloc(sizeof *publication + exchange.size + routing_key.size + properties.size + reason.size + KEPT);
    if (!publication)
        return BH_ERR_NO_MEMORY;
    memset(publication, 0, sizeof *publication);
    char *at = publication->data;
    publication->exchange = bh__keep(&at, exchange);
    publication->routing_key = bh__keep(&at, routing_key);
    publication->properties = bh__keep(&at, properties);
    publication->reason = bh__keep(&at, reason);
    publication->id = bh__content_string(publication->properties, "backhop-id");
    publication->action = bh_plan_action(plan);
    publication->mandatory = bh_plan_mandatory(plan);
    publication->attempts = bh_plan_attempts(plan);
    publication->delay_ms = bh_plan_delay_ms(plan);
    publication->rung_ms = bh_plan_on_demand(plan) ? bh_plan_delay_ms(plan) : 0;
    publication->message = message;
    bh__message_keep(message);
    push(&self->publisher.due, publication);
    return BH_OK;
}

/* --------------------------------------------------------------------------------------------- the broker's answer */

/* It is with the broker, in a queue. */
static void published(bh_worker *self, bh__publication *publication)
{
    if (is_replay(publication)) {
        if (is_wanted(self, publication)) /* it may have been given up meanwhile */
            self->publisher.replay = BH__REPLAY_WENT;
    } else if (bh__worker_holds(self, publication->message)) {
        bh__worker_acknowledge(self, publication->message);
        if (publication->action == BH_ACTION_PARK)
            bh__worker_tell(self, BH_EVENT_PARKED, BH_OK, publication->reason, publication->id, publication->attempts,
                            0, 1);
        else if (self->tells_retries)
            bh__worker_tell(self, BH_EVENT_RETRIED, BH_OK, bh_str(""), publication->id, publication->attempts,
                            publication->delay_ms, 1);
    }
    release(publication);
}

/* It is not, and waits to be sent again. */
static void postpone(bh_worker *self, bh__publication *publication)
{
    publication->is_returned = publication->is_suspect = 0;
    bh__worker_back_off(self, &publication->back_off);
    push(&self->publisher.waiting, publication);
}

/* No broker would take it as it is. */
static void refused(bh_worker *self, bh__publication *publication, bh_status status, bh_bytes text)
{
    if (is_replay(publication)) {
        if (is_wanted(self, publication)) {
            self->publisher.replay = BH__REPLAY_REFUSED;
            self->publisher.replay_status = status;
            bh__report_set(&self->problem, status, "%.*s", (int)text.size, text.data);
        }
    } else if (bh__worker_holds(self, publication->message)) {
        bh__worker_leave_behind(self, publication->message);
        bh__worker_tell(self, BH_EVENT_REFUSED, status, text, publication->id, publication->attempts, 0, 1);
    }
    release(publication);
}

static void failed(bh_worker *self, bh__publication *publication, bh_event_kind kind, bh_status status, bh_bytes text)
{
    if (is_replay(publication)) {
        refused(self, publication, status, text);
        return;
    }
    if (!is_wanted(self, publication)) {
        release(publication);
        return;
    }
    postpone(self, publication);
    bh__worker_tell(self, kind, status, text, publication->id, publication->attempts, publication->back_off.wait_ms, 1);
}

static void nacked(bh_worker *self, bh__publication *publication)
{
    char text[700];
    snprintf(text, sizeof text,
             "the broker nacked the copy for exchange \"%.*s\", routing key \"%.*s\": a queue there is full "
             "(reject-publish) or not available",
             (int)publication->exchange.size, publication->exchange.data, (int)publication->routing_key.size,
             publication->routing_key.data);
    failed(self, publication, BH_EVENT_NACKED, BH_ERR_PUBLISH, bh_str(text));
}

/* It was returned before this. */
static void unrouted(bh_worker *self, const bh__confirms *confirms, bh__publication *publication)
{
    char text[900];
    snprintf(text, sizeof text,
             "the broker returned the copy (%s): no queue takes routing key \"%.*s\" of exchange \"%.*s\"",
             confirms->return_text, (int)publication->routing_key.size, publication->routing_key.data,
             (int)publication->exchange.size, publication->exchange.data);
    failed(self, publication, BH_EVENT_RETURNED, BH_ERR_PUBLISH, bh_str(text));
}

static void answered_one(bh_worker *self, bh__confirms *confirms, uint64_t tag, int is_ack)
{
    bh__publication *publication = *sent_at(confirms, tag);
    if (!publication)
        return;
    *sent_at(confirms, tag) = NULL;
    confirms->sent_count--;
    publication->message->is_sent = 0;
    if (publication->is_returned)
        unrouted(self, confirms, publication);
    else if (is_ack)
        published(self, publication);
    else
        nacked(self, publication);
}

static void answered(bh_worker *self, bh__confirms *confirms, uint64_t tag, int multiple, int is_ack)
{
    if (multiple) {
        uint64_t last = tag == 0 || tag >= confirms->next ? confirms->next - 1 : tag;
        for (uint64_t each = confirms->first; each <= last; each++)
            answered_one(self, confirms, each, is_ack);
    } else if (tag >= confirms->first && tag < confirms->next) {
        answered_one(self, confirms, tag, is_ack);
    }
    while (confirms->first < confirms->next && !*sent_at(confirms, confirms->first))
        confirms->first++;
}

static void returned_begins(bh__confirms *confirms, const amqp_basic_return_t *method)
{
    bh_bytes text = bh__from_amqp(method->reply_text);
    snprintf(confirms->return_text, sizeof confirms->return_text, "%d %.*s", method->reply_code, (int)text.size,
             text.data);
    bh__assembler_begin(&confirms->returned, 0, 0, method->exchange, method->routing_key);
}

/* A return names no delivery tag. Every copy in flight that it could be is sent again: a duplicate at worst. */
static void returned(bh_worker *self, const bh__confirms *confirms, const bh_message *content)
{
    bh_bytes id = bh__content_string(content->properties, "backhop-id");
    self->is_declared &= self->mode != BH_MODE_CREATE;
    for (uint64_t tag = confirms->first; tag < confirms->next; tag++) {
        bh__publication *publication = *sent_at(confirms, tag);
        if (!publication || publication->is_returned || !bh__same(publication->id, id) ||
            !bh__same(publication->exchange, content->exchange) ||
            !bh__same(publication->routing_key, content->routing_key))
            continue;
        publication->is_returned = 1;
    }
}

/* The channel was closed for one copy. Which one it was shows where each goes alone. */
static void closed(bh_worker *self, bh__confirms *confirms, const amqp_channel_close_t *close)
{
    bh__publisher *publisher = &self->publisher;
    bh__report words = {.size = 0};
    bh_status status = bh__worker_channel_closed(&self->publish.link, confirms->channel, close, "publishing", &words);
    size_t count = confirms->sent_count;
    end_confirms(publisher, confirms);
    if (count == 1) {
        bh__publication *culprit = pop(&publisher->due);
        if (status == BH_ERR_MISSING || status == BH_ERR_ACCESS)
            failed(self, culprit, BH_EVENT_RETURNED, status, bh__report_text(&words));
        else
            refused(self, culprit, BH_ERR_CHANNEL, bh__report_text(&words));
    }
    bh__publication *suspect = publisher->due.first;
    for (size_t i = 0; count > 1 && i < count; i++, suspect = suspect->next)
        suspect->is_suspect = 1;
    if (status == BH_ERR_MISSING && self->mode == BH_MODE_CREATE)
        self->is_declared = 0;
    bh__report_free(&words);
}

static void understand(bh_worker *self, bh__confirms *confirms, const amqp_method_t *method)
{
    switch (method->id) {
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *ack = method->decoded;
        answered(self, confirms, ack->delivery_tag, ack->multiple, 1);
        break;
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *nack = method->decoded;
        answered(self, confirms, nack->delivery_tag, nack->multiple, 0);
        break;
    }
    case AMQP_BASIC_RETURN_METHOD:
        returned_begins(confirms, method->decoded);
        break;
    case AMQP_CHANNEL_CLOSE_METHOD:
        closed(self, confirms, method->decoded);
        break;
    default:
        break;
    }
}

static bh__confirms *find_channel(bh__publisher *self, amqp_channel_t channel)
{
    for (size_t i = 0; i < BH__PUBLISH_CHANNELS; i++)
        if (self->channels[i].is_open && self->channels[i].channel == channel)
            return &self->channels[i];
    return NULL;
}

void bh__worker_publish_frame(bh_worker *self, const bh__frame *frame, const amqp_method_t *method)
{
    bh__confirms *confirms = find_channel(&self->publisher, frame->channel);
    if (!confirms)
        return;
    if (method) {
        understand(self, confirms, method);
        return;
    }
    bh_message *message;
    bh_status status = bh__assembler_add(&confirms->returned, frame, &message);
    if (status != BH_OK)
        bh__link_fail(&self->publish.link, status, "a returned copy could not be received");
    else if (message)
        returned(self, confirms, message);
    bh_message_free(message);
}

/* ---------------------------------------------------------------------------------------------------------- sending */

static int has_rung(const bh__publisher *self, int64_t rung_ms)
{
    for (size_t i = 0; i < self->rung_count; i++)
        if (self->rungs[i] == rung_ms)
            return 1;
    return 0;
}

void bh__worker_note_rung(bh_worker *self, int64_t rung_ms)
{
    bh__publisher *publisher = &self->publisher;
    void *rungs = publisher->rungs;
    publisher->wanted_rung_ms = 0;
    if (!bh__reserve(&rungs, &publisher->rung_capacity, sizeof *publisher->rungs, publisher->rung_count + 1))
        return; /* it is asked for again */
    publisher->rungs = rungs;
    publisher->rungs[publisher->rung_count++] = rung_ms;
}

void bh__worker_miss_rung(bh_worker *self, int64_t rung_ms, bh_status status, bh_bytes text)
{
    bh__publications due = self->publisher.due;
    self->publisher.due = (bh__publications){.first = NULL};
    self->publisher.wanted_rung_ms = 0;
    for (bh__publication *publication; (publication = pop(&due));) {
        if (publication->rung_ms == rung_ms)
            failed(self, publication, BH_EVENT_RETURNED, status, text);
        else
            push(&self->publisher.due, publication);
    }
}

static void send_copy(bh_worker *self, bh__confirms *confirms, bh__publication *publication, int64_t now_ms)
{
    amqp_basic_publish_t publish = {.exchange = bh__to_amqp(publication->exchange),
                                    .routing_key = bh__to_amqp(publication->routing_key),
                                    .mandatory = publication->mandatory};
    bh__link_publish(&self->publish.link, confirms->channel, &publish, publication->properties,
                     publication->message->body);
    publication->sent_ms = now_ms;
    publication->message->is_sent = 1;
    *sent_at(confirms, confirms->next++) = publication;
    confirms->sent_count++;
}

/* Whether all is there that the first one due needs; notes a rung that is not. */
static int has_place(bh_worker *self)
{
    bh__publisher *publisher = &self->publisher;
    int64_t rung_ms = publisher->due.first->rung_ms;
    if (rung_ms && !has_rung(publisher, rung_ms))
        publisher->wanted_rung_ms = self->mode == BH_MODE_CREATE ? rung_ms : 0;
    return publisher->wanted_rung_ms == 0;
}

static int may_send(const bh__confirms *confirms, const bh__publication *publication)
{
    if (confirms->sent_count == 0)
        return 1;
    const bh__publication *last = *sent_at(confirms, confirms->next - 1);
    return !publication->is_suspect && !(last && last->is_suspect);
}

/* The channel that the publication can go on now; NULL: none. */
static bh__confirms *next_channel(bh__publisher *self, const bh__publication *publication)
{
    for (size_t i = 0; i < BH__PUBLISH_CHANNELS; i++) {
        bh__confirms *confirms = &self->channels[self->turn++ % BH__PUBLISH_CHANNELS];
        if (may_send(confirms, publication))
            return confirms;
    }
    return NULL;
}

static void send_due(bh_worker *self, int64_t now_ms)
{
    bh__publisher *publisher = &self->publisher;
    const bh__link *link = &self->publish.link;
    publisher->wanted_rung_ms = 0;
    while (publisher->due.first && bh__publisher_is_open(publisher) && self->is_declared && !link->is_blocked &&
           !bh__link_is_broken(link) && bh__buffer_size(&link->out) < MOST_WAITING_BYTES) {
        if (!is_wanted(self, publisher->due.first)) {
            release(pop(&publisher->due));
            continue;
        }
        if (publisher->due.first->properties.size > bh__link_header_room(link)) { /* another broker's frame_max */
            refused(self, pop(&publisher->due), BH_ERR_FRAME, bh_status_text(BH_ERR_FRAME));
            continue;
        }
        bh__confirms *confirms = has_place(self) ? next_channel(publisher, publisher->due.first) : NULL;
        if (!confirms || !reserve_sent(confirms))
            return;
        send_copy(self, confirms, pop(&publisher->due), now_ms);
    }
}

static void wake_waiting(bh_worker *self, int64_t now_ms)
{
    bh__publications waiting = self->publisher.waiting;
    self->publisher.waiting = (bh__publications){.first = NULL};
    for (bh__publication *publication; (publication = pop(&waiting));)
        push(publication->back_off.due_ms <= now_ms ? &self->publisher.due : &self->publisher.waiting, publication);
}

/* When the oldest copy in flight has waited too long for its confirm. */
static int64_t confirm_deadline_ms(const bh_worker *self)
{
    const bh__publisher *publisher = &self->publisher;
    int64_t deadline_ms = INT64_MAX;
    if (!self->publish.link.is_open || self->publish.link.is_blocked)
        return deadline_ms;
    for (size_t i = 0; i < BH__PUBLISH_CHANNELS; i++) {
        const bh__confirms *confirms = &publisher->channels[i];
        if (confirms->sent_count == 0)
            continue;
        int64_t sent_ms = (*sent_at(confirms, confirms->first))->sent_ms;
        int64_t since_ms = sent_ms > publisher->unblocked_ms ? sent_ms : publisher->unblocked_ms;
        if (since_ms + self->confirm_timeout_ms < deadline_ms)
            deadline_ms = since_ms + self->confirm_timeout_ms;
    }
    return deadline_ms;
}

static void check_confirms(bh_worker *self, int64_t now_ms)
{
    if (now_ms < confirm_deadline_ms(self))
        return;
    char text[200];
    snprintf(text, sizeof text, "the broker did not confirm within %lld ms; its connection is made again",
             (long long)self->confirm_timeout_ms);
    bh__worker_tell(self, BH_EVENT_UNCONFIRMED, BH_ERR_PUBLISH, bh_str(text), bh_str(""), 0, 0,
                    (int64_t)count_sent(&self->publisher));
    bh__link_fail(&self->publish.link, BH_ERR_CONNECTION, "%s", text);
}

void bh__worker_advance_publisher(bh_worker *self, int64_t now_ms)
{
    if (self->publisher.waiting.count)
        wake_waiting(self, now_ms);
    send_due(self, now_ms);
    check_confirms(self, now_ms);
}

int64_t bh__worker_publisher_due_ms(const bh_worker *self)
{
    int64_t due_ms = confirm_deadline_ms(self);
    for (const bh__publication *publication = self->publisher.waiting.first; publication;
         publication = publication->next)
        if (publication->back_off.due_ms < due_ms)
            due_ms = publication->back_off.due_ms;
    return due_ms;
}
