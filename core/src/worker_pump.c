#include "worker_internal.h"

#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum {
    NAP_MS = 1,          /* after something was settled: what follows at once is acknowledged together */
    REST_NS = 200000,    /* after something was offered: what follows at once is read together */
    LONGEST_MS = 3600000 /* of a poll */
};

/* ---------------------------------------------------------------------------------------------------------- reading */

static void connection_closed(bh__link *link, const amqp_connection_close_t *close)
{
    amqp_connection_close_ok_t ok = {0};
    bh_bytes text = bh__from_amqp(close->reply_text);
    bh__link_send(link, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok);
    bh__link_flush(link, bh__monotonic_ms());
    link->close_code = close->reply_code;
    snprintf(link->close_text, sizeof link->close_text, "%.*s", (int)text.size, text.data);
    bh__link_fail(link, BH_ERR_CONNECTION, "the broker closed the connection (%d %.*s)", close->reply_code,
                  (int)text.size, text.data);
}

static void blocked(bh_worker *self, bh__link *link, bh_bytes reason)
{
    if (link != &self->publish.link || link->is_blocked)
        return;
    link->is_blocked = 1;
    bh__worker_tell(self, BH_EVENT_BLOCKED, BH_OK, reason, bh_str(""), 0, 0, (int64_t)bh__worker_count_copies(self));
}

static void unblocked(bh_worker *self, bh__link *link)
{
    if (!link->is_blocked)
        return;
    link->is_blocked = 0;
    self->publisher.unblocked_ms = bh__monotonic_ms();
    bh__worker_tell(self, BH_EVENT_UNBLOCKED, BH_OK, bh_str("the broker takes publishes again"), bh_str(""), 0, 0,
                    (int64_t)bh__worker_count_copies(self));
}

static void understand_connection(bh_worker *self, bh__link *link, const amqp_method_t *method)
{
    switch (method->id) {
    case AMQP_CONNECTION_CLOSE_METHOD:
        connection_closed(link, method->decoded);
        break;
    case AMQP_CONNECTION_BLOCKED_METHOD: {
        const amqp_connection_blocked_t *reason = method->decoded;
        blocked(self, link, bh__from_amqp(reason->reason));
        break;
    }
    case AMQP_CONNECTION_UNBLOCKED_METHOD:
        unblocked(self, link);
        break;
    default:
        break;
    }
}

static void dispatch_frame(bh_worker *self, bh__link *link, const bh__frame *frame)
{
    amqp_method_t method = {0, NULL};
    int is_method = frame->type == AMQP_FRAME_METHOD;
    if (frame->type == AMQP_FRAME_HEARTBEAT || (is_method && !bh__link_decode(link, frame, &method)))
        return;
    int is_reply = is_method && link->reply.decoded == method.decoded && link->reply.id == method.id;
    if (is_reply && method.id != AMQP_BASIC_GET_OK_METHOD)
        return; /* whoever waits for it takes it; of this one, content follows */
    if (link == &self->consume.link && frame->channel == BH__CHANNEL_REPLAY)
        bh__worker_replay_frame(self, frame, is_method ? &method : NULL);
    else if (frame->channel == 0)
        understand_connection(self, link, &method);
    else if (link == &self->consume.link)
        bh__worker_consume_frame(self, frame, is_method ? &method : NULL);
    else
        bh__worker_publish_frame(self, frame, is_method ? &method : NULL);
}

static void dispatch(bh_worker *self, bh__link *link)
{
    bh__frame frame;
    while (bh__link_next(link, &frame))
        dispatch_frame(self, link, &frame);
}

/* --------------------------------------------------------------------------------------------------------- waiting */

