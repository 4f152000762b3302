#include "move/snapshot.h"

#include "common/command.h"
#include "base/memory.h"
#include "common/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

enum {
    SILENCE_MS = 1000, /* after which to look whether there is something still */
    LONGEST_SILENCE_MS = 60000,
    PAUSE_MS = 10,
    QUESTIONS = 200, /* behind acknowledgements of any number */
    FEW_QUESTIONS = 8,
    LONGEST_RETURN_MS = 30000,
    LONGEST_OTHER_MS = 15000, /* for the consumers of one who was killed */
    MOST_DOUBTS = 3           /* each takes 10 s, if the queue does not answer */
};

/* In the order of their tags consumers' messages are given back before RabbitMQ 4.0. */
static void consumer_tag(char out[32], size_t number)
{
    snprintf(out, 32, "backhop-%03zu", number);
}

/* --------------------------------------------------------------------------------------- frames */

static void on_message(snapshot *self, bh_message *message)
{
    void *flags = self->is_acked;
    if (message->delivery_tag != (uint64_t)self->taken + 1) { /* it is an index here */
        bh__link_fail(&self->broker->link, BH_ERR_CONNECTION, "a delivery has tag %llu instead of %lld",
                      (unsigned long long)message->delivery_tag, (long long)self->taken + 1);
        bh_message_free(message);
        return;
    }
    if (!bh__reserve(&flags, &self->room, 1, (size_t)message->delivery_tag + 1))
        must(NULL);
    self->is_acked = flags;
    self->is_acked[message->delivery_tag] = 0;
    self->held++;
    self->taken++;
    if (self->is_ending)
        bh_message_free(message);
    else
        bh__message_list_push(&self->arrived, message);
}

static void end_guard(snapshot *self)
{
    guard_end(self->stand_by);
    self->stand_by = (guard){0, -1};
}

static void on_delivery(snapshot *self, const amqp_basic_deliver_t *deliver)
{
    char tag[32];
    if (self->stand_by.process) {
        consumer_tag(tag, self->consumers - 1);
        if (bh__same(bh__from_amqp(deliver->consumer_tag), bh_str(tag)))
            end_guard(self);
    }
    bh__assembler_begin(&self->assembler, deliver->delivery_tag, deliver->redelivered != 0, deliver->exchange,
                        deliver->routing_key);
}

/* Requests the depth on the channel of the deliveries, without waiting for the answer. */
static void ask(snapshot *self)
{
    amqp_queue_declare_t declare = {.queue = amqp_cstring_bytes(self->queue), .passive = 1};
    self->is_asked = 1;
    bh__link_send(&self->broker->link, CHANNEL_CONSUME, AMQP_QUEUE_DECLARE_METHOD, &declare);
}

/*
 * Ends the snapshot if the queue is empty. No message came for a while: another consumer may have
 * taken the messages that were counted, or the broker is slow.
 *
 * One answer is not enough: it may overtake messages that the queue had handed to the channel
 * before. A second answer comes after them. A busy quorum queue also reports 0 messages, but then 0
 * consumers as well, although this channel consumes.
 */
static void on_depth(snapshot *self, const amqp_queue_declare_ok_t *depth)
{
    int was_dry = self->is_dry;
    self->is_asked = 0;
    if (self->is_ending) /* the channel may be closing */
        return;
    self->is_dry = depth->message_count == 0 && depth->consumer_count > 0;
    if (self->is_dry && !was_dry)
        ask(self);
    else if (self->is_dry && self->given == self->taken)
        self->total = self->given;
}

void snapshot_on_frame(void *data, const bh__frame *frame, const amqp_method_t *method)
{
    snapshot *self = data;
    bh_message *message = NULL;
    if (frame->channel != CHANNEL_CONSUME)
        return;
    if (!method) {
        bh_status status = bh__assembler_add(&self->assembler, frame, &message);
        if (status != BH_OK)
            bh__link_fail(&self->broker->link, status, "a message could not be received");
        else if (message)
            on_message(self, message);
    } else if (method->id == AMQP_BASIC_DELIVER_METHOD) {
        on_delivery(self, method->decoded);
    } else if (method->id == AMQP_QUEUE_DECLARE_OK_METHOD) {
        on_depth(self, method->decoded);
    } else if (method->id == AMQP_CHANNEL_CLOSE_METHOD) {
        self->status = bh__link_answer_channel_close(&self->broker->link, CHANNEL_CONSUME, method->decoded,
                                                     "looking at messages", &self->broker->problem);
    } else if (method->id == AMQP_BASIC_CANCEL_METHOD) {
        self->status = bh__report_set(
            &self->broker->problem, BH_ERR_CANCELLED,
            "the broker ended the consumer of queue \"%s\": it was deleted, or held for too long", self->queue);
    }
}

