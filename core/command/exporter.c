/*
 * backhop exporter: depths for Prometheus, over HTTP.
 *
 * It answers GET /metrics and nothing else, one request a connection, so that it needs no library: the request is read up to its
 * empty line, bounded in bytes and time, and only its first line counts.
 */
#include "command.h"
#include "depths.h"
#include "management.h"
#include "output.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

enum { MOST_REQUEST = 8192, REQUEST_MS = 2000, AGAIN_MS = 2000, POLL_MS = 1000 };

typedef struct exporter {
    broker_options broker;
    topology_options topology;
    policy_options policy;
    const char *listen;
    management *management; /* NULL: the queues are those that were named */
    queue_names queues;
    depths seen;
    connection *connection; /* NULL: none now */
    int64_t retry_ms;       /* monotonic: when to connect again */
    int socket;
} exporter;

/* A label's value: backslash, quotation mark and line feed escaped, as Prometheus' text format 0.0.4 has it. */
static void print_label(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            fputc('\\', out);
        fputs(*text == '\n' ? "\\n" : (char[]){*text, '\0'}, out);
    }
}

static void print_family(const exporter *self, FILE *out, depth_kind kind, const char *name, const char *help)
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
        fprintf(out, "\"} %lld\n", (long long)each->ready);
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

/* Finds the queues that there are now; where the management API does not answer, those that were found last stay. EX_OK, or the exit code. */
static int find_queues(exporter *self)
{
    queue_names found;
    int code = management_find_queues(self->management, &found);
    if (code != EX_OK)
        return code;
    int is_changed = !is_same(&found, &self->queues);
    queue_names_free(&self->queues);
    self->queues = found;
    if (is_changed)
        plan_queues(self);
    return EX_OK;
}

/* Looks, and writes what there is; backhop_up is 0 where the broker cannot be reached. */
static void print_metrics(exporter *self, FILE *out)
{
    if (self->management)
        find_queues(self);
    if (!self->connection && bh__monotonic_ms() >= self->retry_ms &&
        connection_open(&self->connection, &self->broker, "exporter"))
        self->retry_ms = bh__monotonic_ms() + AGAIN_MS;
    if (self->connection && depths_read(&self->seen, self->connection) != BH_OK) {
        connection_complain(self->connection);
        connection_close(self->connection);
        self->connection = NULL;
    }
    fprintf(out, "# HELP backhop_up Whether the broker can be reached.\n# TYPE backhop_up gauge\nbackhop_up %d\n",
            self->connection != NULL);
    if (!self->connection)
        return;
    print_family(self, out, DEPTH_WAITING, "backhop_waiting_messages",
                 "Messages that wait for their next attempt, by delay in seconds.");
    print_family(self, out, DEPTH_PARKED, "backhop_parked_messages", "Messages of a work queue that are parked.");
    print_family(self, out, DEPTH_UNROUTABLE, "backhop_unroutable_messages", "Messages whose work queue was gone.");
    print_family(self, out, DEPTH_WORK, "backhop_ready_messages", "Messages that are ready in a work queue.");
}

static void send_all(int client, const char *data, size_t size)
{
    struct pollfd polled = {.fd = client, .events = POLLOUT};
    while (size > 0 && poll(&polled, 1, REQUEST_MS) > 0) {
        ssize_t sent = send(client, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0)
            return;
        data += sent;
        size -= (size_t)sent;
    }
}

static void answer(int client, const char *status, const char *type, const char *body, size_t size)
{
    char head[256];
    int length = snprintf(head, sizeof head,
                          "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", status,
                          type, size);
    send_all(client, head, (size_t)length);
    send_all(client, body, size);
}

/* Reads a request's head; false where none comes. */
static int read_request(int client, char request[MOST_REQUEST + 1])
{
    int64_t until_ms = bh__monotonic_ms() + REQUEST_MS;
    struct pollfd polled = {.fd = client, .events = POLLIN};
    size_t used = 0;
    while (used < MOST_REQUEST) {
        int64_t left_ms = until_ms - bh__monotonic_ms();
        if (left_ms <= 0 || poll(&polled, 1, (int)left_ms) <= 0)
            return 0;
        ssize_t got = recv(client, request + used, MOST_REQUEST - used, MSG_DONTWAIT);
        if (got <= 0)
            return 0;
        used += (size_t)got;
        request[used] = '\0';
        if (strstr(request, "\r\n\r\n"))
            return 1;
    }
    return 0;
}

