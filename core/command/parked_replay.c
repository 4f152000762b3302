/*
 * backhop parked replay: sends parked messages back.
 *
 * The pure core plans each copy (bh_plan_replay) and keeps the books (bh_ledger): no message is acknowledged before its copy was
 * confirmed. It goes in rounds: a snapshot of the queue, of which as many copies as fit the memory are kept; they are sent; all others were
 * held meanwhile, and are given back in one go, so that their order stays.
 */
#include "command.h"
#include "parked.h"

#include "memory.h"
#include "wire/content.h"

#include <backhop/ledger.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

enum {
    MOST_SENT = 512,            /* copies that are not confirmed: so many come twice where the command is killed */
    MOST_KEPT_BYTES = 67108864, /* of copies that wait to be sent */
    MOST_UNSENT_BYTES = 1048576,
    LOOK_MS = 200, /* how often to look for messages that are parked again */
    PROGRESS_MS = 250,
    PUMP_MS = 50,
    SAMPLES = 5,
    MOST_RAMP = 16
};

typedef struct replay_options {
    parked_options parked;
    const char *to;
    const char *ramp;
    int64_t ramp_ms; /* how long each rate of the ramp holds */
    int64_t limit;   /* 0: none */
    double rate;     /* a second; 0: as fast as it goes */
    int64_t stop_after;
    int64_t max_replays; /* -1: any */
    int64_t hold_ms;
    int dry_run;
    int yes;
} replay_options;

/* A copy on its way. */
typedef struct pending {
    int64_t entry;
    bh_message *message;
    bh_bytes exchange, routing_key, properties, id; /* in `data` */
    int mandatory;
    uint64_t mark;
    char *data;
} pending;

typedef struct replay {
    parked on;
    const replay_options *options;
    bh_policy *to_policy;
    bh_topology *to; /* where copies go: the work queue's topology, or one of --to's */
    bh_plan *plan;
    bh_ledger *ledger;
    snapshot shot;
    int64_t channel, publisher;
    pending *copies; /* in the order in which they go; message NULL: done */
    size_t count;
    size_t capacity;
    size_t kept_bytes;
    size_t left;   /* copies that are not done */
    size_t oldest; /* copies before this are done */
    int skipped;   /* some are left for another round */
    bh__assembler returned;
    char return_text[300];
    bh__buffer scratch;
    int64_t wanted;       /* messages to replay */
    int64_t at_first;     /* messages in the queue when it began */
    int64_t done;         /* replayed */
    int64_t taken;        /* selected so far */
    int64_t refused;      /* that cannot go, as counted before */
    int64_t spared;       /* replayed too often already */
    uint64_t *sent;       /* marks of what was replayed, a table with open addressing: 0 is free */
    size_t sent_room;     /* a power of two */
    int64_t again;        /* replayed, and parked again, as seen by a look */
    int64_t others;       /* parked meanwhile by others, as seen by a look */
    int64_t unseen;       /* parked since that look */
    int64_t look_cost_ms; /* what it took */
    int64_t begun_ms;     /* monotonic, as all times here */
    int64_t paid_ms;      /* up to when the rate is used up */
    int64_t looked_ms;
    int64_t told_ms;
    int64_t round_ms;
    double rates[MOST_RAMP];
    size_t rate_count;
    int is_late;     /* the round has to end */
    const char *end; /* why it stops before its end; NULL: it does not */
    int code;
} replay;

static void stop(replay *self, int code, const char *why)
{
    if (self->end)
        return;
    self->end = why;
    self->code = code;
}

/* ------------------------------------------------------------------------------------------------------------- rates */

static void read_ramp(replay *self, const char *text)
{
    char *end;
    for (const char *at = text; *at; at = end + (*end == ',')) {
        double rate = strtod(at, &end);
        if (end == at || !(rate > 0) || (*end && *end != ',') || self->rate_count == MOST_RAMP)
            options_refuse("--ramp: '%s' is no list of rates, as 1,2,5,20", text);
        self->rates[self->rate_count++] = rate;
    }
}

/* Messages a second now; 0: no limit. */
static double rate_now(const replay *self, int64_t now_ms)
{
    if (self->rate_count == 0)
        return self->options->rate;
    size_t step = (size_t)((now_ms - self->begun_ms) / self->options->ramp_ms);
    if (step < self->rate_count)
        return self->rates[step];
    return self->options->rate > 0 ? self->options->rate : self->rates[self->rate_count - 1];
}

