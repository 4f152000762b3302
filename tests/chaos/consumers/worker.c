/* chaos-worker QUEUE JOURNAL URL...: consumes with the worker, which goes on with the next node if
 * one is lost. */
#include "../../policies.h"
#include "../../reading.h"
#include <backhop/adapter.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int journal;
static bh_delivery *delivery;
static bh_history *history;

/* Writes a line at once: a process may be killed between two lines, not inside of one. */
__attribute__((format(printf, 1, 2))) static void write_line(const char *format, ...)
{
    char line[1024];
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    int length = snprintf(line, sizeof line, "%lld", (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length, format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof line || write(journal, line, (size_t)length) != length)
        abort();
}

/* Fails as often as the body's second word says. */
static bh_outcome handle(bh_worker *worker, bh_message *message, void *data)
{
    (void)data;
    if (bh_worker_read(worker, message, delivery, history) != BH_OK)
        abort();
    bh_bytes body = bh_message_body(message), key = past_of(history).routing_key,
             mark = header_of(delivery, bh_str("x-mark")).string,
             id = bh_delivery_property(delivery, BH_PROPERTY_MESSAGE_ID);
    char text[256] = "";

    memcpy(text, body.data, body.size < sizeof text ? body.size : sizeof text - 1);
    const char *space = strchr(text, ' ');
    int64_t attempt = bh_worker_attempt(worker, message), delay_ms = past_of(history).last_delay_ms;
    int fails = space && attempt <= strtol(space, NULL, 10);
    write_line("\t%s\t%" PRId64 "\t%" PRId64 "\t%.*s\t%.*s\t%.*s\t%s\n", fails ? "failed" : "done", attempt,
               delay_ms > 0 ? delay_ms : 0, (int)key.size, key.data, (int)mark.size, mark.data, (int)id.size, id.data,
               text);
    if (!fails)
        return BH_OUTCOME_OK;
    bh_settlement failed = {.outcome = BH_OUTCOME_FAILED, .error = bh_str("507 queue is full")};
    bh_worker_settle(worker, message, &failed);
    return BH_OUTCOME_FAILED;
}

static void listen_to(bh_worker *worker, const bh_event *event, void *data)
{
    (void)worker;
    (void)data;
    time_t now = time(NULL);
    char at[16];

    strftime(at, sizeof at, "%H:%M:%S", localtime(&now));
    fprintf(stderr, "%s %s: %s\n", at, bh_event_name(bh_event_what(event)).data, bh_event_text(event).data);
    if (bh_event_what(event) == BH_EVENT_CONNECTED)
        write_line("\tconnected\t%s\n", bh_event_text(event).data);
    if (bh_event_what(event) == BH_EVENT_REPLAYED)
        write_line("\treturned\t%" PRId64 "\n", bh_event_int(event, BH_FIELD_COUNT));
}

int main(int count, char **arguments)
{
    bh_policy *policy;
    bh_topology *topology;
    bh_worker *worker;

    if (count < 4 || bh_policy_new(&policy) != BH_OK || bh_topology_new(&topology, bh_str(arguments[1])) != BH_OK ||
        bh_delivery_new(&delivery) != BH_OK || bh_history_new(&history) != BH_OK)
        return EXIT_FAILURE;
    policy_set_initial_ms(policy, 300);
    policy_set_factor(policy, 2);
    policy_set_max_ms(policy, 3000);
    policy_set_max_attempts(policy, 5);
    policy_set_max_crashes(policy, 0);
    if (bh_topology_build(topology, policy) != BH_OK || bh_worker_new(&worker, policy, topology) != BH_OK)
        return EXIT_FAILURE;
    bh_worker_settings settings;
    bh_worker_defaults(&settings);
    settings.prefetch = atoi(getenv("BACKHOP_CHAOS_PREFETCH"));
    settings.connect_timeout_ms = 5000;
    if (bh_worker_set(worker, &settings) != BH_OK)
        return EXIT_FAILURE;
    for (int i = 3; i < count; i++) {
        char uri[256];

        snprintf(uri, sizeof uri, "%s?heartbeat=5", arguments[i]);
        if (bh_worker_add_uri(worker, bh_str(uri)) != BH_OK)
            return EXIT_FAILURE;
    }
    journal = open(arguments[2], O_WRONLY | O_APPEND | O_CREAT, 0644);
    if (journal < 0 || bh_worker_run(worker, handle, listen_to, NULL) != BH_OK) {
        fprintf(stderr, "chaos-worker: %s\n", bh_worker_error(worker).data);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
