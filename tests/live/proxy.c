#include "proxy.h"

#include "broker.h"

#include <arpa/inet.h>
#include <check.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_CONNECTIONS = 16, TICK_MS = 5, BUFFER = 65536 };

struct proxy {
    pthread_t thread;
    int listener;
    int port;
    int broker_port;
    char broker_host[256];
    atomic_int held, cut, end;
    int clients[MOST_CONNECTIONS], brokers[MOST_CONNECTIONS]; /* -1: none; the thread's alone */
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

static void end_connection(proxy *self, int i)
{
    reset(self->clients[i]);
    reset(self->brokers[i]);
    self->clients[i] = self->brokers[i] = -1;
}

static void accept_connection(proxy *self)
{
    int client = accept(self->listener, NULL, NULL);
    if (client < 0)
        return;
    int upstream = connect_broker(self);
    for (int i = 0; i < MOST_CONNECTIONS && upstream >= 0; i++)
        if (self->clients[i] < 0) {
            self->clients[i] = client;
            self->brokers[i] = upstream;
            return;
        }
    reset(client);
    if (upstream >= 0)
        close(upstream);
}

/* Moves what is there; 0 where the connection has ended. */
static int pass_on(int from, int to)
{
    static char buffer[BUFFER];
    ssize_t size = recv(from, buffer, sizeof buffer, 0);
    for (ssize_t sent = 0; sent < size;) {
        ssize_t now = send(to, buffer + sent, (size_t)(size - sent), MSG_NOSIGNAL);
        if (now <= 0)
            return 0;
        sent += now;
    }
    return size > 0;
}

static void *serve(void *data)
{
    proxy *self = data;
    while (!self->end) {
        struct pollfd fds[1 + 2 * MOST_CONNECTIONS];
        fds[0] = (struct pollfd){self->listener, POLLIN, 0};
        for (int i = 0; i < MOST_CONNECTIONS; i++) {
            fds[1 + 2 * i] = (struct pollfd){self->clients[i], POLLIN, 0};
            fds[2 + 2 * i] = (struct pollfd){self->held >> i & 1 ? -1 : self->brokers[i], POLLIN, 0};
        }
        poll(fds, sizeof fds / sizeof fds[0], TICK_MS);
        for (int i = 0; i < MOST_CONNECTIONS; i++) {
            if (self->clients[i] < 0)
                continue;
            int is_alive = 1;
            if (fds[1 + 2 * i].revents)
                is_alive = pass_on(self->clients[i], self->brokers[i]);
            if (is_alive && fds[2 + 2 * i].revents)
                is_alive = pass_on(self->brokers[i], self->clients[i]);
            if (!is_alive || self->cut)
                end_connection(self, i);
        }
        self->cut = 0;
        if (fds[0].revents)
            accept_connection(self);
    }
    for (int i = 0; i < MOST_CONNECTIONS; i++)
        if (self->clients[i] >= 0)
            end_connection(self, i);
    close(self->listener);
    return NULL;
}

proxy *proxy_open(const char *address, int port)
{
    proxy *self = calloc(1, sizeof *self);
    ck_assert_ptr_nonnull(self);
    for (int i = 0; i < MOST_CONNECTIONS; i++)
        self->clients[i] = self->brokers[i] = -1;
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

void proxy_hold_broker(proxy *self, int connections)
{
    self->held = connections;
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