/* Whether the rate lets a copy go now; when the next one may, where it does not. */
static int may_go(const replay *self, int64_t now_ms)
{
    return rate_now(self, now_ms) <= 0 || now_ms >= self->paid_ms;
}

static void pay(replay *self, int64_t now_ms)
{
    double rate = rate_now(self, now_ms);
    if (rate <= 0)
        return;
    int64_t from_ms = self->paid_ms > now_ms - 1000 ? self->paid_ms : now_ms;
    static double rest; /* parts of a ms */
    double cost = 1000 / rate + rest;
    self->paid_ms = from_ms + (int64_t)cost;
    rest = cost - (double)(int64_t)cost;
}

/* ----------------------------------------------------------------------------------------------------------- the way */

/* Makes sure that the return exchange leads to the work queue: binding again changes nothing where it does. */
static bh_status bind_home(replay *self)
{
    const bh_topology *topology = self->on.topology;
    connection *broker = self->on.broker;
    bh_status status = connection_open_channel(broker, CHANNEL_CALL);
    for (size_t i = 0; status == BH_OK && i < bh_topology_count(topology); i++) {
        if (bh_topology_declaration(topology, i) != BH_DECLARE_BINDING ||
            !bh__same(bh_topology_name(topology, i), bh_topology_queue(topology)) ||
            !bh__same(bh_topology_type(topology, i), bh_str("queue")))
            continue;
        amqp_queue_bind_t bind = {.queue = bh__to_amqp(bh_topology_name(topology, i)),
                                  .exchange = bh__to_amqp(bh_topology_source(topology, i)),
                                  .routing_key = bh__to_amqp(bh_topology_routing_key(topology, i))};
        status = connection_call(broker, CHANNEL_CALL, AMQP_QUEUE_BIND_METHOD, &bind, AMQP_QUEUE_BIND_OK_METHOD, 0,
                                 "binding the work queue to its return exchange");
    }
    return status == BH_OK ? connection_close_channel(broker, CHANNEL_CALL) : status;
}

/* Sees that there is a queue that copies can go to. */
static int find_way(replay *self)
{
    int64_t ready;
    const char *queue = bh_topology_queue(self->to).data;
    bh_status status = connection_look(self->on.broker, queue, &ready, NULL);
    if (status == BH_ERR_MISSING) {
        complain("there is no queue \"%s\" to replay to; declare it, or name another by --to", queue);
        return EX_UNAVAILABLE;
    }
    if (status == BH_OK && self->to == self->on.topology)
        status = bind_home(self);
    if (status == BH_ERR_MISSING) {
        complain("the exchange that leads messages home is missing (%s); 'backhop topology declare %s' makes it, or "
                 "--to %s goes "
                 "without",
                 self->on.broker->text, queue, queue);
        return EX_UNAVAILABLE;
    }
    return status == BH_OK || status == BH_ERR_ACCESS ? EX_OK : connection_complain(self->on.broker);
}

/* By the default exchange, as strategy native has it: to this queue, which becomes the message's own. */
static void aim(replay *self)
{
    static const topology_options straight = {.strategy = "native"};
    static const policy_options fixed = {.kind = "fixed", .jitter = "none"};
    self->to = self->on.topology;
    if (!self->options->to)
        return;
    self->to_policy = setup_policy(&fixed);
    self->to = setup_topology(&straight, self->options->to, self->to_policy);
}

/* --------------------------------------------------------------------------------------------------- what comes back */

/* What tells a message that was replayed: its id, and how often. Never 0. */
static uint64_t mark(bh_bytes id, int64_t replays)
{
    uint64_t hash = UINT64_C(14695981039346656037) ^ (uint64_t)replays; /* FNV-1a */
    for (size_t i = 0; i < id.size; i++)
        hash = (hash ^ (unsigned char)id.data[i]) * UINT64_C(1099511628211);
    hash ^= hash >> 32;
    return hash ? hash : 1;
}

static uint64_t *find_mark(const replay *self, uint64_t wanted)
{
    size_t i = (size_t)wanted & (self->sent_room - 1);
    while (self->sent[i] && self->sent[i] != wanted)
        i = (i + 1) & (self->sent_room - 1);
    return &self->sent[i];
}

