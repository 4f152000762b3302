/*
 * command-rig: what the tests of the command need beside it, on the broker of AMQP_URL.
 *
 *   park QUEUE COUNT ERROR...        a worker parks COUNT messages "0", "1", ..., their errors in turn; their message-ids are
 *                                    m000000, m000001, ...; "-" in front of an error: it fails that way twice (10 ms apart), else it
 *                                    is permanent
 *   handle QUEUE COUNT ok|fail       a worker handles COUNT messages; "fail" parks them again as permanent
 *   fill QUEUE COUNT                 publishes COUNT messages, ids and bodies as above, and nothing else
 *   odd QUEUE                        publishes a message with the properties that no copy can have: expiration, user-id guest, CC
 *   drain QUEUE [COUNT]              waits for COUNT messages to be ready, then takes and prints all, a line each: id, error,
 *                                    replays, routing key, body, attempts
 *   reject QUEUE COUNT               waits for COUNT messages to be ready, then rejects as many, as a consumer of a hand-made set-up
 *   consume QUEUE COUNT              prints an empty line once it consumes; then rejects COUNT deliveries as they come, and prints a
 *                                    line each: attempts
 *   declare QUEUE quorum|classic [NAME=VALUE...]   a queue with these arguments
 *   exchange NAME                    a fanout exchange
 *   bind|unbind QUEUE EXCHANGE
 *   delete QUEUE
 *   depth QUEUE                      prints how many messages are ready, then how many consumers it has
 */
#include "../policies.h"
#include "worker/librabbitmq.h"

#include <backhop/adapter.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHANNEL = 1, FRAME_MAX = 131072, MANY = 1000, FEW = 10, MOST_ARGUMENTS = 8 };

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "command-rig: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

/* ----------------------------------------------------------------------------------- the client */

static void expect(amqp_connection_state_t state, const char *what)
{
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(state);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        fail(what, reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION ? "the broker refuses"
                                                                      : amqp_error_string2(reply.library_error));
}

static amqp_connection_state_t connect_to_broker(void)
{
    static char root[] = "/";
    struct amqp_connection_info info;
    char *url = strdup(getenv("AMQP_URL"));
    if (!url || amqp_parse_url(url, &info) != AMQP_STATUS_OK)
        fail("AMQP_URL", "no URL");
    amqp_connection_state_t state = amqp_new_connection();
    if (amqp_socket_open(amqp_tcp_socket_new(state), info.host, info.port) != AMQP_STATUS_OK)
        fail("connecting", "no connection");
    amqp_rpc_reply_t reply = amqp_login(state, *info.vhost ? info.vhost : root, 0, FRAME_MAX, 0, AMQP_SASL_METHOD_PLAIN,
                                        info.user, info.password);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        fail("login", "refused");
    amqp_channel_open(state, CHANNEL);
    expect(state, "channel");
    free(url);
    return state;
}

static void declare(const char *queue, const char *type, char **more, int count)
{
    amqp_connection_state_t state = connect_to_broker();
    amqp_table_entry_t arguments[MOST_ARGUMENTS] = {
        {.key = amqp_cstring_bytes("x-queue-type"),
         .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes(type)}}};
    for (int i = 0; i < count && i + 1 < MOST_ARGUMENTS; i++) {
        char *value = strchr(more[i], '='), *end;
        if (!value)
            fail(more[i], "no NAME=VALUE");
        *value++ = '\0';
        amqp_table_entry_t *entry = &arguments[i + 1];
        entry->key = amqp_cstring_bytes(more[i]);
        entry->value.kind = AMQP_FIELD_KIND_I64;
        entry->value.value.i64 = strtoll(value, &end, 10);
        if (!*value || *end) {
            entry->value.kind = AMQP_FIELD_KIND_UTF8;
            entry->value.value.bytes = amqp_cstring_bytes(value);
        }
    }
    amqp_queue_declare(state, CHANNEL, amqp_cstring_bytes(queue), 0, 1, 0, 0, (amqp_table_t){1 + count, arguments});
    expect(state, "declare");
    amqp_destroy_connection(state);
}

