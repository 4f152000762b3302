/* backhop relay: retries for consumers that can only reject, until it is stopped. */
#include "common/command.h"
#include "common/config.h"
#include "common/management.h"
#include "common/output.h"
#include "relay/internal.h"
#include "relay/rejections.h"
#include "relay/service.h"
#include "setup/setup.h"

#include "worker/interface/relay.h"
#include "worker/wire/uri.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { DRAIN_MS = 10000 };

/* The options, typed or read from the file; NULL: not given. An option goes before the file. */
typedef struct relay_options {
    const char *management_url, *config, *ns, *queue_type, *stripes, *prefetch, *drain, *ca_file, *cert, *key;
    const char *outcomes[BH__DEATH_OTHER]; /* by bh__death_reason */
    texts uris;
    texts queues;
    policy_options policy;
    json_t *file; /* NULL: none */
    int64_t drain_ms;
    int prefetch_count;
    int check, print_policy, json, verbose;
    bh_log *log; /* so that 300 messages that are parked in a second are not 300 lines */
} relay_options;

/* ------------------------------------------------------------------------------------- the file */

static const char *const outcome_names[BH__DEATH_OTHER] = {"rejected", "expired", "maxlen", "delivery-limit"};

static void take_text(const char **out, const char *key, const json_t *value)
{
    if (!json_is_string(value))
        options_refuse("%s: a text or a number is wanted", key);
    config_at(NULL);
    if (!*out)
        *out = json_string_value(value);
}

static void take_uris(relay_options *o, const json_t *value, int has_typed)
{
    size_t i;
    const json_t *uri;
    if (has_typed)
        return;
    if (json_is_string(value))
        texts_add(&o->uris, json_string_value(value));
    else if (!json_is_array(value))
        options_refuse("uri: a URI or a list of them is wanted");
    json_array_foreach(value, i, uri)
    {
        if (!json_is_string(uri))
            options_refuse("uri: a URI or a list of them is wanted");
        texts_add(&o->uris, json_string_value(uri));
    }
}

static void read_file(relay_options *o)
{
    const char *key;
    json_t *value;
    int has_uris = o->uris.count > 0;
    const struct {
        const char *name;
        const char **out;
    } plain[] = {{"namespace", &o->ns},
                 {"queue-type", &o->queue_type},
                 {"stripes", &o->stripes},
                 {"prefetch", &o->prefetch},
                 {"drain", &o->drain},
                 {"management", &o->management_url},
                 {"ca-file", &o->ca_file},
                 {"cert", &o->cert},
                 {"key", &o->key},
                 {"rejected", &o->outcomes[BH__DEATH_REJECTED]},
                 {"expired", &o->outcomes[BH__DEATH_EXPIRED]},
                 {"maxlen", &o->outcomes[BH__DEATH_MAXLEN]},
                 {"delivery-limit", &o->outcomes[BH__DEATH_DELIVERY_LIMIT]}};
    if (!o->config)
        return;
    o->file = config_load(o->config);
    if (!json_is_object(o->file))
        options_refuse("%s: settings are wanted, as 'queues:'", o->config);
    json_object_foreach(o->file, key, value)
    {
        size_t i = 0;
        config_at(key);
        while (i < sizeof plain / sizeof plain[0] && strcmp(plain[i].name, key) != 0)
            i++;
        if (i < sizeof plain / sizeof plain[0])
            take_text(plain[i].out, key, value);
        else if (strcmp(key, "uri") == 0)
            take_uris(o, value, has_uris);
        else if (strcmp(key, "queues") != 0 && strcmp(key, "policy") != 0)
            options_refuse("there is no setting '%s'%s", key,
                           setup_is_policy_field(key) ? " here: put it under 'policy:'" : "");
    }
    config_at(NULL);
}

static void read_limits(relay_options *o)
{
    config_at(o->prefetch);
    if (o->prefetch)
        o->prefetch_count = (int)setup_number("prefetch", o->prefetch, 1, 65535);
    config_at(o->drain);
    if (o->drain && (!options_duration(o->drain, &o->drain_ms) || o->drain_ms > 3600000))
        options_refuse("drain: '%s' is no time span up to 1h", o->drain);
    config_at(NULL);
}

/* ------------------------------------------------------------------------------------ the relay */

static void expect(bh__relay *relay, bh_status status)
{
    if (status != BH_OK)
        options_refuse("%s", bh__relay_error(relay).data);
}