static void make_marks(replay *self)
{
    self->sent_room = 1024;
    while ((int64_t)self->sent_room < 2 * self->wanted)
        self->sent_room *= 2;
    self->sent = must(calloc(self->sent_room, sizeof *self->sent));
}

/* Whether the message that was read last was replayed by this run, and so is parked again. */
static int is_again(const replay *self)
{
    int64_t replays = bh_history_replays(self->on.history);
    return replays > 0 && *find_mark(self, mark(bh_history_id(self->on.history), replays)) != 0;
}

/* ------------------------------------------------------------------------------------------------------------ copies */

/* Plans the copy of the message that was read last: BH_OK, or why it cannot go. */
static bh_status plan_copy(replay *self, const bh_message *message)
{
    char random[BH_PLAN_RANDOM_BYTES];
    if (!bh__random(random, sizeof random))
        return BH_ERR_STATE;
    bh_status status = bh_plan_set_frame_max(self->plan, (int64_t)self->on.broker->link.frame_max);
    if (status == BH_OK)
        status = bh_plan_replay(self->plan, self->on.delivery, self->on.history, self->to,
                                (bh_bytes){random, sizeof random});
    bh__buffer_clear(&self->scratch);
    if (status == BH_OK)
        status = bh__content_copy(&self->scratch, self->plan, message->properties);
    if (status == BH_OK && bh__buffer_size(&self->scratch) > bh__link_header_room(&self->on.broker->link))
        status = BH_ERR_FRAME;
    if (status == BH_ERR_NO_MEMORY)
        must(NULL);
    return status;
}

static void keep_copy(replay *self, bh_message *message)
{
    bh_bytes properties = {self->scratch.data, bh__buffer_size(&self->scratch)};
    bh_bytes exchange = bh_plan_exchange(self->plan), key = bh_plan_routing_key(self->plan);
    bh_bytes id = bh__content_string(properties, "backhop-id");
    size_t size = properties.size + exchange.size + key.size + id.size + 4;
    char *at = must(malloc(size));
    void *copies = self->copies;
    if (!bh__reserve(&copies, &self->capacity, sizeof *self->copies, self->count + 1))
        must(NULL);
    self->copies = copies;
    pending *copy = &self->copies[self->count++];
    *copy = (pending){.message = message, .mandatory = bh_plan_mandatory(self->plan), .data = at};
    copy->mark = mark(id, bh_history_replays(self->on.history) + 1);
    copy->properties = bh__keep(&at, properties);
    copy->exchange = bh__keep(&at, exchange);
    copy->routing_key = bh__keep(&at, key);
    copy->id = bh__keep(&at, id);
    self->kept_bytes += sizeof *copy + sizeof *message + size + message->properties.size + message->body.size;
    self->left++;
    if (bh_ledger_arrive(self->ledger, self->channel, (int64_t)message->delivery_tag, &copy->entry) != BH_OK ||
        bh_ledger_settle(self->ledger, copy->entry, BH_ACTION_REPLAY, 0, copy->id, copy->exchange, copy->routing_key) !=
            BH_OK)
        must(NULL);
}

/* The copy of an entry; not far behind the oldest one that is not done, as they go in order. */
static pending *find_copy(replay *self, int64_t entry)
{
    for (size_t i = self->oldest; i < self->count; i++)
        if (self->copies[i].entry == entry && self->copies[i].message)
            return &self->copies[i];
    return NULL;
}

static void forget_copy(replay *self, pending *copy)
{
    bh_message_free(copy->message);
    free(copy->data);
    *copy = (pending){.message = NULL};
    self->left--;
    while (self->oldest < self->count && !self->copies[self->oldest].message)
        self->oldest++;
}

static void forget_all(replay *self)
{
    for (size_t i = self->oldest; i < self->count; i++)
        if (self->copies[i].message)
            forget_copy(self, &self->copies[i]);
    self->count = self->oldest = self->kept_bytes = 0;
}

/* Takes a message of the snapshot: keeps its copy, or only holds it. */
static void take(replay *self, bh_message *message)
{
    int is_wanted = self->taken < self->wanted,
        is_read = (is_wanted || self->done > 0) && parked_read(&self->on, message) == BH_OK;
    if (is_read && is_again(self)) {
        self->again++;
        bh_message_free(message);
        return;
    }
    int is_meant = is_read && is_wanted && parked_fits(&self->on);
    int is_spared = is_meant && self->options->max_replays >= 0 &&
                    bh_history_replays(self->on.history) >= self->options->max_replays;
    int is_kept = is_meant && !is_spared && self->kept_bytes < MOST_KEPT_BYTES;
    self->skipped |= is_meant && !is_spared && !is_kept;
    if (is_kept && plan_copy(self, message) == BH_OK) {
        self->taken++;
        keep_copy(self, message);
    } else {
        bh_message_free(message);
    }
}

