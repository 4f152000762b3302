/* backhop exporter: depths for Prometheus, over HTTP. */
#include "common/command.h"
#include "observe/answers.h"
#include "observe/depths.h"
#include "observe/listing.h"
#include "common/management.h"
#include "common/output.h"
#include "web/server.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { AGAIN_MS = 2000, POLL_MS = 1000, REQUEST_MS = 2000 };

static const char path[] = "/metrics", type[] = "text/plain; version=0.0.4; charset=utf-8";

typedef struct exporter {
    broker_options broker;
    topology_options topology;
    policy_options policy;
    management *management; /* NULL: not offered */
    listing *listing;       /* NULL: no management API */
    int finds_queues;       /* 0: only the queues of the operands */
    queue_names queues;
    depths seen;
    connection *connection; /* NULL: none now */
    answers answers;        /* of that connection */
    int64_t retry_ms;       /* monotonic: when to connect again */
    server *server;
} exporter;

/* A label's value: backslash, quotation mark and line feed escaped, as Prometheus' text format
 * 0.0.4 has it. */
static void print_label(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            fputc('\\', out);
        fputs(*text == '\n' ? "\\n" : (char[]){*text, '\0'}, out);
    }
}

static int64_t ready_of(const depth *it)
{
    return it->ready;
}

static int64_t overdue_of(const depth *it)
{
    return it->late;
}

static void print_family(const exporter *self, FILE *out, depth_kind kind, const char *name, const char *help,
                         int64_t (*value)(const depth *it))
{
    fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
    for (size_t i = 0; i < self->seen.count; i++) {
        const depth *each = &self->seen.items[i];
        if (each->kind != kind || each->ready < 0)
            continue;
        fprintf(out, "%s{", name);
        if (kind == DEPTH_WAITING)
            fprintf(out, "delay=\"%g\",", (double)each->wait_ms / 1000);
        fprintf(out, "queue=\"");
        print_label(out, *each->work_queue ? each->work_queue : each->name);
        fprintf(out, "\"} %lld\n", (long long)value(each));
    }
}

static void print_consumers(const exporter *self, FILE *out)
{
    fprintf(out, "# HELP backhop_consumers Consumers of a work queue.\n# TYPE backhop_consumers gauge\n");
    for (size_t i = 0; i < self->seen.count; i++) {
        const depth *each = &self->seen.items[i];
        if (each->kind != DEPTH_WORK || each->consumers < 0)
            continue;
        fprintf(out, "backhop_consumers{queue=\"");
        print_label(out, each->name);
        fprintf(out, "\"} %lld\n", (long long)each->consumers);
    }
}

static void plan_queues(exporter *self)
{
    depths_free(&self->seen);
    depths_plan(&self->seen, &self->topology, &self->policy, self->queues.items, self->queues.count);
}

static int is_same(const queue_names *one, const queue_names *other)
{
    int i = 0;
    while (i < one->count && i < other->count && strcmp(one->items[i], other->items[i]) == 0)
        i++;
    return i == one->count && i == other->count;
}

/* Takes the queues that were found. Returns 1 if they are others than before. */
static int take_queues(exporter *self, queue_names *found)
{
    int is_changed = !is_same(found, &self->queues);
    queue_names_free(&self->queues);
    self->queues = *found;
    *found = (queue_names){.items = NULL};
    if (is_changed)
        plan_queues(self);
    return is_changed;
}

/* Finds the queues at the start. Returns EX_OK or the exit code. */
static int find_queues(exporter *self)
{
    queue_names found;
    int code = management_find_queues(self->management, &found);
    if (code == EX_OK)
        take_queues(self, &found);
    return code;
}

/* Finds the queues of this moment. If the management API does not answer, the list stays. Returns 1
 * if it changed. */
static int update_queues(exporter *self)
{
    listed found;
    if (!self->listing || !listing_ask(self->listing, self->finds_queues, depths_wanted(&self->seen), &found))
        return 0;
    int is_changed = found.has_work && take_queues(self, &found.work);
    if (found.has_waiting)
        depths_add_waiting(&self->seen, &found.waiting);
    listed_free(&found);
    return is_changed;
}

static void disconnect(exporter *self)
{
    connection_complain(self->connection);
    connection_close(self->connection);
    self->connection = NULL;
}

static void connect_to_broker(exporter *self)
{
    if (connection_open(&self->connection, &self->broker, "exporter") == EX_OK)
        answers_begin(&self->answers, self->connection);
    else
        self->retry_ms = bh__monotonic_ms() + AGAIN_MS;
}

/* Reads the depths. Returns 0 without a connection, and if the broker does not answer: the depths
 * then are stale. */
static int look(exporter *self)
{
    if (!self->connection && bh__monotonic_ms() >= self->retry_ms)
        connect_to_broker(self);
    if (!self->connection)
        return 0;
    answers_request(&self->answers, &self->seen);
    bh_status status = answers_wait(&self->answers, bh__monotonic_ms() + ANSWERS_LATE_MS);
    if (status == BH_OK && answers_silence_ms(&self->answers))
        return 0;
    if (status == BH_OK)
        status = depths_read(&self->seen, self->connection);
    if (status != BH_OK)
        disconnect(self);
    return status == BH_OK;
}