static int is_alive(const bh__link *link)
{
    return link->phase != BH__CLOSED && !bh__link_is_broken(link);
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int count_alive(const bh_worker *self)
{
    return is_alive(&self->consume.link) + is_alive(&self->publish.link);
}

static int64_t next_ms(const bh_worker *self, int64_t until_ms, int64_t now_ms)
{
    int64_t next = self->stage == BH__LEAVING ? until_ms : earlier(until_ms, atomic_load(&self->shared.stop_ms));
    next = earlier(next, bh__worker_publisher_due_ms(self));
    next = earlier(next, bh__worker_acks_due_ms(self));
    next = earlier(next, bh__link_next_beat_ms(&self->consume.link));
    next = earlier(next, bh__link_next_beat_ms(&self->publish.link));
    return self->consume.link.has_more || self->publish.link.has_more ? now_ms : next;
}

/* Waits; `ready` gets whether something happened to each link's socket. */
static void wait(bh_worker *self, int64_t until_ms, int ready[2])
{
    bh__link *const links[] = {&self->consume.link, &self->publish.link};
    struct pollfd polled[3] = {{.fd = self->shared.wake[0], .events = POLLIN}};
    for (int i = 0; i < 2; i++)
        polled[i + 1] =
            (struct pollfd){.fd = is_alive(links[i]) ? links[i]->socket.fd : -1, .events = bh__link_events(links[i])};
    int64_t left_ms = next_ms(self, until_ms, bh__monotonic_ms()) - bh__monotonic_ms();
    int timeout_ms = left_ms < 0 ? 0 : left_ms > LONGEST_MS ? LONGEST_MS : (int)left_ms;
    int naps = self->has_settled || atomic_load(&self->shared.settled_count) > 0;
    bh__sleep sleep = naps ? BH__NAPPING : BH__ASLEEP;
    if (naps && timeout_ms > NAP_MS)
        timeout_ms = NAP_MS;
    if (!bh__shared_lie_down(&self->shared, sleep) && !self->consumer.is_doubtful)
        timeout_ms = 0;
    int count = poll(polled, 3, timeout_ms);
    self->is_woken = count == 0 || polled[0].revents;
    bh__shared_get_up(&self->shared, count > 0 && polled[0].revents);
    for (int i = 0; i < 2; i++)
        ready[i] = count > 0 && polled[i + 1].fd >= 0 && polled[i + 1].revents;
}

/* While the sockets are busy, what was settled is carried out once a millisecond, or when it is much. */
static void settle_in_time(bh_worker *self, int64_t now_ms)
{
    if (!self->is_woken && now_ms == self->settled_ms && atomic_load(&self->shared.settled_count) < self->shared.many)
        return;
    self->settled_ms = now_ms;
    bh__worker_settle_all(self);
}

/* A broker sends in small pieces, and to wake the other thread for each would cost more than what is in it. Where the
 * broker may send no more than as much again, it must not wait for its acknowledgements. */
static void rest_if_offering(bh_worker *self)
{
    const bh__consumer *consumer = &self->consumer;
    if (!consumer->arrived.first || self->stage != BH__WORKING)
        return;
    bh__shared_offer(&self->shared, &self->consumer.arrived);
    if ((int64_t)consumer->held_count < self->prefetch / 2) {
        struct timespec time = {0, REST_NS};
        nanosleep(&time, NULL);
    }
}

void bh__worker_pump(bh_worker *self, int64_t until_ms)
{
    bh__link *const links[] = {&self->consume.link, &self->publish.link};
    int64_t now_ms = bh__monotonic_ms();
    int ready[2];
    int alive = count_alive(self);
    int64_t wanted_ms = self->publisher.wanted_rung_ms;
    int is_consuming = self->consumer.is_consuming;
    settle_in_time(self, now_ms);
    bh__worker_advance_publisher(self, now_ms);
    bh__worker_flush_acks_in_time(self, now_ms);
    for (int i = 0; i < 2; i++) {
        if (links[i]->phase == BH__TALKING)
            bh__link_flush(links[i], now_ms);
    }
    /* Who waits for a link that broke, or can declare a rung or consume again, has to see it. */
    int is_news = count_alive(self) != alive || self->publisher.wanted_rung_ms != wanted_ms ||
                  self->consumer.is_consuming != is_consuming;
    wait(self, is_news ? now_ms : until_ms, ready);
    now_ms = bh__monotonic_ms();
    for (int i = 0; i < 2; i++) {
        if (links[i]->phase != BH__TALKING || (!ready[i] && !links[i]->has_more))
            continue;
        bh__link_flush(links[i], now_ms);
        if (is_alive(links[i]))
            bh__link_read(links[i], now_ms);
        dispatch(self, links[i]);
    }
    for (int i = 0; i < 2; i++)
        bh__link_beat(links[i], now_ms); /* after reading: what waits in the kernel is a sign of life */
    rest_if_offering(self);
}