static void set_outcomes(bh__relay *relay, const relay_options *o)
{
    static const char *const words[] = {"retry", "park", "drop"};
    static const bh_outcome outcomes[] = {BH_OUTCOME_FAILED, BH_OUTCOME_PERMANENT, BH_OUTCOME_DROPPED};
    for (int reason = 0; reason < BH__DEATH_OTHER; reason++) {
        if (o->outcomes[reason]) {
            config_at(o->outcomes[reason]);
            int word = setup_word(outcome_names[reason], o->outcomes[reason], words, 3);
            expect(relay, bh__relay_set_outcome(relay, (bh__death_reason)reason, outcomes[word]));
        }
    }
}

static void set_waits(bh__relay *relay, const relay_options *o)
{
    config_at(o->queue_type);
    if (o->queue_type)
        expect(relay, bh__relay_set_queue_type(relay, setup_queue_type("queue-type", o->queue_type)));
    config_at(o->ns);
    if (o->ns && strchr(o->ns, '*'))
        options_refuse("namespace: '%s' looks like a pattern: give a name without '*'", o->ns);
    if (o->ns)
        expect(relay, bh__relay_set_namespace(relay, bh_str(o->ns)));
    config_at(o->stripes);
    if (o->stripes)
        expect(relay,
               bh__relay_set_stripes(relay, (int)setup_number("stripes", o->stripes, 1, BH_TOPOLOGY_MOST_STRIPES)));
    config_at(NULL);
}

/* The policy of a queue: the options' go before the queue's own in the file, and these before the
 * file's for all. */
static bh_policy *make_policy(const relay_options *o, json_t *own, const char *queue)
{
    json_t *merged = must(json_object());
    json_t *for_all = json_object_get(o->file, "policy");
    char where[400];
    snprintf(where, sizeof where, "the policy of %s", queue);
    if ((for_all && !json_is_object(for_all)) || (own && !json_is_object(own) && !json_is_null(own)))
        options_refuse("%s: names with values are wanted, as 'initial: 10s'", where);
    if (json_is_object(for_all))
        json_object_update(merged, for_all);
    if (json_is_object(own))
        setup_merge_policy(merged, own);
    bh_policy *policy = setup_policy_over(&o->policy, merged, where);
    json_decref(merged);
    return policy;
}

static void add_queue(bh__relay *relay, const relay_options *o, const char *name, json_t *own)
{
    bh_policy *policy = make_policy(o, own, name);
    config_at(name);
    expect(relay, bh__relay_add_queue(relay, bh_str(name), policy));
    config_at(NULL);
    bh_policy_free(policy);
}

/* Returns the policy that the file has for a queue: by its name, or by the first pattern that
 * matches. NULL: none. */
static json_t *own_policy(json_t *queues, const char *queue)
{
    const char *name;
    size_t size = strlen(queue), end = strlen(PARKED_SUFFIX);
    json_t *own = json_object_get(queues, queue);
    if (own || (size >= end && strcmp(queue + size - end, PARKED_SUFFIX) == 0)) /* no pattern matches these */
        return own;
    json_object_foreach(queues, name, own)
    {
        if (bh__relay_matches(bh_str(name), bh_str(queue)))
            return own;
    }
    return NULL;
}

static void add_queues(bh__relay *relay, const relay_options *o)
{
    json_t *queues = json_object_get(o->file, "queues"), *own;
    const char *name;
    size_t i;
    if (queues && !json_is_object(queues) && !json_is_array(queues))
        options_refuse("queues: names are wanted, each with its policy or without");
    for (i = 0; i < o->queues.count; i++)
        add_queue(relay, o, o->queues.items[i], own_policy(queues, o->queues.items[i]));
    if (o->queues.count > 0)
        return;
    json_object_foreach(queues, name, own)
    {
        add_queue(relay, o, name, own);
    }
    json_array_foreach(queues, i, own)
    {
        if (!json_is_string(own))
            options_refuse("queues: a list of names is wanted, or names with their policies");
        add_queue(relay, o, json_string_value(own), NULL);
    }
}

static bh__relay *make_relay(const relay_options *o)
{
    bh__relay *relay = NULL;
    if (bh__relay_new(&relay) != BH_OK)
        must(NULL);
    set_outcomes(relay, o);
    set_waits(relay, o);
    add_queues(relay, o);
    bh_status status = bh__relay_build(relay);
    if (status == BH_ERR_STATE)
        options_refuse("no queue is given: give --queue NAME, or a --config FILE with 'queues:'");
    expect(relay, status);
    return relay;
}