static void serve(exporter *self, int client)
{
    char request[MOST_REQUEST + 1];
    char *body = NULL;
    size_t size = 0;
    if (!read_request(client, request))
        return;
    if (strncmp(request, "GET /metrics ", 13) != 0 && strncmp(request, "GET /metrics?", 13) != 0) {
        static const char none[] = "there is /metrics alone\n";
        answer(client, "404 Not Found", "text/plain", none, sizeof none - 1);
        return;
    }
    FILE *out = must(open_memstream(&body, &size));
    print_metrics(self, out);
    fclose(out);
    answer(client, "200 OK", "text/plain; version=0.0.4; charset=utf-8", body, size);
    free(body);
}

/* host:port, [address]:port, or :port for this machine alone. */
static int open_listener(exporter *self)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char host[256] = "";
    const char *colon = strrchr(self->listen, ':');
    int on = 1;
    if (!colon || !colon[1] || (size_t)(colon - self->listen) >= sizeof host)
        options_refuse("--listen: '%s' is no host:port, as 127.0.0.1:9419", self->listen);
    const char *begin = *self->listen == '[' ? self->listen + 1 : self->listen;
    snprintf(host, sizeof host, "%.*s", (int)(colon - begin - (begin != self->listen)), begin);
    int error = getaddrinfo(*host ? host : "127.0.0.1", colon + 1, &hints, &found);
    self->socket = error ? -1 : socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
    if (self->socket >= 0)
        setsockopt(self->socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    int is_open = self->socket >= 0 && bind(self->socket, found->ai_addr, found->ai_addrlen) == 0 &&
                  listen(self->socket, 16) == 0;
    if (!is_open)
        complain("cannot listen at %s: %s", self->listen, error ? gai_strerror(error) : strerror(errno));
    if (found)
        freeaddrinfo(found);
    return is_open;
}

static void tell_address(const exporter *self)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[128], port[16];
    if (getsockname(self->socket, (struct sockaddr *)&address, &size) == 0 &&
        getnameinfo((struct sockaddr *)&address, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        complain("metrics at http://%s%s%s:%s/metrics", strchr(host, ':') ? "[" : "", host,
                 strchr(host, ':') ? "]" : "", port);
}

static void run(exporter *self)
{
    while (!is_interrupted()) {
        struct pollfd polled[] = {{.fd = self->socket, .events = POLLIN},
                                  {.fd = self->connection ? self->connection->link.socket.fd : -1, .events = POLLIN}};
        if (poll(polled, 2, POLL_MS) > 0 && polled[0].revents) {
            int client = accept4(self->socket, NULL, NULL, SOCK_CLOEXEC);
            if (client >= 0) {
                serve(self, client);
                close(client);
            }
        }
        if (self->connection && connection_pump(self->connection, bh__monotonic_ms()) != BH_OK) { /* heartbeats */
            connection_complain(self->connection);
            connection_close(self->connection);
            self->connection = NULL;
        }
    }
}

int exporter_main(int count, char **arguments)
{
    exporter self = {.listen = "127.0.0.1:9419", .retry_ms = INT64_MIN, .socket = -1};
    const char *api = NULL;
    const option_rule rules[] = {
        {"listen", 'l', OPTION_TEXT, "HOST:PORT", "where to answer; port 0: any [127.0.0.1:9419]", &self.listen},
        WAIT_OPTIONS(&self.policy, &self.topology),
        MANAGEMENT_OPTION(&api),
        BROKER_OPTIONS(&self.broker),
    };
    int at = options_read(
        count, arguments, rules, sizeof rules / sizeof rules[0], "[QUEUE...]",
        "Serves Prometheus, at /metrics: backhop_waiting_messages{delay,queue}, by wait queue; "
        "backhop_parked_messages{queue} and backhop_ready_messages{queue}, by work queue; backhop_unroutable_messages; "
        "and backhop_up. Looks when it is asked; where no queue is named, at those that there are then.\n");
    catch_interrupts();
    int code = EX_OK;
    if (at < count || !api)
        code = management_name_queues(&self.queues, NULL, &self.broker, count - at, arguments + at);
    else
        code = management_open(&self.management, api, &self.broker);
    if (code == EX_OK && self.management)
        code = find_queues(&self);
    if (code == EX_OK && !self.management)
        plan_queues(&self);
    if (code == EX_OK && !open_listener(&self))
        code = EX_UNAVAILABLE;
    if (code == EX_OK) {
        tell_address(&self);
        run(&self);
    }
    if (self.socket >= 0)
        close(self.socket);
    connection_close(self.connection);
    management_close(self.management);
    queue_names_free(&self.queues);
    depths_free(&self.seen);
    return output_end(code);
}