/* ------------------------------------------------------------------------------------ consumers */

/* Begins a consumer of at most `count` messages. `waits`: until the broker has begun it; else a
 * refusal comes later. */
static bh_status begin_consumer(snapshot *self, int64_t count, int waits)
{
    bh__link *link = &self->broker->link;
    char tag[32], what[320];
    consumer_tag(tag, self->consumers++);
    amqp_basic_qos_t qos = {.prefetch_count = (uint16_t)(count < SNAPSHOT_PREFETCH ? count : SNAPSHOT_PREFETCH)};
    amqp_basic_consume_t begin = {
        .queue = amqp_cstring_bytes(self->queue), .consumer_tag = amqp_cstring_bytes(tag), .nowait = !waits};
    bh__link_send(link, CHANNEL_CONSUME, AMQP_BASIC_QOS_METHOD, &qos);
    if (!waits) {
        bh__link_send(link, CHANNEL_CONSUME, AMQP_BASIC_CONSUME_METHOD, &begin);
        return BH_OK;
    }
    snprintf(what, sizeof what, "looking at queue \"%s\"", self->queue);
    return connection_call(self->broker, CHANNEL_CONSUME, AMQP_BASIC_CONSUME_METHOD, &begin,
                           AMQP_BASIC_CONSUME_OK_METHOD, 0, what);
}

/*
 * Begins all consumers in one go, so that nothing comes in between.
 *
 * Until all of them have begun, a connection that closes would bring the messages of the first ones
 * back behind the others. The messages of the first ones are given meanwhile.
 */
static bh_status consume(snapshot *self)
{
    bh_status status = BH_OK;
    int64_t remaining = self->total;
    int is_one = remaining <= SNAPSHOT_PREFETCH;
    if (!is_one)
        self->stand_by = guard_begin(self->broker->link.socket.fd);
    for (; status == BH_OK && remaining > 0; remaining -= SNAPSHOT_PREFETCH)
        status = begin_consumer(self, remaining, is_one);
    return status;
}

bh_status snapshot_close(snapshot *self)
{
    char tag[32];
    bh_status status = BH_OK;
    for (size_t i = 0; status == BH_OK && i < self->consumers; i++) {
        consumer_tag(tag, i);
        amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(tag)};
        status = connection_call(self->broker, CHANNEL_CONSUME, AMQP_BASIC_CANCEL_METHOD, &cancel,
                                 AMQP_BASIC_CANCEL_OK_METHOD, 0, "ending a consumer");
    }
    self->consumers = 0;
    return status;
}

/* Waits a moment. */
static bh_status rest(const snapshot *self)
{
    int64_t until_ms = bh__monotonic_ms() + PAUSE_MS;
    bh_status status = BH_OK;
    while (status == BH_OK && bh__monotonic_ms() < until_ms && !is_interrupted())
        status = connection_pump(self->broker, until_ms);
    return status;
}

/* Counts the ready messages. Waits while there is a consumer: if it is of a command that was just
 * killed, its messages may come back soon. */
static bh_status count_ready(snapshot *self, int64_t *consumers)
{
    int64_t until_ms = bh__monotonic_ms() + LONGEST_OTHER_MS;
    bh_status status = connection_look(self->broker, self->queue, &self->ready, consumers);
    while (status == BH_OK && *consumers > 0 && bh__monotonic_ms() < until_ms && !is_interrupted()) {
        status = rest(self);
        if (status == BH_OK)
            status = connection_look(self->broker, self->queue, &self->ready, consumers);
    }
    if (status == BH_OK && *consumers > 0)
        complain("another consumer of \"%s\" runs: this command cannot see the messages that it holds", self->queue);
    return status;
}

