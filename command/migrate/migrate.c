/*
 * backhop migrate: takes over messages from hand-made wait queues.
 *
 * The pure core reads how often a message failed (bh_history) and plans its next delay
 * (bh__plan_adopt). The mover acknowledges an original after the broker confirmed its copy.
 */
#include "common/command.h"
#include "setup/declare.h"
#include "move/mover.h"
#include "parked/parked.h"
#include "plan/internal.h"
#include "topology/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

typedef struct migrate_options {
    parked_options parked;
    policy_options policy;
    texts from;
    const char *count_header;
    int dry_run;
    int yes;
} migrate_options;

/* Messages of a queue that failed equally often, and so go the same way. */
typedef struct portion {
    const char *queue;
    int64_t attempts;
    int64_t count;
    bh_action action;
    char reason[32];
} portion;

typedef struct migration {
    const migrate_options *options;
    parked on; /* the connection, the selection, the message that was read; its topology is the work queue's */
    const char *queue;
    bh_plan *plan;
    mover mover;
    portion *portions;
    size_t portion_count;
    int64_t found;   /* messages that were looked at */
    int64_t meant;   /* the ones among them that move, or would */
    int64_t refused; /* whose headers fit no frame */
    int is_for_real;
    int skipped; /* some wait for another round */
} migration;

/* ----------------------------------------------------------------------------------- the queues */

/* Backhop's own wait queues are never taken from: "<ns>.wait.", by the name of the unroutable
 * queue. */
static int is_own(const migration *self, const char *name)
{
    const bh_topology *topology = self->on.topology;
    bh_bytes unroutable = bh__topology_unroutable_queue(topology);
    size_t space = unroutable.size - strlen("unroutable");
    if (strncmp(name, unroutable.data, space) == 0 &&
        (strncmp(name + space, "wait.", 5) == 0 || strcmp(name, unroutable.data) == 0))
        return 1;
    bh_declaration each;
    for (size_t i = 0; bh_topology_declaration(topology, i, &each) == BH_OK; i++)
        if (each.kind == BH_DECLARE_QUEUE && strcmp(each.name.data, name) == 0)
            return 1;
    return strcmp(name, bh__topology_queue(topology).data) == 0;
}

/* Returns 1 if there is an exchange of this name. */
static int is_exchange(connection *broker, const char *name)
{
    amqp_exchange_declare_t look = {
        .exchange = amqp_cstring_bytes(name), .type = amqp_cstring_bytes("direct"), .passive = 1};
    if (connection_open_channel(broker, CHANNEL_CALL) != BH_OK ||
        connection_call(broker, CHANNEL_CALL, AMQP_EXCHANGE_DECLARE_METHOD, &look, AMQP_EXCHANGE_DECLARE_OK_METHOD, 0,
                        "looking at an exchange") != BH_OK)
        return 0;
    connection_close_channel(broker, CHANNEL_CALL);
    return 1;
}

static int see_queue(const migration *self, const char *name)
{
    int64_t ready;
    connection *broker = self->on.broker;
    bh_status status = connection_look(broker, name, &ready, NULL);
    if (status == BH_OK)
        return EX_OK;
    if (status != BH_ERR_MISSING)
        return connection_complain(broker);
    if (is_exchange(broker, name))
        complain("\"%s\" is an exchange, not a queue. AMQP cannot read the messages in an exchange of the "
                 "delayed-message plugin: deploy consumers that publish no more there, and let it run empty before the "
                 "plugin or its node goes; 'backhop migrate --help' shows more.",
                 name);
    else
        complain("there is no queue \"%s\" on vhost %s", name, broker->uri.vhost);
    return EX_UNAVAILABLE;
}

static int see_queues(const migration *self)
{
    int code = see_queue(self, self->queue);
    for (size_t i = 0; code == EX_OK && i < self->options->from.count; i++)
        code = see_queue(self, self->options->from.items[i]);
    return code;
}

/* ------------------------------------------------------------------------------------- messages */

static void add_portion(migration *self, const char *queue)
{
    bh_planned plan;
    bh_plan_read(self->plan, &plan);
    size_t i = 0;
    while (i < self->portion_count &&
           (self->portions[i].queue != queue || self->portions[i].attempts != plan.attempts ||
            self->portions[i].action != plan.action || strcmp(self->portions[i].reason, plan.reason.data) != 0))
        i++;
    if (i == self->portion_count) {
        self->portions = must(realloc(self->portions, ++self->portion_count * sizeof *self->portions));
        self->portions[i] = (portion){.queue = queue, .attempts = plan.attempts, .action = plan.action};
        snprintf(self->portions[i].reason, sizeof self->portions[i].reason, "%s", plan.reason.data);
    }
    self->portions[i].count++;
    self->meant++;
}