/* As a topology with a work queue of type quorum has it. */
static void declare_work_queue(const char *queue)
{
    amqp_connection_state_t state = connect_to_broker();
    amqp_table_entry_t arguments[] = {
        {.key = amqp_cstring_bytes("x-queue-type"),
         .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes("quorum")}},
        {.key = amqp_cstring_bytes("x-delivery-limit"),
         .value = {.kind = AMQP_FIELD_KIND_I64, .value.i64 = 1000000000}}};
    amqp_queue_declare(state, CHANNEL, amqp_cstring_bytes(queue), 0, 1, 0, 0, (amqp_table_t){2, arguments});
    expect(state, "declare");
    amqp_destroy_connection(state);
}

static void delete_queue(const char *queue)
{
    amqp_connection_state_t state = connect_to_broker();
    amqp_queue_delete(state, CHANNEL, amqp_cstring_bytes(queue), 0, 0);
    expect(state, "delete");
    amqp_destroy_connection(state);
}

static void declare_exchange(const char *name)
{
    amqp_connection_state_t state = connect_to_broker();
    amqp_exchange_declare(state, CHANNEL, amqp_cstring_bytes(name), amqp_cstring_bytes("fanout"), 0, 1, 0, 0,
                          amqp_empty_table);
    expect(state, "exchange");
    amqp_destroy_connection(state);
}

static void bind_queue(const char *queue, const char *exchange, int is_bound)
{
    amqp_connection_state_t state = connect_to_broker();
    if (is_bound)
        amqp_queue_bind(state, CHANNEL, amqp_cstring_bytes(queue), amqp_cstring_bytes(exchange), amqp_empty_bytes,
                        amqp_empty_table);
    else
        amqp_queue_unbind(state, CHANNEL, amqp_cstring_bytes(queue), amqp_cstring_bytes(exchange), amqp_empty_bytes,
                          amqp_empty_table);
    expect(state, "bind");
    amqp_destroy_connection(state);
}

static void print_text(amqp_bytes_t text)
{
    for (size_t i = 0; i < text.len; i++) {
        char character = ((const char *)text.bytes)[i];
        putchar(character == '\t' || character == '\n' ? ' ' : character);
    }
    putchar('\t');
}

static void print_header(const amqp_basic_properties_t *properties, const char *name)
{
    for (int i = 0; i < properties->headers.num_entries; i++) {
        const amqp_table_entry_t *entry = &properties->headers.entries[i];
        if (entry->key.len != strlen(name) || memcmp(entry->key.bytes, name, entry->key.len) != 0)
            continue;
        if (entry->value.kind == AMQP_FIELD_KIND_UTF8)
            print_text(entry->value.value.bytes);
        else
            printf("%lld\t", (long long)entry->value.value.i64);
        return;
    }
    putchar('\t');
}

static void print_depth(const char *queue)
{
    amqp_connection_state_t state = connect_to_broker();
    const amqp_queue_declare_ok_t *ok =
        amqp_queue_declare(state, CHANNEL, amqp_cstring_bytes(queue), 1, 1, 0, 0, amqp_empty_table);
    expect(state, "look");
    printf("%d\n%d\n", ok ? (int)ok->message_count : 0, ok ? (int)ok->consumer_count : 0);
    amqp_destroy_connection(state);
}

static int is_said_to_be_empty(amqp_connection_state_t state, const char *queue)
{
    const amqp_queue_declare_ok_t *ok =
        amqp_queue_declare(state, CHANNEL, amqp_cstring_bytes(queue), 1, 1, 0, 0, amqp_empty_table);
    expect(state, "look");
    return ok && ok->message_count == 0 && ok->consumer_count > 0;
}

/*
 * Returns 1 if a queue that this connection consumes from has nothing more, and nothing of it is on
 * its way here.
 *
 * The broker reports no message for a busy queue, and no consumer either. The first answer may
 * overtake deliveries that were made before it. They come before the second answer, as their
 * channel has them in hand at the second request.
 */
