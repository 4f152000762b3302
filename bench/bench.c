#include "bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { FRAME_MAX = 131072, MOST_ARGUMENTS = 16 };

_Noreturn void bench_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(EXIT_FAILURE);
}

void bench_need(bh_status status)
{
    if (status != BH_OK)
        bench_fail("%s", bh_status_text(status).data);
}

static double clock_ms(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

double bench_now_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

double bench_used_ms(void)
{
    return clock_ms(CLOCK_PROCESS_CPUTIME_ID);
}

void bench_pause_ms(double ms)
{
    double seconds = ms / 1e3;
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    if (ms > 0)
        nanosleep(&time, NULL);
}

bench_task bench_task_of(const char *name)
{
    static const char *names[] = {"consume", "retry", "lateness"};
    for (int task = BENCH_CONSUME; task <= BENCH_LATENESS; task++)
        if (strcmp(name, names[task]) == 0)
            return (bench_task)task;
    bench_fail("there is no task '%s'; tasks: consume, retry, lateness", name);
}

int bench_count_of(const char *digits)
{
    char *end;
    long count = strtol(digits, &end, 10);
    if (*end != '\0' || count < 1 || count > 10000000)
        bench_fail("'%s' is no count from 1 to 10000000", digits);
    return (int)count;
}

void bench_make(bench_setup setup, bh_policy **policy, bh_topology **topology)
{
    int is_rates = setup == BENCH_RATES;
    bh_policy_settings settings;
    bh_policy_defaults(&settings);
    settings.initial_ms = is_rates ? 600000 : 500;
    settings.max_ms = is_rates ? 600000 : 20000;
    settings.jitter = is_rates ? BH_JITTER_NONE : BH_JITTER_SPREAD;
    settings.max_retry_after_ms = 0;
    bench_need(bh_policy_new(policy));
    bench_need(bh_policy_set(*policy, &settings));

    bench_need(bh_topology_new(topology, bh_str(BENCH_QUEUE)));
    bh_topology_settings of;
    bh_topology_defaults(&of);
    of.name_space = bh_str(BENCH_NAMESPACE);
    of.strategy = setup == BENCH_ONE_QUEUE ? BH_STRATEGY_MESSAGE_TTL : BH_STRATEGY_LADDER;
    of.declares_work_queue = 1;
    bench_need(bh_topology_set(*topology, &of));
    bench_need(bh_topology_build(*topology, *policy));
}

bh_breaker *bench_breaker(void)
{
    bh_breaker_settings settings;
    bh_breaker *breaker;
    bh_breaker_defaults(&settings);
    bench_need(bh_breaker_new(&breaker, &settings, (bh_bytes){"12345678", BH_BREAKER_RANDOM_BYTES}));
    return breaker;
}

/* --------------------------------------------------------------------------------------- broker */

const char *bench_url(void)
{
    const char *url = getenv("AMQP_URL");
    if (!url)
        bench_fail("AMQP_URL does not name a broker; tests/broker/broker runs one");
    return url;
}

static const char *explain(amqp_rpc_reply_t reply)
{
    static char text[512];
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
        return amqp_error_string2(reply.library_error);
    if (reply.reply_type != AMQP_RESPONSE_SERVER_EXCEPTION)
        return "no reply";
    const amqp_channel_close_t *close = reply.reply.decoded;
    snprintf(text, sizeof text, "%d %.*s", close->reply_code, (int)close->reply_text.len, /* as connection.close */
             (const char *)close->reply_text.bytes);
    return text;
}

void bench_need_reply(amqp_rpc_reply_t reply, const char *what)
{
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        bench_fail("%s: %s", what, explain(reply));
}

void bench_need_sent(int status, const char *what)
{
    if (status != AMQP_STATUS_OK)
        bench_fail("%s: %s", what, amqp_error_string2(status));
}

amqp_connection_state_t bench_connect(void)
{
    struct amqp_connection_info info;
    char *url = strdup(bench_url());
    if (!url || amqp_parse_url(url, &info) != AMQP_STATUS_OK)
        bench_fail("AMQP_URL is no URL that librabbitmq understands");
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(connection);
    if (!socket)
        bench_fail("no socket");
    bench_need_sent(amqp_socket_open(socket, info.host, info.port), "connecting");
    bench_need_reply(amqp_login(connection, info.vhost[0] ? info.vhost : "/", 0, FRAME_MAX, 0, AMQP_SASL_METHOD_PLAIN,
                                info.user, info.password),
                     "logging in");
    free(url);
    amqp_channel_open(connection, BENCH_CHANNEL);
    bench_need_reply(amqp_get_rpc_reply(connection), "opening a channel");
    return connection;
}

amqp_connection_state_t bench_consuming(void)
{
    amqp_connection_state_t connection = bench_connect();
    amqp_basic_qos(connection, BENCH_CHANNEL, 0, BENCH_PREFETCH, 0);
    bench_need_reply(amqp_get_rpc_reply(connection), "setting the prefetch");
    amqp_basic_consume(connection, BENCH_CHANNEL, amqp_cstring_bytes(BENCH_QUEUE), amqp_empty_bytes, 0, 0, 0,
                       amqp_empty_table);
    bench_need_reply(amqp_get_rpc_reply(connection), "consuming");
    return connection;
}

void bench_disconnect(amqp_connection_state_t connection)
{
    bench_need_reply(amqp_connection_close(connection, AMQP_REPLY_SUCCESS), "closing the connection");
    amqp_destroy_connection(connection);
}

amqp_table_entry_t bench_string(const char *name, bh_bytes value)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name), .value.kind = AMQP_FIELD_KIND_UTF8};
    entry.value.value.bytes = bh__to_amqp(value);
    return entry;
}

