#include "procedures/runner.h"

#include "engine/decision.h"
#include "engine/pacing.h"

#include <stdlib.h>

enum {
    FEWEST_HOPELESS = 3, /* failures, and one of each URI, before a worker that was never ready gives up */
    MOST_APART = 3       /* failures of the publish connection alone, before both are made anew */
};

bh_status bh__runner_init(bh__runner *self, const bh_worker *worker, const bh__settings *settings, bh__mailbox *mailbox)
{
    return bh__context_init(&self->engine.context, worker, settings, mailbox);
}

void bh__runner_free(bh__runner *self)
{
    bh__engine_free(&self->engine);
    bh_declaring_free(self->declaring);
    bh_declared_free(self->declared);
    bh__report_free(&self->problem);
}

/* The work queues that the settings name are looked for first. */
static bh_status begin_relay(bh__runner *self)
{
    bh__places *places = &self->engine.context.places;
    const bh_relay *relay = self->engine.context.settings->relay;
    bh_status status = self->declared ? BH_OK : bh_declared_new(&self->declared);
    if (status == BH_OK)
        status = bh_declaring_set_declared(self->declaring, self->declared);
    if (status == BH_OK)
        status = bh_declaring_set_makes_rungs(self->declaring, 1);
    self->engine.waiting_count = 0;
    bh__places_free(places);
    *places = (bh__places){.count = 0};
    for (size_t i = 0; status == BH_OK && i < bh_relay_queue_count(relay); i++)
        if (!bh_relay_queue_is_pattern(relay, i) && !bh__places_add(places, bh_relay_queue_name(relay, i), 1))
            status = BH_ERR_NO_MEMORY;
    return status;
}

bh_status bh__runner_begin(bh__runner *self)
{
    bh__context *context = &self->engine.context;
    self->has_been_ready = self->has_given_up = 0;
    self->hopeless_count = 0;
    self->next_uri = 0;
    self->engine.stage = BH__WORKING;
    self->engine.wanted_count = 0;
    self->engine.probe = (bh__probe){.is_open = 0};
    context->left_count = context->guarded_count = 0;
    context->is_ready = context->is_declared = 0;
    context->consume.back_off = context->publish.back_off = context->setup = (bh__back_off){.failures = 0};
    bh_declaring_free(self->declaring);
    bh_status status = bh_declaring_new(&self->declaring, context->settings->topology, BH_DIALECT_C);
    if (status == BH_OK && context->settings->relay)
        status = begin_relay(self);
    return status == BH_OK ? bh__context_begin(context) : status;
}

static int is_stopping(const bh__runner *self)
{
    return atomic_load(&self->engine.context.mailbox->stop_ms) != BH__NEVER;
}

/* ----------------------------------------------------------------------------------------------------------- failures */

/* Whether a worker that was never ready has nothing to hope for: its last failures were all of that kind, over all URIs
 * and more than once. */
static int is_to_give_up(const bh__runner *self)
{
    const bh__settings *settings = self->engine.context.settings;
    return settings->fails_fast && !self->has_been_ready && self->hopeless_count >= FEWEST_HOPELESS &&
           self->hopeless_count >= settings->uri_count;
}

static void tell_failure(bh__runner *self, const bh__connection *connection, bh_status status, int64_t wait_ms)
{
    self->hopeless_count = bh__needs_a_person(status) ? self->hopeless_count + 1 : 0;
    if (!bh__engine_is_interrupted(&self->engine))
        bh__tell(&self->engine.context, (bh__news){.kind = BH_EVENT_UNAVAILABLE,
                                                   .status = status,
                                                   .text = bh__report_text(&self->problem),
                                                   .delay_ms = wait_ms,
                                                   .connection = connection});
}

/* -------------------------------------------------------------------------------------------------------- connections */

/* Why the publish connection ended, for the ledger. A copy in flight can be the reason where the broker complained or the
 * socket was cut; not where the broker was told to stop (320), or where it is we who give the connection up. */
static bh_ending ending_of(const bh__link *link)
{
    return link->is_cut && !link->close_code ? BH_ENDING_WORDLESS : bh_ending_of(link->close_code);
}