/* --------------------------------------------------------------------------------- its policies */

static int print_policies(bh__relay *relay, const relay_options *o)
{
    bh__uri uri = {.text = NULL};
    bh__report problem = {.size = 0};
    if (bh__uri_parse(&uri, bh_str(o->uris.items[0]), &problem) != BH_OK)
        options_refuse("%s", bh__report_text(&problem).data);
    bh_bytes vhost = bh_str(uri.vhost);
    printf("# An administrator runs these once, and again when the queues of the relay change. A queue takes one "
           "policy, the one of the\n# highest priority: add the settings of your other policies for these queues to "
           "both.\n# Quorum queues, whose dead letters then wait for the relay; queues with a max-length refuse "
           "publishes while they are full:\n%s\n",
           bh__relay_policy_line(relay, BH_QUEUE_QUORUM, vhost).data);
    printf("# Classic queues, whose dead letters the broker sends once, without waiting for a confirm:\n%s\n",
           bh__relay_policy_line(relay, BH_QUEUE_CLASSIC, vhost).data);
    bh__uri_free(&uri);
    bh__report_free(&problem);
    return output_end(EX_OK);
}

/* -------------------------------------------------------------------------------------- running */

static bh_worker *running; /* for the signal handler */
static int64_t drain_limit_ms;

static void listen_to(bh_worker *worker, const bh_event *event, void *data)
{
    const relay_options *o = data;
    (void)worker;
    if (bh_event_what(event) == BH_EVENT_CONNECTED)
        service_notify("READY=1\nSTATUS=relaying");
    else if (bh_event_what(event) == BH_EVENT_DISCONNECTED)
        service_notify("STATUS=connecting");
    if (o->json)
        service_log_json(event);
    else
        service_log(o->log, event);
}