/* Sets whether the queue has no message: it answers a consumer, and then counts this one. */
static bh_status probe_empty(snapshot *self, int *is_empty)
{
    int64_t ready = 0, consumers = 0;
    bh_status status = connection_open_channel(self->broker, CHANNEL_CONSUME);
    if (status == BH_OK)
        status = begin_consumer(self, 1, 1);
    if (status == BH_OK)
        status = connection_read_depth(self->broker, CHANNEL_CONSUME, self->queue, &ready, &consumers);
    if (status == BH_OK)
        status = connection_close_channel(self->broker, CHANNEL_CONSUME);
    *is_empty = consumers > 0 && ready == 0 && self->taken == 0;
    bh__message_list_clear(&self->arrived);
    bh__assembler_clear(&self->assembler);
    self->consumers = 0;
    self->taken = self->held = 0;
    return status;
}

/* Counts the ready messages as count_ready() does, and doubts a count of 0. The broker reports 0
 * messages and 0 consumers of a quorum queue that does not answer within 10 s. */
static bh_status count_surely(snapshot *self)
{
    int64_t consumers = 0;
    int is_sure = 0;
    bh_status status = BH_OK;
    for (int doubts = 0; status == BH_OK && !is_sure && !is_interrupted(); doubts++) {
        if (doubts == MOST_DOUBTS)
            return bh__report_set(&self->broker->problem, BH_ERR_TIMEOUT,
                                  "queue \"%s\" does not tell how many messages it has: try again later", self->queue);
        status = count_ready(self, &consumers);
        is_sure = self->ready > 0 || consumers > 0;
        if (status == BH_OK && !is_sure)
            status = probe_empty(self, &is_sure);
    }
    self->total = self->ready;
    return status;
}

int snapshot_begin(snapshot *self, connection *broker, const char *queue)
{
    const int64_t most = (int64_t)SNAPSHOT_MOST_CONSUMERS * SNAPSHOT_PREFETCH;
    *self = (snapshot){.broker = broker, .queue = queue, .stand_by = {0, -1}};
    broker->on_frame = snapshot_on_frame;
    broker->data = self;
    self->status = count_surely(self);
    if (self->total > most) {
        complain("\"%s\" has %lld messages; the first %lld are looked at, and go behind the others", queue,
                 (long long)self->ready, (long long)most);
        self->total = most;
    }
    if (self->status == BH_OK)
        self->status = connection_open_channel(broker, CHANNEL_CONSUME);
    if (self->status == BH_OK)
        self->status = consume(self);
    if (self->status == BH_OK)
        return EX_OK;
    end_guard(self);
    broker->on_frame = NULL;
    return connection_complain(broker);
}

/* ------------------------------------------------------------------------------------- messages */

static int is_over(const snapshot *self)
{
    return self->given >= self->total || (self->most > 0 && self->given >= self->most) || self->status != BH_OK ||
           is_interrupted();
}

bh_message *snapshot_next(snapshot *self)
{
    int64_t begun_ms = bh__monotonic_ms(), looked_ms = begun_ms;
    while (!is_over(self) && !self->arrived.first) {
        int64_t now_ms = bh__monotonic_ms();
        if (now_ms - begun_ms >= CONNECTION_PATIENT_MS)
            connection_report_waiting(self->broker);
        if (now_ms - begun_ms >= LONGEST_SILENCE_MS) {
            self->status = bh__report_set(&self->broker->problem, BH_ERR_TIMEOUT,
                                          "queue \"%s\" gives no message, though it has some", self->queue);
        } else {
            if (now_ms - looked_ms >= SILENCE_MS && !self->is_asked) {
                looked_ms = now_ms;
                self->is_dry = 0;
                ask(self);
            }
            bh_status status = connection_pump(self->broker, now_ms + SILENCE_MS);
            self->status = status == BH_OK ? self->status : status;
        }
    }
    if (is_over(self))
        return NULL;
    self->given++;
    return bh__message_list_pop(&self->arrived);
}

void snapshot_ack(snapshot *self, uint64_t tag)
{
    amqp_basic_ack_t ack = {.delivery_tag = tag};
    self->held--;
    self->is_acked[tag] = 1;
    bh__link_send(&self->broker->link, CHANNEL_CONSUME, AMQP_BASIC_ACK_METHOD, &ack);
}