/* Plans the message that was read last. */
static bh_status plan(migration *self)
{
    char random[BH_PLAN_RANDOM_BYTES];
    bh_status status = mover_begin_plan(&self->mover, self->plan, random);
    if (status == BH_OK)
        status = bh__plan_adopt(self->plan, self->on.delivery, self->on.history, self->on.policy, self->on.topology,
                                bh__epoch_ms(), (bh_bytes){random, sizeof random});
    if (status == BH_ERR_NO_MEMORY)
        must(NULL);
    return status;
}

/* Keeps the copy of a message, or only counts it, or holds it. */
static void take(void *data, bh_message *message)
{
    migration *self = data;
    int is_kept = 0;
    self->found++;
    if (parked_reads(&self->on, message)) {
        bh_status status = plan(self);
        if (status == BH_OK && self->is_for_real && !mover_has_room(&self->mover)) {
            self->skipped = 1;
        } else {
            if (status == BH_OK)
                status = self->is_for_real ? mover_keep(&self->mover, message, self->plan, 0)
                                           : mover_try(&self->mover, message, self->plan);
            is_kept = status == BH_OK && self->is_for_real;
            if (status == BH_OK)
                add_portion(self, self->mover.shot.queue);
            else
                self->refused++;
        }
    }
    if (!is_kept)
        bh_message_free(message);
}

/* Looks through all queues: for real, or only to count. */
static int play(migration *self, int is_for_real)
{
    int code = EX_OK;
    self->is_for_real = is_for_real;
    self->portion_count = 0;
    self->found = self->meant = self->refused = self->on.malformed = 0;
    for (size_t i = 0; i < self->options->from.count && code == EX_OK && !self->mover.end; i++)
        do {
            self->skipped = 0;
            code = mover_play(&self->mover, self->options->from.items[i]);
        } while (code == EX_OK && self->skipped && !self->mover.end);
    return code;
}

/* -------------------------------------------------------------------------------------- telling */

static void print_portion_json(const migration *self, const portion *each)
{
    json_t *object = must(json_pack("{s:o, s:I, s:I, s:s}", "from", json_text(bh_str(each->queue)), "attempts",
                                    (json_int_t)each->attempts, "count", (json_int_t)each->count, "action",
                                    each->action == BH_ACTION_PARK ? "park" : "retry"));
    if (each->action == BH_ACTION_PARK)
        json_object_set_new(object, "reason", json_string(each->reason));
    else
        json_object_set_new(object, "mean_delay_ms",
                            json_integer(bh__topology_mean_ms(self->on.topology, self->on.policy, each->attempts)));
    print_json(object);
}

static void print_portions(const migration *self)
{
    static const char *const titles[] = {"messages", "from", "failed", "what becomes of them"};
    char wait[TIME_TEXT];
    text_table out = {.columns = 4};
    for (size_t i = 0; i < out.columns; i++)
        table_add(&out, "%s", titles[i]);
    for (size_t i = 0; i < self->portion_count; i++) {
        const portion *each = &self->portions[i];
        char *name = shown(bh_str(each->queue), 255);
        table_add(&out, "%lld", (long long)each->count);
        table_add(&out, "%s", name);
        table_add(&out, each->attempts == 1 ? "once" : "%lld times", (long long)each->attempts);
        if (each->action == BH_ACTION_PARK)
            table_add(&out, "parked: %s", each->reason);
        else
            table_add(&out, "next attempt in about %s",
                      show_duration(wait, bh__topology_mean_ms(self->on.topology, self->on.policy, each->attempts)));
        free(name);
    }
    table_print(&out, "rlll");
}

static void print_prospect(const migration *self)
{
    char text[64];
    if (self->options->parked.json) {
        for (size_t i = 0; i < self->portion_count; i++)
            print_portion_json(self, &self->portions[i]);
        print_json(
            must(json_pack("{s:b, s:o, s:I, s:I, s:I, s:I}", "dry_run", 1, "queue", json_text(bh_str(self->queue)),
                           "found", (json_int_t)self->found, "to_migrate", (json_int_t)self->meant, "cannot_go",
                           (json_int_t)self->refused, "malformed", (json_int_t)self->on.malformed)));
        return;
    }
    if (self->portion_count)
        print_portions(self);
    say("%s of %lld would be taken over for \"%s\"\n", count_messages(text, self->meant), (long long)self->found,
        self->queue);
    if (self->refused)
        printf("%s cannot go: headers that fit no frame\n", count_messages(text, self->refused));
    if (self->on.malformed)
        printf("%s cannot go: malformed properties\n", count_messages(text, self->on.malformed));
}

static void print_summary(const migration *self)
{
    const char *stopped = is_interrupted() ? "interrupted" : self->mover.end ? self->mover.end : "";
    if (self->options->parked.json)
        print_json(must(json_pack("{s:b, s:o, s:I, s:I, s:I, s:I, s:s}", "dry_run", 0, "queue",
                                  json_text(bh_str(self->queue)), "migrated", (json_int_t)self->mover.done,
                                  "to_migrate", (json_int_t)self->meant, "cannot_go", (json_int_t)self->refused,
                                  "malformed", (json_int_t)self->on.malformed, "stopped", stopped)));
    else
        say("%lld of %lld taken over for \"%s\"\n", (long long)self->mover.done, (long long)self->meant, self->queue);
    if (*stopped)
        complain("stopped: %s; the rest stays in its queue, and the same command goes on", stopped);
}