static void on_signal(int number)
{
    (void)number;
    bh_worker_stop(running, drain_limit_ms); /* a second signal ends the program */
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

static bh_worker *make_worker(const bh__relay *relay, const relay_options *o)
{
    bh_worker *worker = NULL;
    bh_status status = bh__worker_new_relay(&worker, relay);
    if (status != BH_OK)
        exit(complain_status(status, bh_str("")));
    for (size_t i = 0; status == BH_OK && i < o->uris.count; i++)
        status = bh_worker_add_uri(worker, bh_str(o->uris.items[i]));
    bh_worker_settings settings;
    bh_worker_defaults(&settings);
    settings.ca_file = bh_str(o->ca_file ? o->ca_file : "");
    settings.cert = bh_str(o->cert ? o->cert : "");
    settings.key = bh_str(o->key ? o->key : "");
    settings.prefetch = o->prefetch ? o->prefetch_count : BH__RELAY_PREFETCH;
    settings.emits[BH_EVENT_RETRIED] |= o->verbose;
    settings.emits[BH_EVENT_DROPPED] |= o->verbose;
    if (o->check) {
        settings.mode = BH_MODE_VERIFY;
        settings.prefetch = 0; /* consumes nothing */
    }
    if (status == BH_OK)
        status = bh_worker_set(worker, &settings);
    if (status != BH_OK)
        options_refuse("%s", bh_worker_error(worker).data);
    return worker;
}

/* The worker is freed next: a signal must not find it. */
static void ignore_signals(void)
{
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    running = NULL;
}

static int relay_on(bh_worker *worker, relay_options *o)
{
    running = worker;
    drain_limit_ms = o->drain_ms;
    if (bh_log_new(&o->log) != BH_OK)
        must(NULL);
    catch_signals();
    bh_status status = bh_worker_run(worker, NULL, listen_to, o);
    ignore_signals();
    service_notify("STOPPING=1");
    bh_log_free(o->log);
    return status == BH_OK ? EX_OK : complain_status(status, bh_worker_error(worker));
}

/* The result of a look at the broker; BH_ERR_STATE: none yet. */
typedef struct finding {
    bh_status status;
    char *text;
} finding;

static void look_on(bh_worker *worker, const bh_event *event, void *data)
{
    finding *found = data;
    bh_event_kind kind = bh_event_what(event);
    if (found->status != BH_ERR_STATE || (kind != BH_EVENT_CONNECTED && kind != BH_EVENT_UNAVAILABLE))
        return;
    found->status = kind == BH_EVENT_CONNECTED ? BH_OK : (bh_status)bh_event_int(event, BH_FIELD_STATUS);
    found->text = copy_text(bh_event_text(event));
    bh_worker_stop(worker, 0);
}

/* Checks the policies of the work queues, if the management API is offered. */
static int check_rejections(const bh__relay *relay, const relay_options *o)
{
    const char *url = management_url(o->management_url);
    broker_options broker = {.uri = o->uris.items[0], .ca_file = o->ca_file};
    return url ? rejections_check(relay, url, &broker) : EX_OK;
}

static int check(bh_worker *worker, const bh__relay *relay, const relay_options *o)
{
    finding found = {.status = BH_ERR_STATE};
    bh_worker_run(worker, NULL, look_on, &found);
    int code = found.status == BH_OK ? EX_OK : complain_status(found.status, bh_str(found.text));
    free(found.text);
    int rejected_code = check_rejections(relay, o);
    if (code != EX_OK || rejected_code != EX_OK)
        return code != EX_OK ? code : rejected_code;
    if (management_url(o->management_url))
        printf("Everything that the relay needs is declared, and its work queues have their policies.\n");
    else
        printf(
            "Everything that the relay needs is declared. AMQP cannot show policies and bindings: --management reads\n"
            "them, and --print-policy prints the policies. 'rabbitmqctl list_queues name policy' shows the policy of a "
            "queue.\n");
    return output_end(EX_OK);
}

static const char *const intro =
    "Retries for consumers that can only reject (requeue=false), in any language. A rejected message comes back later "
    "to its queue alone, and is parked in QUEUE.parked after the last attempt. RabbitMQ dead-letters it to the relay "
    "by the policy that --print-policy shows. FILE has 'queues:', each with its policy, 'policy:' for all, and options "
    "by their names; a typed option goes before the file.\n";

int relay_main(int count, char **arguments)
{
    relay_options o = {.config = NULL, .drain_ms = DRAIN_MS};
    const option_rule rules[] = {
        {"queue", 'q', OPTION_TEXTS, "NAME", "a work queue, or a pattern with *; may be repeated", &o.queues},
        {"config", 'c', OPTION_TEXT, "FILE", "settings (YAML)", &o.config},
        {"check", 0, OPTION_FLAG, NULL, "lists what the broker lacks, and changes nothing", &o.check},
        {"print-policy", 0, OPTION_FLAG, NULL, "shows the broker's policies for the work queues", &o.print_policy},
        {"rejected", 0, OPTION_TEXT, "WHAT", "rejected messages: retry, park or drop them [retry]", &o.outcomes[0]},
        {"expired", 0, OPTION_TEXT, "WHAT", "messages that expired in a work queue [park]", &o.outcomes[1]},
        {"maxlen", 0, OPTION_TEXT, "WHAT", "messages that a full work queue pushed out [park]", &o.outcomes[2]},
        {"delivery-limit", 0, OPTION_TEXT, "WHAT", "messages that were delivered too often [park]", &o.outcomes[3]},
        {"namespace", 0, OPTION_TEXT, "NAME", "prefix of shared names [backhop, backhop.classic]", &o.ns},
        DELAY_OPTIONS(&o.policy, NAME),
        {"management", 'm', OPTION_SECRET, "URL", NULL, &o.management_url},
        {"uri", 'u', OPTION_SECRETS, "URI", "the broker [AMQP_URL]; may be repeated: a cluster", &o.uris},
        TLS_OPTIONS(&o.ca_file, &o.cert, &o.key),
        {"verbose", 'v', OPTION_FLAG, NULL, "logs each retry too", &o.verbose},
        {"json", 'j', OPTION_FLAG, NULL, "the log as JSON objects, on standard output", &o.json},
    };
    int at = options_read(count, arguments, rules, sizeof rules / sizeof rules[0], "", intro);
    if (at < count)
        options_refuse("'%s': no operand is wanted; a queue is --queue %s", arguments[at], arguments[at]);
    read_file(&o);
    if (o.uris.count == 0)
        texts_add(&o.uris, getenv("AMQP_URL") ? getenv("AMQP_URL") : "amqp://guest:guest@localhost/");
    read_limits(&o);
    bh__relay *relay = make_relay(&o);
    int code;
    if (o.print_policy) {
        code = print_policies(relay, &o);
    } else {
        bh_worker *worker = make_worker(relay, &o);
        if (!o.check)
            check_rejections(relay, &o); /* warnings: a policy can come later */
        code = o.check ? check(worker, relay, &o) : relay_on(worker, &o);
        bh_worker_free(worker);
    }
    bh__relay_free(relay);
    json_decref(o.file);
    texts_free(&o.uris);
    texts_free(&o.queues);
    return code;
}