static int64_t end_what_it_carried(bh__runner *self, const bh__connection *connection)
{
    bh__context *context = &self->engine.context;
    if (connection == &context->publish) {
        bh__publisher_end(&self->engine.publisher, context, ending_of(&connection->link));
        return 0;
    }
    bh__getter_end(&self->engine.getter, context);
    bh__probe_end(&self->engine.probe);
    return bh__consumer_end(&self->engine.consumer, context);
}

/* Cleans up after a connection that was lost, and says so. A connection that did its work, or lasted, resets the back-off;
 * that it could be opened does not. */
static void bury_if_broken(bh__runner *self, bh__connection *connection)
{
    bh__context *context = &self->engine.context;
    bh__link *link = &connection->link;
    if (link->phase == BH__CLOSED || !bh__link_is_broken(link))
        return;
    bh__engine_advance(&self->engine); /* tells what was confirmed before it broke */
    int64_t count = end_what_it_carried(self, connection);
    context->is_ready = context->is_declared = 0;
    self->next_uri += connection == &context->consume; /* this one failed */
    if (connection->has_worked || bh__monotonic_ms() - connection->opened_ms >= BH__LASTED_MS)
        connection->back_off.failures = 0;
    bh__tell(context, (bh__news){.kind = BH_EVENT_DISCONNECTED,
                                 .status = link->problem.status,
                                 .text = bh__report_text(&link->problem),
                                 .delay_ms = bh__note_failure(context, &connection->back_off),
                                 .count = count,
                                 .connection = connection});
    bh__link_close(link);
}

static int is_due(const bh__connection *connection)
{
    return connection->link.phase == BH__CLOSED && bh__monotonic_ms() >= connection->back_off.due_ms;
}

static void connect_consumer_if_due(bh__runner *self)
{
    bh__connection *consume = &self->engine.context.consume;
    const bh__settings *settings = self->engine.context.settings;
    if (!is_due(consume))
        return;
    bh_status status = bh__connect(self, consume, &settings->uris[self->next_uri % settings->uri_count]);
    if (status == BH_OK)
        return;
    int is_round_over = ++self->next_uri % settings->uri_count == 0; /* within a round the next one is tried at once */
    tell_failure(self, consume, status,
                 is_round_over ? bh__note_failure(&self->engine.context, &consume->back_off) : 0);
}

/* Where the publish connection cannot be had beside the consume connection, again and again, both are made anew: by the
 * next URI, or to the broker that is there now. */
static void move_on_if_apart(bh__runner *self)
{
    bh__context *context = &self->engine.context;
    if (context->publish.back_off.failures % MOST_APART == 0)
        bh__link_fail(&context->consume.link, BH_ERR_CONNECTION, "the publish connection cannot be made beside it: %s",
                      bh__report_text(&self->problem).data);
}

/* The publish connection goes where the consume connection is: an original is acknowledged where its copy is. An attempt that
 * a stop, or the end of its limit, interrupts has not failed: the consume connection carries what is left of the drain. */
static void connect_publisher_if_due(bh__runner *self)
{
    bh__context *context = &self->engine.context;
    bh__connection *consume = &context->consume, *publish = &context->publish;
    if (!consume->link.is_open || !is_due(publish))
        return;
    bh_status status = bh__connect(self, publish, consume->uri);
    if (status == BH_OK || bh__engine_is_interrupted(&self->engine))
        return;
    tell_failure(self, publish, status, bh__note_failure(context, &publish->back_off));
    move_on_if_apart(self);
}

/* Both open, they may have come to different brokers: by different URIs, or behind one that spreads connections. The
 * publish connection is made again, by the URI of the other. */
static void follow_if_apart(bh__runner *self)
{
    bh__context *context = &self->engine.context;
    bh__connection *consume = &context->consume, *publish = &context->publish;
    if (!consume->link.is_open || !publish->link.is_open || bh__is_one_broker(self))
        return;
    int have_same_uri = consume->uri == publish->uri;
    bh__report_set(
        &self->problem, BH_ERR_BROKER,
        "the consume connection is to cluster \"%s\", vhost %s, and the publish connection to cluster \"%s\", "
        "vhost %s: an original would be acknowledged where its copy is not; give URIs of one cluster and vhost",
        consume->link.cluster, consume->uri->vhost, publish->link.cluster, publish->uri->vhost);
    bh__publisher_end(&self->engine.publisher, context, BH_ENDING_ORDERLY);
    bh__disconnect(self, publish);
    if (!have_same_uri)
        return;
    tell_failure(self, publish, BH_ERR_BROKER, bh__note_failure(context, &publish->back_off));
    move_on_if_apart(self);
}

