#include "web/server.h"

#include "web/access.h"
#include "web/listening.h"
#include "web/requests.h"

#include "common/output.h"

#include "worker/wire/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    POOL_BYTES = 3 * SERVER_MOST_HEAD, /* of a connection: head and answer's head */
    IDLE_S = 30,                       /* no byte in or out for so long ends a connection */
    SPARE_CLIENTS = 4,                 /* connections that end while new ones come */
    ACCEPT_AGAIN_MS = 1000             /* after the system had no more descriptors or memory for a connection */
};

/* -------------------------------------------------------------------------------------- clients */

static client *find_free(server *self)
{
    for (size_t i = 0; i < SERVER_MOST_CLIENTS; i++)
        if (self->clients[i].fd < 0)
            return &self->clients[i];
    return NULL;
}

/* Ends the connection that has taken longest to send a request, or to read an answer. */
static client *replace_oldest(server *self)
{
    client *oldest = NULL;
    for (size_t i = 0; i < SERVER_MOST_CLIENTS; i++) {
        client *each = &self->clients[i];
        if ((each->is_arriving || each->is_answered) && (!oldest || each->since_ms < oldest->since_ms))
            oldest = each;
    }
    if (oldest)
        shutdown(oldest->fd, SHUT_RDWR);
    return oldest;
}

static void end_late(server *self, int64_t now_ms)
{
    for (size_t i = 0; i < SERVER_MOST_CLIENTS; i++) {
        client *each = &self->clients[i];
        if (each->fd >= 0 && each->is_arriving && now_ms - each->since_ms >= self->settings->request_ms)
            shutdown(each->fd, SHUT_RDWR);
    }
}

static void accept_client(server *self)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    client *place = find_free(self);
    if (!place && replace_oldest(self)) {
        MHD_run(self->daemon); /* which closes it */
        place = find_free(self);
    }
    int fd = accept4(self->socket, (struct sockaddr *)&address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) { /* the connection waits, and the socket stays readable */
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            self->accept_ms = bh__monotonic_ms() + ACCEPT_AGAIN_MS;
        return;
    }
    if (!place) { /* each connection is a stream, or has a request that is worked on */
        close(fd);
        return;
    }
    self->coming = place;
    *place = (client){.fd = fd, .is_arriving = 1, .since_ms = bh__monotonic_ms()};
    if (MHD_add_connection(self->daemon, fd, (struct sockaddr *)&address, size) != MHD_YES)
        place->fd = -1;
    self->coming = NULL;
}

static void on_connection(void *data, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    server *self = data;
    (void)connection;
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        *context = self->coming;
    else if (*context)
        ((client *)*context)->fd = -1;
}

/* ------------------------------------------------------------------------------- open and close */

static void on_log(void *data, const char *format, va_list arguments)
{
    (void)data, (void)format, (void)arguments; /* a client's mistakes are no event */
}

int server_open(server **out, const server_settings *settings)
{
    server *self = must(calloc(1, sizeof *self));
    *out = self;
    self->settings = settings;
    self->socket = listening_open(settings->address);
    for (size_t i = 0; i < SERVER_MOST_CLIENTS; i++)
        self->clients[i].fd = -1;
    if (self->socket < 0)
        return 0;
    self->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
        requests_on_access, self, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(SERVER_MOST_CLIENTS + SPARE_CLIENTS), MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, self, MHD_OPTION_NOTIFY_COMPLETED, requests_on_completed, self, MHD_OPTION_END);
    if (!self->daemon)
        complain("libmicrohttpd could not be started: it needs epoll");
    return self->daemon != NULL;
}

void server_close(server *self)
{
    if (!self)
        return;
    requests_end_all(self);
    if (self->daemon) {
        MHD_run(self->daemon);
        MHD_stop_daemon(self->daemon);
    }
    listening_close(self->socket);
    free(self);
}

int server_url(const server *self, char out[300])
{
    return listening_url(self->socket, out);
}

int server_is_local(const server *self)
{
    return listening_is_local(self->socket);
}

/* -------------------------------------------------------------------------------------- polling */

/* Returns how long a poll may take: until the next request is late, or libmicrohttpd has something
 * to do. */
static int shorten(const server *self, int limit_ms, int64_t now_ms)
{
    MHD_UNSIGNED_LONG_LONG own_ms;
    if (self->is_resumed) /* MHD_get_timeout does not know */
        return 0;
    if (MHD_get_timeout(self->daemon, &own_ms) == MHD_YES && own_ms < (MHD_UNSIGNED_LONG_LONG)limit_ms)
        limit_ms = (int)own_ms;
    if (self->accept_ms > now_ms && self->accept_ms - now_ms < limit_ms)
        limit_ms = (int)(self->accept_ms - now_ms);
    for (size_t i = 0; i < SERVER_MOST_CLIENTS; i++) {
        const client *each = &self->clients[i];
        int64_t remaining_ms = each->since_ms + self->settings->request_ms - now_ms;
        if (each->fd >= 0 && each->is_arriving && remaining_ms < limit_ms)
            limit_ms = remaining_ms > 0 ? (int)remaining_ms : 0;
    }
    return limit_ms;
}

void server_poll(server *self, struct pollfd *others, size_t count, int limit_ms)
{
    int64_t now_ms = bh__monotonic_ms();
    struct pollfd polled[2 + SERVER_MOST_OTHERS] = {
        {.fd = now_ms < self->accept_ms ? -1 : self->socket, .events = POLLIN},
        {.fd = MHD_get_daemon_info(self->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, .events = POLLIN}};
    memcpy(polled + 2, others, count * sizeof *others);
    int ready = poll(polled, 2 + count, shorten(self, limit_ms, now_ms));
    memcpy(others, polled + 2, count * sizeof *others);
    end_late(self, bh__monotonic_ms());
    self->is_resumed = 0;
    MHD_run(self->daemon);
    if (ready > 0 && polled[0].revents)
        accept_client(self);
}