/* Waits until the queue has so many messages of this snapshot again. */
static bh_status await_return(const snapshot *self, int64_t count)
{
    int64_t there = 0, until_ms = bh__monotonic_ms() + LONGEST_RETURN_MS;
    bh_status status = BH_OK;
    while (status == BH_OK && count > 0 && bh__monotonic_ms() < until_ms) {
        status = connection_look(self->broker, self->queue, &there, NULL);
        if (there >= self->ready - self->taken + count)
            return status;
        if (status == BH_OK)
            status = connection_pump(self->broker, bh__monotonic_ms() + PAUSE_MS);
    }
    return status;
}

/* Waits for the acknowledgements if no message is held that could be given back behind them. Reads
 * the depth on their own channel: the queue answers after the acknowledgements. It does so many
 * times, as the queue works on them bit by bit. */
static bh_status look_behind_acks(const snapshot *self, int questions)
{
    int64_t ready;
    bh_status status = BH_OK;
    for (int i = 0; status == BH_OK && i < questions; i++)
        status = connection_read_depth(self->broker, CHANNEL_CONSUME, self->queue, &ready, NULL);
    return status;
}

bh_status snapshot_await_acks(const snapshot *self)
{
    return look_behind_acks(self, FEW_QUESTIONS);
}

/* Gives back the messages of each consumer, one consumer after the other, each when the queue has
 * the messages of the one before. One nack of all gives them back in another order. */
static bh_status give_back_in_order(snapshot *self)
{
    int64_t back = 0;
    bh_status status = snapshot_close(self);
    for (int64_t begin = 1; status == BH_OK && begin <= self->taken; begin += SNAPSHOT_PREFETCH) {
        amqp_basic_nack_t nack = {.multiple = 1, .requeue = 1};
        for (int64_t tag = begin; tag < begin + SNAPSHOT_PREFETCH && tag <= self->taken; tag++)
            if (!self->is_acked[tag]) {
                nack.delivery_tag = (uint64_t)tag;
                back++;
            }
        if (!nack.delivery_tag)
            continue;
        bh__link_send(&self->broker->link, CHANNEL_CONSUME, AMQP_BASIC_NACK_METHOD, &nack);
        status = await_return(self, back);
    }
    return status;
}

/*
 * Gives back the held messages. Gives back only one if the end of the channel can return the rest.
 *
 * From RabbitMQ 4.3 on a nack does not count as a delivery. Before 4.0 a nack of many messages
 * gives them back in an order of its own. So does a nack of messages that came while their consumer
 * was being cancelled. So the end of the channel gives them back before 4.0, and if not all
 * messages have come.
 */
static bh_status give_back(snapshot *self)
{
    amqp_basic_nack_t first = {.delivery_tag = 1, .requeue = 1};
    if (self->expires)
        return self->held < self->taken ? look_behind_acks(self, QUESTIONS) : BH_OK;
    if (self->taken >= self->total && self->held > 0 && connection_is_at_least(self->broker, 4, 0))
        return give_back_in_order(self);
    if (self->held == self->taken)
        return BH_OK;
    if (self->held == 0)
        return look_behind_acks(self, QUESTIONS);
    while (self->is_acked[first.delivery_tag])
        first.delivery_tag++;
    bh_status status = snapshot_close(self);
    if (status == BH_OK)
        bh__link_send(&self->broker->link, CHANNEL_CONSUME, AMQP_BASIC_NACK_METHOD, &first);
    return status == BH_OK ? await_return(self, 1) : status;
}

int snapshot_end(snapshot *self)
{
    connection *broker = self->broker;
    bh_status status = self->status;
    self->is_ending = 1;
    end_guard(self);
    bh__message_list_clear(&self->arrived);
    if (status == BH_OK)
        status = give_back(self);
    if (status == BH_OK)
        status = connection_close_channel(broker, CHANNEL_CONSUME);
    broker->on_frame = NULL;
    if (status == BH_OK && !self->expires)
        status = await_return(self, self->held);
    free(self->is_acked);
    self->is_acked = NULL;
    bh__assembler_clear(&self->assembler);
    if (status != BH_OK)
        return connection_complain(broker);
    return is_interrupted() ? EXIT_INTERRUPTED : EX_OK;
}