static int are_open(const bh__runner *self)
{
    const bh__context *context = &self->engine.context;
    return context->consume.link.is_open && context->publish.link.is_open;
}

/* ------------------------------------------------------------------------------------------------------------- set-up */

/* What a cancel meant is asked of the consume connection alone. */
static int may_set_up(const bh__runner *self)
{
    const bh__context *context = &self->engine.context;
    return context->consume.link.is_open && (context->publish.link.is_open || self->engine.consumer.is_doubtful);
}

static bh_status declare_topology(bh__runner *self)
{
    bh_ledger_forget_rungs(self->engine.context.ledger);
    self->engine.wanted_count = 0;
    if (self->declared)
        bh_declared_forget(self->declared);
    bh_status status = bh__declare(self);
    if (status == BH_OK && self->declared) {
        bh__places_want_all(&self->engine.context.places, bh__monotonic_ms());
        status = bh__look_for_queues(self);
    }
    self->engine.context.is_declared = status == BH_OK;
    return status;
}

/* The next thing that is missing. */
static bh_status set_up(bh__runner *self)
{
    if (self->engine.consumer.is_doubtful)
        return bh__resolve_cancel(self);
    if (!bh__publisher_is_open(&self->engine.publisher))
        return bh__open_publisher(self);
    if (!self->engine.context.is_declared)
        return declare_topology(self);
    return bh__consume(self);
}

static int is_to_consume(const bh__runner *self)
{
    const bh__context *context = &self->engine.context;
    return self->engine.stage == BH__WORKING && context->settings->prefetch > 0 && !bh_ledger_is_full(context->ledger);
}

static int is_set_up(const bh__runner *self)
{
    const bh__consumer *consumer = &self->engine.consumer;
    return bh__publisher_is_open(&self->engine.publisher) && self->engine.context.is_declared &&
           !consumer->is_doubtful && (consumer->is_consuming || !is_to_consume(self));
}

static void tell_connected(bh__runner *self)
{
    bh__context *context = &self->engine.context;
    const bh__uri *uri = context->consume.uri;
    const bh__link *link = &context->consume.link;
    bh__report words = {.size = 0};
    bh__report_set(&words, BH_OK, "%s %s at %s:%d, vhost %s, as %s%s%s", link->product, link->version, uri->host,
                   uri->port, uri->vhost, uri->user, link->cluster[0] ? ", cluster " : "", link->cluster);
    context->is_ready = self->has_been_ready = 1;
    context->heard_ms = bh__monotonic_ms();
    bh__tell(context,
             (bh__news){.kind = BH_EVENT_CONNECTED, .text = bh__report_text(&words), .connection = &context->consume});
    bh__report_free(&words);
}

static void set_up_if_due(bh__runner *self)
{
    bh__context *context = &self->engine.context;
    while (may_set_up(self) && !is_set_up(self) && bh__monotonic_ms() >= context->setup.due_ms &&
           !bh__engine_is_interrupted(&self->engine)) {
        bh_status status = set_up(self);
        if (status == BH_OK ||
            (status == BH_ERR_CONNECTION && !may_set_up(self))) /* a lost connection is told as such */
            continue;
        tell_failure(self, &context->consume, status, bh__note_failure(context, &context->setup));
    }
    if (are_open(self) && is_set_up(self) && !context->is_ready && self->engine.stage == BH__WORKING)
        tell_connected(self);
}