amqp_table_entry_t bench_int(const char *name, int64_t value)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name), .value.kind = AMQP_FIELD_KIND_I64};
    entry.value.value.i64 = value;
    return entry;
}

/* ------------------------------------------------------------------------------------- topology */

static amqp_table_t arguments_of(const bh_declaration *it)
{
    static amqp_table_entry_t entries[MOST_ARGUMENTS];
    size_t count = it->argument_count;
    for (size_t k = 0; k < count; k++) {
        const char *name = it->arguments[k].name.data;
        if (it->arguments[k].type == BH_TYPE_INT64)
            entries[k] = bench_int(name, it->arguments[k].integer);
        else
            entries[k] = bench_string(name, it->arguments[k].string);
    }
    return (amqp_table_t){(int)count, entries};
}

void bench_declare_one(amqp_connection_state_t connection, const bh_declaration *it)
{
    amqp_bytes_t name = bh__to_amqp(it->name);
    switch (it->kind) {
    case BH_DECLARE_NONE:
        break;
    case BH_DECLARE_EXCHANGE:
        amqp_exchange_declare(connection, BENCH_CHANNEL, name, bh__to_amqp(it->type), 0, 1, 0, 0, arguments_of(it));
        break;
    case BH_DECLARE_QUEUE:
        amqp_queue_declare(connection, BENCH_CHANNEL, name, 0, 1, 0, 0, arguments_of(it));
        break;
    case BH_DECLARE_BINDING:
        amqp_queue_bind(connection, BENCH_CHANNEL, name, bh__to_amqp(it->source), bh__to_amqp(it->routing_key),
                        amqp_empty_table);
        break;
    }
    bench_need_reply(amqp_get_rpc_reply(connection), "declaring");
}

void bench_declare(amqp_connection_state_t connection, const bh_topology *topology)
{
    bh_declaration each;
    for (size_t i = 0; bh_topology_declaration(topology, i, &each) == BH_OK; i++)
        bench_declare_one(connection, &each);
}

void bench_delete_one(amqp_connection_state_t connection, const bh_declaration *it)
{
    amqp_bytes_t name = bh__to_amqp(it->name);
    if (it->kind == BH_DECLARE_BINDING)
        return;
    if (it->kind == BH_DECLARE_QUEUE)
        amqp_queue_delete(connection, BENCH_CHANNEL, name, 0, 0);
    else
        amqp_exchange_delete(connection, BENCH_CHANNEL, name, 0);
    bench_need_reply(amqp_get_rpc_reply(connection), "deleting");
    amqp_maybe_release_buffers(connection);
}

void bench_delete(amqp_connection_state_t connection, const bh_topology *topology)
{
    bh_declaration each;
    for (size_t i = 0; bh_topology_declaration(topology, i, &each) == BH_OK; i++)
        bench_delete_one(connection, &each);
}

/* ------------------------------------------------------------------------------------- confirms */

void bench_window_done(bench_window *self, uint64_t number)
{
    self->is_done[number % BENCH_WINDOW] = 1;
    while (self->is_done[(self->low + 1) % BENCH_WINDOW])
        self->is_done[++self->low % BENCH_WINDOW] = 0;
}

void bench_read_confirm(amqp_connection_state_t connection, bench_window *confirms)
{
    amqp_frame_t frame;
    bench_need_sent(amqp_simple_wait_frame(connection, &frame), "waiting for a confirm");
    if (frame.frame_type != AMQP_FRAME_METHOD)
        bench_fail("a frame of type %d instead of a confirm", frame.frame_type);
    if (frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
        bench_fail("%s instead of a confirm", amqp_method_name(frame.payload.method.id));
    const amqp_basic_ack_t *ack = frame.payload.method.decoded;
    if (!ack->multiple)
        bench_window_done(confirms, ack->delivery_tag);
    while (ack->multiple && confirms->low < ack->delivery_tag)
        bench_window_done(confirms, confirms->low + 1);
    amqp_maybe_release_buffers(connection);
}

/* -------------------------------------------------------------------------------------- results */

bench_sample *bench_samples(int count)
{
    bench_sample *samples = calloc((size_t)count, sizeof *samples);
    if (!samples)
        bench_fail("no memory for %d samples", count);
    return samples;
}

bench_sample *bench_sample_of(bench_sample *samples, int count, const char *body)
{
    long number = strtol(body, NULL, 10);
    if (number < 0 || number >= count)
        bench_fail("a message has the number %ld; there are %d", number, count);
    return &samples[number];
}

void bench_sample_back(bench_sample *self, double delay_ms)
{
    if (self->is_back)
        bench_fail("a message came back twice");
    self->is_back = 1;
    self->delay_ms = delay_ms;
    self->late_ms = bench_now_ms() - self->failed_ms - delay_ms;
}

/* The most memory that this process had at a time, in KiB. */
static long peak_kib(void)
{
    long kib = 0;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "VmHWM:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    if (status)
        fclose(status);
    return kib;
}

void bench_print(int messages, double ms, double used_ms, const bench_sample *samples)
{
    printf("{\"messages\": %d, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"peak_kib\": %ld", messages, ms / 1e3,
           used_ms / 1e3, peak_kib());
    if (samples)
        printf(", \"delay_and_lateness_ms\": [");
    for (int i = 0; samples && i < messages; i++)
        printf("%s[%.0f, %.3f]", i ? ", " : "", samples[i].delay_ms, samples[i].late_ms);
    puts(samples ? "]}" : "}");
}