/* ------------------------------------------------------------------------------------------------------------- books */

static void on_told(replay *self)
{
    int64_t entry = bh_ledger_step_entry(self->ledger);
    pending *copy = find_copy(self, entry);
    bh_event_kind event = bh_ledger_step_event(self->ledger);
    if (event == BH_EVENT_REPLAYED) {
        self->done++;
        if (copy) {
            *find_mark(self, copy->mark) = copy->mark;
            forget_copy(self, copy);
        }
        return;
    }
    bh_bytes none = bh_str(""),
             words = bh_ledger_words(self->ledger, copy ? copy->exchange : none, copy ? copy->routing_key : none,
                                     bh_str(self->return_text), none);
    complain("%s", words.data);
    stop(self, EX_UNAVAILABLE,
         event == BH_EVENT_NACKED ? "the queue takes no more" : "a message was not taken; it stays parked");
}

static void publish(replay *self, int64_t now_ms)
{
    const pending *copy = find_copy(self, bh_ledger_step_entry(self->ledger));
    if (!copy)
        return;
    amqp_basic_publish_t method = {.exchange = bh__to_amqp(copy->exchange),
                                   .routing_key = bh__to_amqp(copy->routing_key),
                                   .mandatory = copy->mandatory};
    bh__link_publish(&self->on.broker->link, CHANNEL_PUBLISH, &method, copy->properties, copy->message->body);
    pay(self, now_ms);
}

/* Does what the ledger says. */
static void advance(replay *self)
{
    for (;;) {
        int64_t now_ms = bh__monotonic_ms();
        const bh__link *link = &self->on.broker->link;
        int may_publish = !self->end && !self->is_late && !is_interrupted() && may_go(self, now_ms) &&
                          !link->is_blocked && bh__buffer_size(&link->out) < MOST_UNSENT_BYTES;
        switch (bh_ledger_next(self->ledger, now_ms, may_publish)) {
        case BH_STEP_REST:
            return;
        case BH_STEP_PUBLISH:
            publish(self, now_ms);
            break;
        case BH_STEP_ACK:
            snapshot_ack(&self->shot, (uint64_t)bh_ledger_step_tag(self->ledger));
            break;
        case BH_STEP_TELL:
            on_told(self);
            break;
        default:
            break; /* nothing else is asked for: what is held is given back with the channel */
        }
    }
}

static void on_publisher_method(replay *self, const amqp_method_t *method)
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
        bh__link_answer_channel_close(&self->on.broker->link, CHANNEL_PUBLISH, method->decoded, "replaying",
                                      &self->on.broker->problem);
        complain("%s", bh__report_text(&self->on.broker->problem).data);
        stop(self, EX_UNAVAILABLE, "the broker took a message amiss; it stays parked");
        break;
    default:
        break;
    }
}

