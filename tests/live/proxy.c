#include "proxy.h"

#include "rig.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_CONNECTIONS = 16, TICK_MS = 5, BUFFER = 65536, NO_LIMIT = -1 };
enum { CLIENT, BROKER };

typedef struct tunnel {
    int ends[2]; /* sockets of client and broker; -1: none */
    int is;      /* PROXY_CONSUMER, PROXY_PUBLISHER; PROXY_NONE until it has said its name */
} tunnel;

struct proxy {
    pthread_t thread;
    int listener;
    int port;
    int broker_port;
    char broker_host[256];
    atomic_int held, cut, end, cut_count;
    _Atomic(const char *) marker;
    _Atomic(const char *) name;       /* at which to begin to hold; NULL: none */
    atomic_int has_answer;            /* that is held */
    atomic_int limits[2][PROXY_ALL];  /* bytes that may still come from client or broker of each connection */
    tunnel tunnels[MOST_CONNECTIONS]; /* the thread's alone, as is the buffer */
    char buffer[BUFFER];
};

static int connect_broker(const proxy *self)
{
    char port[16];
    snprintf(port, sizeof port, "%d", self->broker_port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo(self->broker_host, port, &hints, &found) != 0)
        return -1;
    int fd = -1;
    for (struct addrinfo *each = found; each && fd < 0; each = each->ai_next) {
        fd = socket(each->ai_family, SOCK_STREAM, 0);
        if (fd >= 0 && connect(fd, each->ai_addr, each->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

static void reset(int fd)
{
    struct linger at_once = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

static void end_tunnel(tunnel *self)
{
    reset(self->ends[CLIENT]);
    reset(self->ends[BROKER]);
    *self = (tunnel){{-1, -1}, PROXY_NONE};
}

static void accept_connection(proxy *self)
{
    int client = accept(self->listener, NULL, NULL);
    if (client < 0)
        return;
    int upstream = connect_broker(self);
    for (int i = 0; i < MOST_CONNECTIONS && upstream >= 0; i++)
        if (self->tunnels[i].ends[CLIENT] < 0) {
            self->tunnels[i] = (tunnel){{client, upstream}, PROXY_NONE};
            return;
        }
    reset(client);
    if (upstream >= 0)
        close(upstream);
}

/* A worker's connection_name is among the first things that it sends. */
static void recognize(tunnel *self, const char *bytes, size_t size)
{
    if (holds((bh_bytes){bytes, size}, "backhop consume"))
        self->is = PROXY_CONSUMER;
    else if (holds((bh_bytes){bytes, size}, "backhop publish"))
        self->is = PROXY_PUBLISHER;
}

/* How many of the bytes that came from `side` may go on. */
static ssize_t allow(proxy *self, const tunnel *way, int side, ssize_t size)
{
    atomic_int *limit = &self->limits[side][way->is];
    if (way->is == PROXY_NONE || *limit == NO_LIMIT)
        return size;
    ssize_t allowed = *limit < size ? *limit : size;
    *limit -= (int)allowed;
    return allowed;
}

/* Moves the bytes that have come from `side`; returns 0 if the connection has ended. */
static int pass_on(proxy *self, tunnel *way, int side)
{
    ssize_t size = recv(way->ends[side], self->buffer, sizeof self->buffer, 0);
    if (size <= 0)
        return 0;
    if (side == CLIENT && way->is == PROXY_NONE)
        recognize(way, self->buffer, (size_t)size);
    const char *name = self->name, *marker = self->marker;
    if (side == CLIENT && marker && holds((bh_bytes){self->buffer, (size_t)size}, marker)) {
        self->cut_count++;
        return 0;
    }
    if (side == CLIENT && name && holds((bh_bytes){self->buffer, (size_t)size}, name)) {
        self->name = NULL;
        self->held = PROXY_ALL;
    }
    ssize_t allowed = allow(self, way, side, size);
    for (ssize_t sent = 0; sent < allowed;) {
        ssize_t now = send(way->ends[!side], self->buffer + sent, (size_t)(allowed - sent), MSG_NOSIGNAL);
        if (now <= 0)
            return 0;
        sent += now;
    }
    if (allowed < size)
        self->limits[side][way->is] = NO_LIMIT; /* the next connection is whole */
    return allowed == size;
}

static int is_held(const proxy *self, const tunnel *way)
{
    return self->held == PROXY_ALL || (self->held & way->is);
}

static void *serve(void *data)
{
    proxy *self = data;
    while (!self->end) {
        struct pollfd fds[1 + 2 * MOST_CONNECTIONS];
        fds[0] = (struct pollfd){self->listener, POLLIN, 0};
        for (int i = 0; i < MOST_CONNECTIONS; i++) {
            const tunnel *way = &self->tunnels[i];
            fds[1 + 2 * i] = (struct pollfd){way->ends[CLIENT], POLLIN, 0};
            fds[2 + 2 * i] = (struct pollfd){is_held(self, way) ? -1 : way->ends[BROKER], POLLIN, 0};
            struct pollfd answer = {is_held(self, way) ? way->ends[BROKER] : -1, POLLIN, 0};
            if (poll(&answer, 1, 0) > 0)
                self->has_answer = 1;
        }
        poll(fds, sizeof fds / sizeof fds[0], TICK_MS);
        const int is_cut = self->cut; /* of all connections, even while this loop runs */
        for (int i = 0; i < MOST_CONNECTIONS; i++) {
            tunnel *way = &self->tunnels[i];
            if (way->ends[CLIENT] < 0)
                continue;
            int is_alive = 1;
            if (fds[1 + 2 * i].revents)
                is_alive = pass_on(self, way, CLIENT);
            if (is_alive && fds[2 + 2 * i].revents && !is_held(self, way))
                is_alive = pass_on(self, way, BROKER);
            if (!is_alive || is_cut)
                end_tunnel(way);
        }
        if (is_cut)
            self->cut = 0;
        if (fds[0].revents)
            accept_connection(self);
    }
    for (int i = 0; i < MOST_CONNECTIONS; i++)
        if (self->tunnels[i].ends[CLIENT] >= 0)
            end_tunnel(&self->tunnels[i]);
    close(self->listener);
    return NULL;
}

proxy *proxy_open(const char *address, int port)
{
    proxy *self = calloc(1, sizeof *self);
    ck_assert_ptr_nonnull(self);
    for (int i = 0; i < MOST_CONNECTIONS; i++)
        self->tunnels[i] = (tunnel){{-1, -1}, PROXY_NONE};
    for (int i = 0; i < PROXY_ALL; i++)
        self->limits[CLIENT][i] = self->limits[BROKER][i] = NO_LIMIT;
    self->broker_port = port;
    snprintf(self->broker_host, sizeof self->broker_host, "%s", broker_host());

    struct sockaddr_in own = {.sin_family = AF_INET};
    socklen_t size = sizeof own;
    ck_assert_int_eq(inet_pton(AF_INET, address, &own.sin_addr), 1);
    self->listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_ge(self->listener, 0);
    ck_assert_int_eq(bind(self->listener, (struct sockaddr *)&own, sizeof own), 0);
    ck_assert_int_eq(listen(self->listener, 8), 0);
    ck_assert_int_eq(getsockname(self->listener, (struct sockaddr *)&own, &size), 0);
    self->port = ntohs(own.sin_port);
    ck_assert_int_eq(pthread_create(&self->thread, NULL, serve, self), 0);
    return self;
}

int proxy_port(const proxy *self)
{
    return self->port;
}

void proxy_cut_on(proxy *self, const char *marker)
{
    self->marker = marker;
}

int proxy_cut_count(const proxy *self)
{
    return self->cut_count;
}

void proxy_hold_broker(proxy *self, int connections)
{
    self->held = connections;
}

void proxy_hold_answer_to(proxy *self, const char *name)
{
    self->has_answer = 0;
    self->name = name;
}

void proxy_await_answer(proxy *self)
{
    for (int64_t end = now_ms() + LIMIT_MS; !self->has_answer && now_ms() < end;)
        pause_ms(TICK_MS);
    ck_assert_msg(self->has_answer, "the broker was not asked, or gave no answer, within %d ms", LIMIT_MS);
}

void proxy_cut_to_broker(proxy *self, int connection, int bytes)
{
    self->limits[CLIENT][connection] = bytes;
}

void proxy_cut(proxy *self)
{
    self->cut = 1;
    while (self->cut)
        pause_ms(1);
}

void proxy_close(proxy *self)
{
    self->end = 1;
    pthread_join(self->thread, NULL);
    free(self);
}
