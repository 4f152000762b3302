#include "observe/server.h"

#include "common/options.h"
#include "common/output.h"

#include "worker/wire/clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUEST_MS = 2000, BACKLOG = 128 };

/* ---------------------------------------------------------------------------------------------------------- listening */

int server_open(server *self, const char *address)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char host[256] = "";
    const char *colon = strrchr(address, ':');
    int on = 1;
    if (!colon || !colon[1] || (size_t)(colon - address) >= sizeof host)
        options_refuse("--listen: '%s' is no host:port, as 127.0.0.1:9419", address);
    const char *begin = *address == '[' ? address + 1 : address;
    snprintf(host, sizeof host, "%.*s", (int)(colon - begin - (begin != address)), begin);
    int error = getaddrinfo(*host ? host : "127.0.0.1", colon + 1, &hints, &found);
    self->socket =
        error ? -1 : socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, found->ai_protocol);
    if (self->socket >= 0)
        setsockopt(self->socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    int is_open = self->socket >= 0 && bind(self->socket, found->ai_addr, found->ai_addrlen) == 0 &&
                  listen(self->socket, BACKLOG) == 0;
    if (!is_open)
        complain("cannot listen at %s: %s", address, error ? gai_strerror(error) : strerror(errno));
    if (found)
        freeaddrinfo(found);
    self->clients = must(calloc(SERVER_MOST_CLIENTS, sizeof *self->clients));
    for (size_t i = 0; i < SERVER_MOST_CLIENTS; i++)
        self->clients[i].fd = -1;
    return is_open;
}

void server_print_url(const server *self)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[128], port[16];
    if (getsockname(self->socket, (struct sockaddr *)&address, &size) == 0 &&
        getnameinfo((struct sockaddr *)&address, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        complain("metrics at http://%s%s%s:%s%s", strchr(host, ':') ? "[" : "", host, strchr(host, ':') ? "]" : "",
                 port, self->path);
}

/* ---------------------------------------------------------------------------------------------------------- answering */

static void drop(server_client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
}

void server_close(server *self)
{
    for (size_t i = 0; self->clients && i < SERVER_MOST_CLIENTS; i++)
        drop(&self->clients[i]);
    free(self->clients);
    if (self->socket >= 0)
        close(self->socket);
}

/* Sends what fits the socket's buffer at once: a client that does not read gets a part, and delays no other. */
static void send_all(int client, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(client, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0)
            return;
        data += sent;
        size -= (size_t)sent;
    }
}

static void answer(int client, const char *status, const char *type, const char *body, size_t size, int is_head)
{
    char head[256];
    int length = snprintf(head, sizeof head,
                          "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", status,
                          type, size);
    send_all(client, head, (size_t)length);
    if (!is_head)
        send_all(client, body, size);
}

/* Returns 1 if the request's line is METHOD PATH, with or without a query. */
static int is_request(const char *request, const char *method, const char *path)
{
    size_t method_size = strlen(method), path_size = strlen(path);
    if (strncmp(request, method, method_size) != 0 || request[method_size] != ' ' ||
        strncmp(request + method_size + 1, path, path_size) != 0)
        return 0;
    char next = request[method_size + 1 + path_size];
    return next == ' ' || next == '?';
}

static void serve(server *self, server_client *client)
{
    char *body = NULL;
    size_t size = 0;
    int is_head = is_request(client->request, "HEAD", self->path);
    if (!is_head && !is_request(client->request, "GET", self->path)) {
        char none[64];
        int length = snprintf(none, sizeof none, "there is %s alone\n", self->path);
        answer(client->fd, "404 Not Found", "text/plain", none, (size_t)length, 0);
        return;
    }
    FILE *out = must(open_memstream(&body, &size));
    self->write(self->data, out);
    fclose(out);
    answer(client->fd, "200 OK", self->type, body, size, is_head);
    free(body);
}

/* Reads the bytes that came; answers and closes if the request's head is complete. */
static void read_client(server *self, server_client *client)
{
    ssize_t got = recv(client->fd, client->request + client->used, SERVER_MOST_REQUEST - client->used, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    client->used += got > 0 ? (size_t)got : 0;
    client->request[client->used] = '\0';
    int is_complete = strstr(client->request, "\r\n\r\n") != NULL;
    if (is_complete)
        serve(self, client);
    if (is_complete || got <= 0 || client->used == SERVER_MOST_REQUEST)
        drop(client);
}

/* Returns a free place. If there is none, frees the place of the client which has waited longest. */
static server_client *make_place(server *self)
{
    server_client *oldest = &self->clients[0];
    for (size_t i = 0; i < SERVER_MOST_CLIENTS; i++) {
        if (self->clients[i].fd < 0)
            return &self->clients[i];
        if (self->clients[i].until_ms < oldest->until_ms)
            oldest = &self->clients[i];
    }
    drop(oldest);
    return oldest;
}

static void accept_client(server *self)
{
    int fd = accept4(self->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    server_client *client = make_place(self);
    client->fd = fd;
    client->used = 0;
    client->until_ms = bh__monotonic_ms() + REQUEST_MS;
}

void server_poll(server *self, int other_fd, int limit_ms)
{
    struct pollfd polled[2 + SERVER_MOST_CLIENTS] = {{.fd = self->socket, .events = POLLIN},
                                                     {.fd = other_fd, .events = POLLIN}};
    int64_t now_ms = bh__monotonic_ms();
    for (size_t i = 0; i < SERVER_MOST_CLIENTS; i++) {
        server_client *each = &self->clients[i];
        if (each->fd >= 0 && each->until_ms <= now_ms)
            drop(each);
        if (each->fd >= 0 && each->until_ms - now_ms < limit_ms)
            limit_ms = (int)(each->until_ms - now_ms);
        polled[2 + i] = (struct pollfd){.fd = each->fd, .events = POLLIN};
    }
    if (poll(polled, sizeof polled / sizeof polled[0], limit_ms) <= 0)
        return;
    for (size_t i = 0; i < SERVER_MOST_CLIENTS; i++)
        if (polled[2 + i].revents && self->clients[i].fd >= 0)
            read_client(self, &self->clients[i]);
    if (polled[0].revents)
        accept_client(self);
}