static int is_empty(amqp_connection_state_t state, const char *queue)
{
    return is_said_to_be_empty(state, queue) && is_said_to_be_empty(state, queue) && !amqp_frames_enqueued(state);
}

static void drain(const char *queue, int expected, int is_rejecting)
{
    static const struct timespec pause = {0, 10000000};
    amqp_connection_state_t state = connect_to_broker();
    for (int i = 0, ready = 0; i < 6000; i++) {
        const amqp_queue_declare_ok_t *ok =
            amqp_queue_declare(state, CHANNEL, amqp_cstring_bytes(queue), 1, 1, 0, 0, amqp_empty_table);
        expect(state, "look");
        ready = ok ? (int)ok->message_count : 0;
        if (ready >= expected && ok && ok->consumer_count == 0)
            break;
        nanosleep(&pause, NULL);
    }
    amqp_basic_qos(state, CHANNEL, 0, MANY, 0);
    expect(state, "qos");
    amqp_basic_consume(state, CHANNEL, amqp_cstring_bytes(queue), amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
    expect(state, "consume");
    for (int taken = 0; !is_rejecting || taken < expected; taken++) {
        amqp_envelope_t envelope;
        struct timeval limit = {0, 250000};
        amqp_maybe_release_buffers(state);
        amqp_rpc_reply_t reply = amqp_consume_message(state, &envelope, &limit, 0);
        if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION && reply.library_error == AMQP_STATUS_TIMEOUT) {
            if (is_empty(state, queue))
                break;
            taken--;
            continue;
        }
        if (reply.reply_type != AMQP_RESPONSE_NORMAL)
            fail("drain", "the connection was lost");
        const amqp_basic_properties_t *properties = &envelope.message.properties;
        if (is_rejecting) {
            amqp_basic_nack(state, CHANNEL, envelope.delivery_tag, 0, 0);
            amqp_destroy_envelope(&envelope);
            continue;
        }
        print_text(properties->_flags & AMQP_BASIC_MESSAGE_ID_FLAG ? properties->message_id : amqp_empty_bytes);
        print_header(properties, "backhop-error");
        print_header(properties, "backhop-replays");
        print_text(envelope.routing_key);
        print_text(envelope.message.body);
        print_header(properties, "backhop-attempts");
        putchar('\n');
        amqp_basic_ack(state, CHANNEL, envelope.delivery_tag, 0);
        amqp_destroy_envelope(&envelope);
    }
    amqp_channel_close(state, CHANNEL, AMQP_REPLY_SUCCESS);
    amqp_connection_close(state, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(state);
}

static void consume(const char *queue, int count)
{
    amqp_connection_state_t state = connect_to_broker();
    amqp_basic_qos(state, CHANNEL, 0, 1, 0);
    expect(state, "qos");
    amqp_basic_consume(state, CHANNEL, amqp_cstring_bytes(queue), amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
    expect(state, "consume");
    for (int taken = 0; taken < count; taken++) {
        amqp_envelope_t envelope;
        putchar('\n');
        fflush(stdout);
        amqp_maybe_release_buffers(state);
        if (amqp_consume_message(state, &envelope, NULL, 0).reply_type != AMQP_RESPONSE_NORMAL)
            fail("consume", "the connection was lost");
        print_header(&envelope.message.properties, "backhop-attempts");
        amqp_basic_nack(state, CHANNEL, envelope.delivery_tag, 0, 0);
        amqp_destroy_envelope(&envelope);
    }
    amqp_channel_close(state, CHANNEL, AMQP_REPLY_SUCCESS);
    amqp_connection_close(state, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(state);
}

static uint64_t published; /* on the channel, and confirmed or nacked */

static void publish_number(amqp_connection_state_t state, const char *queue, int number)
{
    char id[16], body[16];
    snprintf(id, sizeof id, "m%06d", number);
    snprintf(body, sizeof body, "%d", number);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG,
                                          .message_id = amqp_cstring_bytes(id),
                                          .delivery_mode = 2};
    if (amqp_basic_publish(state, CHANNEL, amqp_empty_bytes, amqp_cstring_bytes(queue), 1, 0, &properties,
                           amqp_cstring_bytes(body)) != AMQP_STATUS_OK)
        fail("publish", "the connection was lost");
}

/* Waits for so many confirms. Returns 0 if the broker nacks, as it does while it makes a queue. */
static int await_confirms(amqp_connection_state_t state, int count)
{
    for (int confirmed = 0; confirmed < count;) {
        amqp_frame_t frame;
        amqp_maybe_release_buffers(state);
        if (amqp_simple_wait_frame(state, &frame) != AMQP_STATUS_OK || frame.frame_type != AMQP_FRAME_METHOD)
            fail("publish", "not confirmed");
        if (frame.payload.method.id == AMQP_BASIC_NACK_METHOD)
            return 0;
        if (frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
            fail("publish", "not confirmed");
        const amqp_basic_ack_t *ack = frame.payload.method.decoded;
        confirmed = ack->multiple ? (int)(ack->delivery_tag - published) : confirmed + 1;
    }
    published += (uint64_t)count;
    return 1;
}

/* Publishes the first message until it is confirmed: the broker has made the queue then. */
static void publish(const char *queue, int count)
{
    amqp_connection_state_t state = connect_to_broker();
    amqp_confirm_select(state, CHANNEL);
    expect(state, "confirms");
    published = 0;
    for (int is_made = count == 0; !is_made; published += !is_made) {
        publish_number(state, queue, 0);
        is_made = await_confirms(state, 1);
    }
    for (int i = 1; i < count; i++)
        publish_number(state, queue, i);
    if (count > 1 && !await_confirms(state, count - 1))
        fail("publish", "nacked");
    amqp_connection_close(state, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(state);
}

static void publish_odd(const char *queue)
{
    amqp_connection_state_t state = connect_to_broker();
    amqp_field_value_t other = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes("nowhere")};
    amqp_table_entry_t copies = {.key = amqp_cstring_bytes("CC"),
                                 .value = {.kind = AMQP_FIELD_KIND_ARRAY, .value.array = {1, &other}}};
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_EXPIRATION_FLAG |
                                                    AMQP_BASIC_USER_ID_FLAG | AMQP_BASIC_HEADERS_FLAG,
                                          .message_id = amqp_cstring_bytes("odd"),
                                          .expiration = amqp_cstring_bytes("60000000"),
                                          .user_id = amqp_cstring_bytes("guest"),
                                          .headers = {1, &copies}};
    amqp_confirm_select(state, CHANNEL);
    expect(state, "confirms");
    published = 0;
    if (amqp_basic_publish(state, CHANNEL, amqp_empty_bytes, amqp_cstring_bytes(queue), 0, 0, &properties,
                           amqp_cstring_bytes("x")) != AMQP_STATUS_OK ||
        !await_confirms(state, 1))
        fail("publish", "not confirmed");
    amqp_connection_close(state, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(state);
}

/* ----------------------------------------------------------------------------------- the worker */

static struct {
    int left; /* messages to settle */
    int ends; /* events to come: parked */
    int fails;
    char **errors;
    int error_count;
} job;

static bh_outcome handle(bh_worker *worker, bh_message *message, void *data)
{
    (void)data;
    if (!job.fails) {
        if (--job.left == 0)
            bh_worker_stop(worker, 5000);
        return BH_OUTCOME_OK;
    }
    int number = atoi(bh_message_body(message).data); /* NOLINT(cert-err34-c): the rig's own */
    const char *error = job.error_count ? job.errors[number % job.error_count] : "failed again";
    int is_slow = error[0] == '-';
    char text[256];
    snprintf(text, sizeof text, error + is_slow, number); /* NOLINT: the test's own format */
    bh_settlement settlement = {.outcome = BH_OUTCOME_PERMANENT, .error = bh_str(text)};
    if (is_slow && bh_worker_attempt(worker, message) < 2)
        settlement.outcome = BH_OUTCOME_FAILED;
    bh_worker_settle(worker, message, &settlement);
    return settlement.outcome;
}

static void hear(bh_worker *worker, const bh_event *event, void *data)
{
    (void)data;
    if (bh_event_what(event) == BH_EVENT_PARKED && --job.ends == 0)
        bh_worker_stop(worker, 5000);
}

/* Reads a number from the environment: of a strategy or a mode. */
static int number_of(const char *variable)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : 0; /* NOLINT(cert-err34-c): the test's own */
}

static void work(const char *queue, int count)
{
    bh_policy *policy;
    bh_topology *topology;
    bh_worker *worker;
    if (bh_policy_new(&policy) != BH_OK || bh_topology_new(&topology, bh_str(queue)) != BH_OK)
        fail("work", "no memory");
    policy_set_initial_ms(policy, number_of("RIG_INITIAL_MS") ? number_of("RIG_INITIAL_MS") : 100);
    if (number_of("RIG_STRATEGY"))
        policy_set_kind(policy, BH_KIND_FIXED);
    if (number_of("RIG_MODE")) /* else a worker misses rungs on demand */
        policy_set_max_retry_after_ms(policy, 0);
    policy_set_jitter(policy, BH_JITTER_NONE, 0);
    policy_set_max_attempts(policy, 2);
    bh_topology_settings of;
    bh_topology_defaults(&of);
    of.strategy = (bh_strategy)number_of("RIG_STRATEGY");
    of.declares_work_queue = 1;
    bh_topology_set(topology, &of);
    if (bh_topology_build(topology, policy) != BH_OK || bh_worker_new(&worker, policy, topology) != BH_OK)
        fail("work", bh_topology_error(topology).data);
    bh_worker_add_uri(worker, bh_str(getenv("AMQP_URL")));
    bh_worker_settings settings;
    bh_worker_defaults(&settings);
    settings.mode = (bh_mode)number_of("RIG_MODE");
    settings.prefetch = count <= FEW ? 1 : MANY; /* 1: they are parked in their order */
    bh_worker_set(worker, &settings);
    job.left = job.ends = count;
    if (bh_worker_run(worker, handle, hear, NULL) != BH_OK)
        fail("work", bh_worker_error(worker).data);
    bh_worker_free(worker);
    bh_topology_free(topology);
    bh_policy_free(policy);
}

int main(int count, char **arguments)
{
    const char *what = count > 2 ? arguments[1] : "";
    int number = count > 3 ? atoi(arguments[3]) : 0; /* NOLINT(cert-err34-c): the test's own */
    if (strcmp(what, "park") == 0 && number > 0) {
        job.fails = 1;
        job.errors = arguments + 4;
        job.error_count = count - 4;
        declare_work_queue(arguments[2]);
        publish(arguments[2], number);
        work(arguments[2], number);
    } else if (strcmp(what, "handle") == 0 && count > 4) {
        job.fails = strcmp(arguments[4], "fail") == 0;
        job.errors = arguments + 5;
        job.error_count = count - 5;
        work(arguments[2], number);
    } else if (strcmp(what, "fill") == 0) {
        publish(arguments[2], number);
    } else if (strcmp(what, "odd") == 0) {
        publish_odd(arguments[2]);
    } else if (strcmp(what, "drain") == 0) {
        drain(arguments[2], number, 0);
    } else if (strcmp(what, "consume") == 0) {
        consume(arguments[2], number);
    } else if (strcmp(what, "declare") == 0 && count > 3) {
        declare(arguments[2], arguments[3], arguments + 4, count - 4);
    } else if (strcmp(what, "exchange") == 0) {
        declare_exchange(arguments[2]);
    } else if ((strcmp(what, "bind") == 0 || strcmp(what, "unbind") == 0) && count > 3) {
        bind_queue(arguments[2], arguments[3], *what == 'b');
    } else if (strcmp(what, "reject") == 0) {
        drain(arguments[2], number, 1);
    } else if (strcmp(what, "depth") == 0) {
        print_depth(arguments[2]);
    } else if (strcmp(what, "delete") == 0) {
        delete_queue(arguments[2]);
    } else {
        fail("usage", "see the first lines of rig.c");
    }
    return EXIT_SUCCESS;
}
