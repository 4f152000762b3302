#include "worker/procedures/runner.h"

#include "worker/engine/pacing.h"

enum {
    MOST_APART = 3,          /* failures of the publish connection in a row, before both are opened again */
    MOST_INTERNAL_ERRORS = 3 /* that end the consume connection in a row, before the worker names the likely cause */
};

void bh__emit_failure(bh__runner *self, const bh__connection *connection, bh_status status, int64_t wait_ms)
{
    self->hopeless_count = bh__needs_a_person(status) ? self->hopeless_count + 1 : 0;
    if (!bh__engine_is_interrupted(&self->engine))
        bh__emit(self->context, (bh__event_data){.kind = BH_EVENT_UNAVAILABLE,
                                                 .status = status,
                                                 .text = bh__report_text(&self->problem),
                                                 .delay_ms = wait_ms,
                                                 .connection = connection});
}

/* Returns why the publish connection ended, for the ledger. A copy in flight can be the cause if
 * the broker reported an error or the socket was cut. It is not the cause if the broker was
 * stopped (320), or if the worker gave the connection up. */
static bh_ending ending_of(const bh__link *link)
{
    return link->is_cut && !link->close_code ? BH_ENDING_CUT : bh_ending_of(link->close_code);
}

static int64_t end_channels_of(bh__runner *self, const bh__connection *connection)
{
    bh__context *context = self->context;
    if (connection == &context->publish) {
        bh__publisher_end(&self->engine.publisher, context, ending_of(&connection->link));
        return 0;
    }
    bh__parked_reader_end(&self->engine.parked_reader, context);
    bh__probe_end(&self->engine.probe);
    return bh__consumer_end(&self->engine.consumer, context);
}

/* RabbitMQ 4.3 ends each connection on which it must deliver an AMQP 1.0 message with a UUID in its
 * application properties. */
static void explain_internal_errors(bh__connection *connection)
{
    bh__link *link = &connection->link;
    if (link->close_code == AMQP_INTERNAL_ERROR && connection->back_off.failures >= MOST_INTERNAL_ERRORS)
        bh__report_add(&link->problem, "; perhaps RabbitMQ cannot convert a message of the queue, which an AMQP 1.0 "
                                       "client published: read RabbitMQ's log, and consume the message with such a "
                                       "client");
}

/* Ends a connection that broke. Its back-off begins again if the connection worked or lasted; a
 * successful login or a delivery is not enough. */
static void end_if_broken(bh__runner *self, bh__connection *connection)
{
    bh__context *context = self->context;
    bh__link *link = &connection->link;
    if (link->phase == BH__CLOSED || !bh__link_is_broken(link))
        return;
    bh__engine_advance(&self->engine); /* emits the events of copies that were confirmed before */
    int64_t count = end_channels_of(self, connection);
    context->setup.is_ready = context->setup.is_declared = 0;
    self->next_uri += connection == &context->consume; /* tries the next URI */
    if (connection->has_worked || bh__monotonic_ms() - connection->opened_ms >= BH__LASTED_MS)
        bh__back_off_forget(&connection->back_off);
    int64_t delay_ms = bh__note_failure(context, &connection->back_off);
    if (connection == &context->consume)
        explain_internal_errors(connection);
    bh__emit(context, (bh__event_data){.kind = BH_EVENT_DISCONNECTED,
                                       .status = link->problem.status,
                                       .text = bh__report_text(&link->problem),
                                       .delay_ms = delay_ms,
                                       .count = count,
                                       .connection = connection});
    bh__link_close(link);
}

static int is_due(const bh__connection *connection)
{
    return connection->link.phase == BH__CLOSED && bh__monotonic_ms() >= connection->back_off.due_ms;
}

void bh__reconnect_consumer(bh__runner *self)
{
    bh__connection *consume = &self->context->consume;
    const bh__settings *settings = self->context->settings;
    if (!is_due(consume))
        return;
    bh_status status = bh__connect(self, consume, &settings->uris[self->next_uri % settings->uri_count]);
    if (status == BH_OK)
        return;
    int is_round_over = ++self->next_uri % settings->uri_count == 0; /* the other URIs are tried without a back-off */
    bh__emit_failure(self, consume, status, is_round_over ? bh__note_failure(self->context, &consume->back_off) : 0);
}

/* Gives up the consume connection too after MOST_APART failures of the publish connection. Both
 * are then opened at the next URI, or at the broker that is there now. */
static void move_on_if_apart(bh__runner *self)
{
    bh__context *context = self->context;
    if (context->publish.back_off.failures % MOST_APART == 0)
        bh__link_fail(&context->consume.link, BH_ERR_CONNECTION, "the publish connection cannot be made beside it: %s",
                      bh__report_text(&self->problem).data);
}

/* Opens the publish connection to the broker of the consume connection, because originals must
 * be acknowledged where their copies are. An attempt that a stop interrupts has not failed: the
 * drain continues on the consume connection. */
static void connect_publisher_if_due(bh__runner *self)
{
    bh__context *context = self->context;
    bh__connection *consume = &context->consume, *publish = &context->publish;
    if (!consume->link.is_open || !is_due(publish))
        return;
    bh_status status = bh__connect(self, publish, consume->uri);
    if (status == BH_OK || bh__engine_is_interrupted(&self->engine))
        return;
    bh__emit_failure(self, publish, status, bh__note_failure(context, &publish->back_off));
    move_on_if_apart(self);
}

/* Closes the publish connection if both connections lead to different brokers, by different URIs
 * or through a load balancer. It is opened again by the URI of the other. */
static void follow_if_apart(bh__runner *self)
{
    bh__context *context = self->context;
    bh__connection *consume = &context->consume, *publish = &context->publish;
    if (!consume->link.is_open || !publish->link.is_open || bh__is_one_broker(self))
        return;
    int have_same_uri = consume->uri == publish->uri;
    bh__report_set(
        &self->problem, BH_ERR_BROKER,
        "the consume connection is to cluster \"%s\", vhost %s, and the publish connection to cluster \"%s\", vhost "
        "%s: a copy would be on another broker than its original; give URIs of one cluster and vhost",
        consume->link.cluster, consume->uri->vhost, publish->link.cluster, publish->uri->vhost);
    bh__publisher_end(&self->engine.publisher, context, BH_ENDING_ORDERLY);
    bh__disconnect(self, publish);
    if (!have_same_uri)
        return;
    bh__emit_failure(self, publish, BH_ERR_BROKER, bh__note_failure(context, &publish->back_off));
    move_on_if_apart(self);
}

int bh__are_open(const bh__runner *self)
{
    const bh__context *context = self->context;
    return context->consume.link.is_open && context->publish.link.is_open;
}

void bh__reconnect_publisher(bh__runner *self)
{
    end_if_broken(self, &self->context->consume);
    end_if_broken(self, &self->context->publish);
    connect_publisher_if_due(self);
    follow_if_apart(self);
}

int64_t bh__reconnect_due_ms(const bh__runner *self)
{
    const bh__context *context = self->context;
    const bh__link *consume = &context->consume.link, *publish = &context->publish.link;
    int64_t due_ms = INT64_MAX;
    if (bh__link_is_broken(consume) || bh__link_is_broken(publish))
        return 0;
    if (consume->phase == BH__CLOSED && self->engine.stage == BH__WORKING)
        due_ms = context->consume.back_off.due_ms;
    if (publish->phase == BH__CLOSED && consume->is_open)
        due_ms = bh__earlier(due_ms, context->publish.back_off.due_ms);
    return due_ms;
}