static void on_frame(void *data, const bh__frame *frame, const amqp_method_t *method)
{
    replay *self = data;
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

/* -------------------------------------------------------------------------------------------------- while it goes on */

/* Messages that were parked since the look are those that are there beyond what it did not take. Whether they are some that were replayed, only
 * another look tells: where they could be enough to stop, the round ends. Looks take half of the time at most. */
static void look_for_parked_again(replay *self, int64_t now_ms)
{
    int64_t ready;
    if (now_ms - self->looked_ms < LOOK_MS || self->end || self->is_late)
        return;
    self->looked_ms = now_ms;
    if (connection_look(self->on.broker, self->on.queue, &ready, NULL) != BH_OK)
        return;
    int64_t more = ready - (self->shot.ready - self->shot.taken);
    self->unseen = more > 0 ? more : 0;
    self->is_late = self->options->stop_after > 0 && self->unseen > 0 &&
                    self->again + self->unseen >= self->options->stop_after &&
                    now_ms - self->round_ms >= self->look_cost_ms;
}

/* After a look at all: counts who is there besides those that are left. */
static void count_parked_again(replay *self)
{
    int64_t others = self->shot.total - self->again - (self->at_first - self->done);
    self->others = others > 0 ? others : 0;
    self->unseen = 0;
    if (self->options->stop_after > 0 && self->again >= self->options->stop_after && self->done < self->wanted)
        stop(self, EX_TEMPFAIL, "replayed messages are parked again");
}

static void show_progress(replay *self, int64_t now_ms, int is_last)
{
    char left[TIME_TEXT] = "";
    if (!isatty(STDERR_FILENO) || (!is_last && now_ms - self->told_ms < PROGRESS_MS))
        return;
    self->told_ms = now_ms;
    int64_t span_ms = now_ms - self->begun_ms > 0 ? now_ms - self->begun_ms : 1;
    double rate = (double)self->done * 1000 / (double)span_ms;
    if (rate > 0 && !is_last)
        show_duration(left, (int64_t)((double)(self->wanted - self->done) / rate) * 1000);
    fprintf(stderr, "\r\033[K%lld of %lld replayed, %.0f a second%s%s%s, %lld parked again%s", (long long)self->done,
            (long long)self->wanted, rate, *left ? ", " : "", left, *left ? " left" : "", (long long)self->again,
            is_last ? "\n" : "");
    fflush(stderr);
}

static bh_status pump(replay *self, int64_t now_ms)
{
    int64_t due_ms = bh_ledger_due_ms(self->ledger), until_ms = now_ms + PUMP_MS;
    if (due_ms != BH_LEDGER_NEVER && due_ms < until_ms)
        until_ms = due_ms;
    if (self->paid_ms > now_ms && self->paid_ms < until_ms)
        until_ms = self->paid_ms;
    return connection_pump(self->on.broker, until_ms);
}

/* Sends what was kept, until all is confirmed, or it has to end, or what is held has to be given back for a moment. */
static bh_status send_kept(replay *self)
{
    bh_status status = BH_OK;
    while (status == BH_OK && self->left > 0) {
        int64_t now_ms = bh__monotonic_ms();
        self->is_late |= now_ms - self->round_ms >= self->options->hold_ms;
        advance(self);
        if ((self->end || self->is_late || is_interrupted()) && bh_ledger_count(self->ledger, BH_STATE_SENT) == 0)
            break; /* what is not on its way stays parked */
        if (self->left > 0)
            status = pump(self, now_ms);
        advance(self);
        look_for_parked_again(self, bh__monotonic_ms());
        show_progress(self, bh__monotonic_ms(), 0);
    }
    advance(self);
    return status;
}

/* One snapshot. EX_OK, or complains and returns the exit code. */
static int play_round(replay *self)
{
    int64_t begun_ms = bh__monotonic_ms();
    self->taken = self->done;
    self->again = 0;
    self->skipped = self->is_late = 0;
    int code = snapshot_begin(&self->shot, self->on.broker, self->on.queue);
    if (code != EX_OK)
        return code;
    self->on.broker->on_frame = on_frame;
    self->on.broker->data = self;
    self->round_ms = bh__monotonic_ms();
    if (bh_ledger_open_channel(self->ledger, &self->channel) != BH_OK)
        must(NULL);
    for (bh_message *message; (message = snapshot_next(&self->shot)) != NULL;)
        take(self, message);
    self->look_cost_ms = bh__monotonic_ms() - begun_ms;
    if (self->shot.status == BH_OK && !is_interrupted())
        count_parked_again(self);
    if (self->shot.status == BH_OK && !is_interrupted())
        self->shot.status = snapshot_close(&self->shot);
    if (self->shot.status == BH_OK && !is_interrupted())
        self->shot.status = send_kept(self);
    bh_ledger_close_channel(self->ledger, self->channel);
    forget_all(self);
    return snapshot_end(&self->shot);
}

static int open_publisher(replay *self)
{
    connection *broker = self->on.broker;
    amqp_confirm_select_t select = {.nowait = 0};
    bh_policy *back_off = setup_policy(&(policy_options){.initial = "100ms", .max = "10s", .jitter = "none"});
    char random[BH_LEDGER_RANDOM_BYTES] = {0};
    bh_status status = bh_ledger_new(&self->ledger, back_off, (bh_bytes){random, sizeof random});
    bh_policy_free(back_off);
    if (status == BH_OK)
        status = bh_ledger_open_publisher(self->ledger, &self->publisher);
    if (status != BH_OK)
        must(NULL);
    bh_ledger_set_most_sent(self->ledger, MOST_SENT);
    status = connection_open_channel(broker, CHANNEL_PUBLISH);
    if (status == BH_OK)
        status = connection_call(broker, CHANNEL_PUBLISH, AMQP_CONFIRM_SELECT_METHOD, &select,
                                 AMQP_CONFIRM_SELECT_OK_METHOD, 0, "asking for confirms");
    return status == BH_OK ? EX_OK : connection_complain(broker);
}

static int play(replay *self)
{
    int code = open_publisher(self);
    self->begun_ms = self->paid_ms = bh__monotonic_ms();
    make_marks(self);
    do
        code = code == EX_OK ? play_round(self) : code;
    while (code == EX_OK && !self->end && self->done < self->wanted && (self->skipped || self->is_late));
    if (code == EX_OK && self->unseen > 0)
        code = play_round(self); /* only looks */
    show_progress(self, bh__monotonic_ms(), 1);
    return code;
}

/* ----------------------------------------------------------------------------------------------------------- dry run */

static void print_sample(const replay *self, int64_t position)
{
    char id[256];
    char *error = shown(bh_history_last_error(self->on.history), 100),
         *safe = shown(bh_str(parked_id(&self->on, id)), 64);
    printf("  @%lld  %s  %s\n", (long long)position, *safe ? safe : "(no id)", error);
    free(error);
    free(safe);
}

/* Counts what would go, by looking at all. */
static int count_all(replay *self)
{
    int64_t fits = 0;
    int shows = !self->options->parked.json && (self->options->dry_run || !self->options->yes);
    int code = snapshot_begin(&self->shot, self->on.broker, self->on.queue);
    if (code != EX_OK)
        return code;
    self->at_first = self->shot.total;
    for (bh_message *message; (message = snapshot_next(&self->shot)) != NULL; bh_message_free(message)) {
        if (!parked_reads(&self->on, message))
            continue;
        if (self->options->max_replays >= 0 && bh_history_replays(self->on.history) >= self->options->max_replays) {
            self->spared++;
        } else if (plan_copy(self, message) != BH_OK) {
            self->refused++;
        } else if (fits++ < SAMPLES && shows) {
            print_sample(self, self->shot.given);
        }
    }
    self->wanted = self->options->limit > 0 && self->options->limit < fits ? self->options->limit : fits;
    if (fits > SAMPLES && shows)
        printf("  ...\n");
    return snapshot_end(&self->shot);
}

static void print_prospect(const replay *self)
{
    char text[64];
    if (self->options->parked.json) {
        print_json(
            must(json_pack("{s:b, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "dry_run", 1, "from", self->on.queue, "to",
                           bh_topology_queue(self->to).data, "parked", (json_int_t)self->at_first, "to_replay",
                           (json_int_t)self->wanted, "cannot_go", (json_int_t)self->refused, "replayed_too_often",
                           (json_int_t)self->spared, "malformed", (json_int_t)self->on.malformed)));
        return;
    }
    printf("%s of %lld in \"%s\" would go to \"%s\"\n", count_messages(text, self->wanted), (long long)self->at_first,
           self->on.queue, bh_topology_queue(self->to).data);
    if (self->refused)
        printf("%s cannot go: headers that fit no frame\n", count_messages(text, self->refused));
    if (self->spared)
        printf("%s stay: replayed %lld times or more\n", count_messages(text, self->spared),
               (long long)self->options->max_replays);
    if (self->on.malformed)
        printf("%s cannot go: malformed properties\n", count_messages(text, self->on.malformed));
}

static void print_summary(const replay *self)
{
    int64_t meanwhile = self->others + self->unseen;
    if (self->options->parked.json) {
        print_json(must(json_pack("{s:b, s:s, s:s, s:I, s:I, s:I, s:I, s:s}", "dry_run", 0, "from", self->on.queue,
                                  "to", bh_topology_queue(self->to).data, "replayed", (json_int_t)self->done,
                                  "to_replay", (json_int_t)self->wanted, "parked_again", (json_int_t)self->again,
                                  "parked_by_others", (json_int_t)meanwhile, "stopped",
                                  is_interrupted() ? "interrupted"
                                  : self->end      ? self->end
                                                   : "")));
        return;
    }
    printf("%lld of %lld replayed to \"%s\"; %lld of them parked again", (long long)self->done, (long long)self->wanted,
           bh_topology_queue(self->to).data, (long long)self->again);
    if (meanwhile > 0)
        printf(", %lld others meanwhile", (long long)meanwhile);
    puts(".");
    if (is_interrupted())
        complain("interrupted: the rest is parked as before; the same command goes on");
    else if (self->end)
        complain("stopped: %s; the rest is parked as before", self->end);
}

/* -------------------------------------------------------------------------------------------------------------- main */

static int run(replay *self, const char *queue)
{
    char what[400];
    int code = parked_go_to(&self->on, queue);
    if (code != EX_OK)
        return code;
    aim(self);
    code = find_way(self);
    if (code == EX_OK)
        code = count_all(self);
    if (code != EX_OK)
        return code;
    if (self->options->dry_run || !self->options->yes)
        print_prospect(self);
    if (self->options->dry_run || self->wanted == 0) {
        if (!self->options->dry_run && self->options->yes)
            print_summary(self);
        return EX_OK;
    }
    snprintf(what, sizeof what, "replay them to \"%s\"", bh_topology_queue(self->to).data);
    code = self->options->yes ? EX_OK : parked_ask(self->wanted, what);
    if (code != EX_OK)
        return code;
    code = play(self);
    print_summary(self);
    return code == EX_OK ? self->code : code;
}

static void destroy(replay *self)
{
    if (self->to != self->on.topology)
        bh_topology_free(self->to);
    bh_policy_free(self->to_policy);
    bh_plan_free(self->plan);
    bh_ledger_free(self->ledger);
    bh__buffer_free(&self->scratch);
    free(self->copies);
    free(self->sent);
    bh__assembler_clear(&self->returned);
    parked_close(&self->on);
    free(self);
}

int parked_replay(int count, char **arguments)
{
    replay_options o = {.stop_after = 3, .ramp_ms = 10000, .hold_ms = 600000, .max_replays = INT64_MAX};
    const option_rule rules[] = {
        WHERE_OPTION(&o.parked),
        {"limit", 'l', OPTION_NUMBER, "COUNT", "at most so many, the oldest first", &o.limit},
        {"rate", 'r', OPTION_REAL, "NUMBER", "so many a second", &o.rate},
        {"ramp", 0, OPTION_TEXT, "RATES", "rates one after the other, as 1,2,5,20; then --rate", &o.ramp},
        {"ramp-step", 0, OPTION_DURATION, "TIME", "how long each of these holds [10s]", &o.ramp_ms},
        {"stop-after", 0, OPTION_NUMBER, "COUNT", "stop when so many are parked again; 0: never [3]", &o.stop_after},
        {"max-replays", 0, OPTION_NUMBER, "COUNT", "leave what was replayed so often already", &o.max_replays},
        {"to", 't', OPTION_TEXT, "QUEUE", "to this queue instead of the work queue", &o.to},
        {"dry-run", 'n', OPTION_FLAG, NULL, "say what would go, and do nothing", &o.dry_run},
        {"yes", 'y', OPTION_FLAG, NULL, "do not ask", &o.yes},
        {"hold", 0, OPTION_DURATION, "TIME", "give the rest back for a moment so often [10m]", &o.hold_ms},
        PARKED_OPTIONS(&o.parked),
    };
    int at = options_read(
        count, arguments, rules, sizeof rules / sizeof rules[0], "QUEUE",
        "Sends a work queue's parked messages back to it, and to no other queue, to begin anew. A message leaves the\n"
        "parked queue after the broker confirmed its copy. What is parked meanwhile is not touched. Safe to "
        "interrupt:\n"
        "the same command goes on. Conditions are those of 'backhop parked list'.\n");
    if (count - at != 1)
        options_refuse("one work queue is wanted");
    replay *self = must(calloc(1, sizeof *self));
    self->options = &o;
    if (o.max_replays == INT64_MAX)
        o.max_replays = -1;
    if (o.ramp)
        read_ramp(self, o.ramp);
    if (o.ramp_ms < 1 || o.hold_ms < 1)
        options_refuse("--ramp-step and --hold are longer than nothing");
    if (bh_plan_new(&self->plan) != BH_OK)
        must(NULL);
    int code = parked_open(&self->on, &o.parked, "parked replay");
    if (code == EX_OK)
        code = run(self, arguments[at]);
    destroy(self);
    texts_free(&o.parked.where);
    return output_end(code);
}