/* ----------------------------------------------------------------------------------------- main */

/* Declares the queues and exchanges that the copies need, as a worker does. */
static int declare(migration *self)
{
    bh__report report = {.status = BH_OK};
    bh_status status = declare_topology(self->on.broker, self->on.topology, &report);
    int code = status == BH_OK ? EX_OK : complain_status(status, bh__report_text(&report));
    bh__report_free(&report);
    return code;
}

static int run(migration *self)
{
    const migrate_options *o = self->options;
    int code = see_queues(self);
    if (code == EX_OK)
        code = mover_open(&self->mover, self->on.broker);
    self->mover.take = take;
    self->mover.data = self;
    self->mover.expires = 1;
    if (code == EX_OK && (o->dry_run || !o->yes)) {
        code = play(self, 0);
        if (code == EX_OK)
            print_prospect(self);
        if (code != EX_OK || o->dry_run || self->meant == 0)
            return code;
        code = parked_confirm(self->meant, "take them over");
    }
    if (code == EX_OK)
        code = declare(self);
    if (code != EX_OK)
        return code;
    code = play(self, 1);
    print_summary(self);
    return code == EX_OK && self->mover.end ? self->mover.end_code : code;
}

/* Refuses Backhop's own queues, and a queue that is given twice: its messages would count twice. */
static void check_from(const migration *self)
{
    const texts *from = &self->options->from;
    for (size_t i = 0; i < from->count; i++) {
        if (is_own(self, from->items[i]))
            options_refuse(
                "--from %s: this is the work queue, or one of Backhop's own: give a wait queue of the earlier set-up",
                from->items[i]);
        for (size_t j = 0; j < i; j++)
            if (strcmp(from->items[i], from->items[j]) == 0)
                options_refuse("--from %s is given twice: give each wait queue once", from->items[i]);
    }
}

static void set_up(migration *self)
{
    const migrate_options *o = self->options;
    self->on.policy = setup_policy(&o->policy);
    self->on.topology = setup_topology(&o->parked.topology, self->queue, self->on.policy);
    bh_strategy strategy = bh__topology_strategy(self->on.topology);
    if (strategy == BH_STRATEGY_REJECT || strategy == BH_STRATEGY_NATIVE)
        options_refuse("--strategy %s keeps no messages that could be taken over: name the one they shall wait by, or "
                       "let the wait queues run empty",
                       o->parked.topology.strategy);
    check_from(self);
    bh_status status = bh_history_set_legacy_counter(self->on.history, bh_str(o->count_header ? o->count_header : ""));
    for (size_t i = 0; status == BH_OK && i < o->from.count; i++)
        status = bh_history_add_wait_queue(self->on.history, bh_str(o->from.items[i]));
    if (status != BH_OK || bh_plan_new(&self->plan) != BH_OK)
        must(NULL);
}

int migrate_main(int count, char **arguments)
{
    migrate_options o = {.dry_run = 0};
    const option_rule rules[] = {
        {"from", 'f', OPTION_TEXTS, "QUEUE", "a wait queue of the earlier set-up; may be given again", &o.from},
        {"count-header", 0, OPTION_TEXT, "NAME", "the header with its count of failures, as x-retries",
         &o.count_header},
        WHERE_OPTION(&o.parked),
        {"dry-run", 'n', OPTION_FLAG, NULL, "print the result, and do nothing", &o.dry_run},
        {"yes", 'y', OPTION_FLAG, NULL, "do not wait for the typed count", &o.yes},
        WAIT_OPTIONS(&o.policy, &o.parked.topology),
        BROKER_OPTIONS(&o.parked.broker),
        JSON_OPTION(&o.parked.json),
    };
    int at = options_read(
        count, arguments, rules, sizeof rules / sizeof rules[0], "QUEUE",
        "Moves the messages of hand-made wait queues (x-dead-letter-exchange and a TTL) of the work queue QUEUE "
        "to Backhop's. Each keeps its count of failures, by the header, else by x-death, and waits by the "
        "policy; one without attempts is parked. If a wait queue serves other work queues too, select by --where. A "
        "message in hand does not expire. Ctrl-C is safe, and the same command goes on. AMQP cannot read a "
        "delayed-message exchange: publish no more there, and let it run empty.\n");
    if (count - at != 1)
        options_refuse("one work queue is wanted");
    if (o.from.count == 0)
        options_refuse("no wait queue is given: give --from QUEUE");
    migration self = {.options = &o, .queue = arguments[at]};
    int code = parked_open(&self.on, &o.parked, "migrate");
    set_up(&self);
    if (code == EX_OK)
        code = run(&self);
    mover_close(&self.mover);
    bh_plan_free(self.plan);
    free(self.portions);
    parked_close(&self.on);
    texts_free(&o.from);
    texts_free(&o.parked.where);
    return output_end(code);
}