/* Looks, and writes what there is; backhop_up is 0 if the broker does not answer, and nothing else
 * is written. */
static void print_metrics(exporter *self, FILE *out)
{
    if (update_queues(self))
        update_queues(self); /* the first work queue names the wait queues */
    int is_up = look(self);
    fprintf(out, "# HELP backhop_up Whether the broker answers.\n# TYPE backhop_up gauge\nbackhop_up %d\n", is_up);
    if (!is_up)
        return;
    print_family(self, out, DEPTH_WAITING, "backhop_waiting_messages",
                 "Messages that wait for their next attempt, by delay in seconds.", ready_of);
    print_family(self, out, DEPTH_WAITING, "backhop_overdue_messages",
                 "Messages that a wait queue holds for longer than its TTL and a minute.", overdue_of);
    print_family(self, out, DEPTH_PARKED, "backhop_parked_messages", "Messages of a work queue that are parked.",
                 ready_of);
    print_family(self, out, DEPTH_UNROUTABLE, "backhop_unroutable_messages", "Messages whose work queue was gone.",
                 ready_of);
    print_family(self, out, DEPTH_WORK, "backhop_ready_messages", "Messages that are ready in a work queue.", ready_of);
    print_consumers(self, out);
}

static void answer_metrics(exporter *self, request *it)
{
    char *body = NULL;
    size_t size = 0;
    FILE *out = must(open_memstream(&body, &size));
    print_metrics(self, out);
    fclose(out);
    request_answer(it, 200, type, body, size);
    free(body);
}

static void handle(void *data, request *it)
{
    static const char other[] = "there is /metrics alone\n";
    const char *method = request_method(it);
    int is_read = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    if (is_read && strcmp(request_path(it), path) == 0)
        answer_metrics(data, it);
    else
        request_answer(it, 404, "text/plain", other, sizeof other - 1);
}

static void run(exporter *self)
{
    while (!is_interrupted()) {
        struct pollfd broker = {.fd = self->connection ? self->connection->link.socket.fd : -1, .events = POLLIN};
        server_poll(self->server, &broker, 1, POLL_MS);
        if (self->connection && connection_pump(self->connection, bh__monotonic_ms()) != BH_OK) /* heartbeats */
            disconnect(self);
    }
}

/* Listens, and serves until it is interrupted. */
static int serve(exporter *self, const server_settings *settings)
{
    char url[300];
    if (!server_open(&self->server, settings))
        return EX_UNAVAILABLE;
    server_url(self->server, url);
    complain("metrics at %s%s", url, path);
    run(self);
    return EX_OK;
}

int exporter_main(int count, char **arguments)
{
    exporter self = {.retry_ms = INT64_MIN};
    server_settings settings = {.address = "127.0.0.1:9419", .request_ms = REQUEST_MS, .handle = handle, .data = &self};
    const char *api = NULL;
    const option_rule rules[] = {
        {"listen", 'l', OPTION_TEXT, "HOST:PORT", "where to answer; port 0: any [127.0.0.1:9419]", &settings.address},
        {"host", 0, OPTION_TEXTS, "NAME", "a name that requests may have in Host, besides addresses", &settings.hosts},
        WAIT_OPTIONS(&self.policy, &self.topology),
        MANAGEMENT_OPTION(&api),
        BROKER_OPTIONS(&self.broker),
    };
    int at = options_read(
        count, arguments, rules, sizeof rules / sizeof rules[0], "[QUEUE...]",
        "Serves Prometheus, at /metrics: backhop_waiting_messages{delay,queue} and "
        "backhop_overdue_messages{delay,queue}, by wait queue; "
        "backhop_parked_messages{queue} and backhop_ready_messages{queue}, by work queue; backhop_unroutable_messages; "
        "backhop_consumers{queue}; and backhop_up. Reads the broker at each request. "
        "Without a queue name it reads each queue that has a parked queue.\n");
    catch_interrupts();
    api = management_url(api);
    int code = EX_OK;
    self.finds_queues = at == count && api;
    if (!self.finds_queues)
        code = management_name_queues(&self.queues, NULL, &self.broker, count - at, arguments + at);
    int opened = api ? management_open(&self.management, api, &self.broker) : EX_OK;
    if (self.finds_queues)
        code = opened == EX_OK ? find_queues(&self) : opened;
    else if (code == EX_OK)
        plan_queues(&self);
    if (code == EX_OK && self.management && !listing_open(&self.listing, self.management))
        code = EX_OSERR;
    if (code == EX_OK)
        code = serve(&self, &settings);
    server_close(self.server);
    listing_close(self.listing);
    texts_free(&settings.hosts);
    connection_close(self.connection);
    management_close(self.management);
    queue_names_free(&self.queues);
    depths_free(&self.seen);
    return output_end(code);
}