/* Makes the rungs that copies need; these wait for them in the ledger, and others do not. */
static void declare_wanted_rungs(bh__runner *self)
{
    bh__engine *engine = &self->engine;
    while (engine->wanted_count && are_open(self) && engine->context.is_declared) {
        int64_t rung_ms = engine->wanted_rungs[--engine->wanted_count];
        bh_status status = bh__declare_rung(self, rung_ms);
        if (status != BH_OK)
            bh__report_set(&engine->publisher.words, status, "%s", bh__report_text(&self->problem).data);
        bh_ledger_rung(engine->context.ledger, rung_ms, status, bh__monotonic_ms());
    }
}

/* Of a relay. A failure here is a lost connection, which is told as such, or no memory, and then it is tried again. */
static void look_for_wanted_queues(bh__runner *self)
{
    bh__context *context = &self->engine.context;
    if (!self->declared || !context->is_ready || self->engine.stage != BH__WORKING)
        return;
    if (bh__monotonic_ms() >= context->places.again_ms)
        bh__places_want_all(&context->places, bh__monotonic_ms());
    if (context->places.wanted_count)
        bh__look_for_queues(self);
}

static void replay_if_asked(bh__runner *self)
{
    if (!self->engine.context.is_ready)
        return;
    int64_t most = bh__mailbox_begin_replay(self->engine.context.mailbox);
    if (most >= 0)
        bh__replay(self, most);
}

/* --------------------------------------------------------------------------------------------------------------- rounds */

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t next_due_ms(const bh__runner *self)
{
    const bh__context *context = &self->engine.context;
    const bh__link *consume = &context->consume.link, *publish = &context->publish.link;
    int64_t due_ms = INT64_MAX;
    if (bh__link_is_broken(consume) || bh__link_is_broken(publish))
        return 0; /* to be buried */
    if (consume->phase == BH__CLOSED && self->engine.stage == BH__WORKING)
        due_ms = context->consume.back_off.due_ms;
    if (publish->phase == BH__CLOSED && consume->is_open)
        due_ms = earlier(due_ms, context->publish.back_off.due_ms);
    if (may_set_up(self) && !is_set_up(self))
        due_ms = earlier(due_ms, context->setup.due_ms);
    if (self->declared && context->is_ready && self->engine.stage == BH__WORKING)
        due_ms = earlier(due_ms, context->places.again_ms);
    return due_ms;
}

static void look_after(bh__runner *self)
{
    bury_if_broken(self, &self->engine.context.consume);
    bury_if_broken(self, &self->engine.context.publish);
    connect_publisher_if_due(self);
    follow_if_apart(self);
    set_up_if_due(self);
    declare_wanted_rungs(self);
    look_for_wanted_queues(self);
}

/* Pumps, and waits until then at most; not at all where there is news since `before`: what was done since then pumps too, so that
 * what its caller waits for, or what is to be looked after next, can have happened there. */
static void pump(bh__runner *self, unsigned before, int64_t until_ms)
{
    int has_news = bh__engine_news(&self->engine) != before;
    bh__engine_pump(&self->engine, has_news ? bh__monotonic_ms() : earlier(next_due_ms(self), until_ms));
}

void bh__runner_keep_going(bh__runner *self, int64_t until_ms)
{
    unsigned before = bh__engine_news(&self->engine);
    look_after(self);
    pump(self, before, until_ms);
}

static void work(bh__runner *self)
{
    while (!is_stopping(self) && !is_to_give_up(self)) {
        unsigned before = bh__engine_news(&self->engine);
        connect_consumer_if_due(self);
        look_after(self);
        replay_if_asked(self);
        pump(self, before, INT64_MAX);
    }
}

/* ------------------------------------------------------------------------------------------------------------- the end */

/* Messages that callers still have, or whose copies are on their way: it can still count. */
static int64_t count_unsettled(const bh__runner *self)
{
    const bh__engine *engine = &self->engine;
    return engine->context.consume.link.is_open && engine->consumer.is_open
               ? bh_ledger_unsettled(engine->context.ledger)
               : 0;
}

/* Copies that are on their way now; those that wait for a back-off are not. */
static int64_t count_under_way(const bh__runner *self)
{
    const bh_ledger *ledger = self->engine.context.ledger;
    return count_unsettled(self) ? bh_ledger_count(ledger, BH_STATE_DUE) + bh_ledger_count(ledger, BH_STATE_SENT) : 0;
}

/* Nothing more is taken; what was taken is settled until the limit. */
static void drain(bh__runner *self)
{
    bh__engine *engine = &self->engine;
    engine->stage = BH__LEAVING; /* whatever the limit: what comes unseen would count as a failure */
    bh__mailbox_withdraw(engine->context.mailbox,
                         &engine->consumer.arrived); /* and given back after the cancel: else it comes again */
    if (engine->context.consume.link.is_open)
        bh__cancel(self);
    engine->stage = BH__DRAINING;
    bh__consumer_give_back_ready(&engine->consumer, &engine->context);
    bh__engine_settle(engine);
    while (count_unsettled(self) && !bh__engine_is_interrupted(engine)) {
        bh__consumer_give_back_ready(&engine->consumer, &engine->context); /* a delivery that was under way */
        bh__runner_keep_going(self, INT64_MAX);
    }
}

/* Settles what callers have handed over until now, and takes no more: who settles from here on is told so. */
static void settle_last(bh__runner *self)
{
    bh__queue settled = {.first = NULL};
    bh__mailbox_close(self->engine.context.mailbox, &settled);
    for (bh_message *message; (message = bh__queue_pop(&settled)); bh_message_free(message))
        bh__settle(&self->engine.context, message);
}

/* What was settled takes effect: its copies have a little time to be confirmed, whatever the limit of the stop. A
 * connection that is lost by now is not made again. */
static void finish_copies(bh__runner *self)
{
    int64_t deadline_ms = bh__monotonic_ms() + BH__GOODBYE_MS;
    self->engine.stage = BH__LEAVING;
    bh__engine_advance(&self->engine);
    while (are_open(self) && count_under_way(self) && bh__monotonic_ms() < deadline_ms) {
        declare_wanted_rungs(self);
        bh__engine_pump(&self->engine, deadline_ms);
    }
    bh_ledger_flush(self->engine.context.ledger);
    bh__engine_advance(&self->engine);
}

/* Lets the broker carry out the last acknowledgements before their channel ends. */
static void linger(bh__runner *self)
{
    int64_t deadline_ms = bh__monotonic_ms() + BH__LINGER_MS;
    while (self->engine.consumer.is_open && are_open(self) && bh__monotonic_ms() < deadline_ms)
        bh__engine_pump(&self->engine, deadline_ms);
}

/* Gives back the rest, and closes the connections. Confirms that come during the goodbye are told to nobody: their
 * originals are the broker's again. How many messages were given back. */
static int64_t leave(bh__runner *self)
{
    bh__engine *engine = &self->engine;
    bh__context *context = &engine->context;
    int64_t count = count_unsettled(self);
    bh__consumer_give_back_all(&engine->consumer, context);
    bh__consumer_end(&engine->consumer, context);
    bh__getter_end(&engine->getter, context);
    bh__publisher_end(&engine->publisher, context, BH_ENDING_ORDERLY);
    bh__disconnect(self, &context->consume);
    bh__disconnect(self, &context->publish);
    if (bh__mailbox_begin_replay(context->mailbox) >= 0) {
        bh__mailbox_end_replay(context->mailbox);
        bh__tell(context, (bh__news){.kind = BH_EVENT_REPLAYED,
                                     .status = BH_ERR_STATE,
                                     .text = bh_str("the worker stopped before the replay began")});
    }
    return count;
}

static void tell_drained(bh__runner *self, int64_t count)
{
    bh__news news = {.kind = BH_EVENT_DRAINED, .count = count};
    if (self->has_given_up) {
        news.status = self->problem.status;
        news.text = bh__report_text(&self->problem);
    } else if (count) {
        news.status = BH_ERR_TIMEOUT; /* which says it all */
    } else {
        news.text = bh_str("what was taken is settled, or the broker has it again");
    }
    bh__tell_last(&self->engine.context, news);
}

void *bh__runner_thread(void *runner)
{
    bh__runner *self = runner;
    work(self);
    self->has_given_up = !is_stopping(self);
    if (!self->has_given_up)
        drain(self);
    settle_last(self);
    finish_copies(self);
    linger(self);
    tell_drained(self, leave(self));
    return NULL;
}
