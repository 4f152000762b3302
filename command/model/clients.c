#include "model/clients.h"

#include "common/output.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 131072, LAST_MS = 2000, ACCEPT_PAUSE_MS = 100 };

static void end(client *it)
{
    if (it->link)
        model_disconnect(it->link);
    close(it->fd);
}

void clients_close(clients *self)
{
    for (size_t i = 0; i < self->count; i++)
        end(&self->items[i]);
    free(self->items);
    *self = (clients){.items = NULL};
}

static void add(clients *self, int fd, model_link *link)
{
    int on = 1;
    if (self->count == self->capacity) {
        self->capacity = self->capacity ? 2 * self->capacity : 16;
        self->items = must(realloc(self->items, self->capacity * sizeof *self->items));
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    self->items[self->count++] = (client){.fd = fd, .link = link};
}

void clients_accept(clients *self, int listener, model *broker, int64_t wall_ms)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (fd >= 0) {
        model_link *link = model_connect(broker);
        if (link)
            add(self, fd, link);
        else
            close(fd);
        if (self->count >= self->most)
            return;
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK)
        self->accept_ms = wall_ms + ACCEPT_PAUSE_MS;
}

void clients_fill(const clients *self, struct pollfd *out)
{
    for (size_t i = 0; i < self->count; i++) {
        const client *it = &self->items[i];
        int reads = !it->link || model_reads(it->link);
        int writes = it->link && model_output(it->link).size > 0;
        out[i] = (struct pollfd){.fd = it->fd, .events = (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0))};
    }
}

static void remove_client(clients *self, size_t at)
{
    end(&self->items[at]);
    self->items[at] = self->items[--self->count];
}

/* Returns 0 if the client is gone. */
static int read_client(client *it)
{
    static char data[READ_BYTES];
    ssize_t size = recv(it->fd, data, sizeof data, 0);
    if (size < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (size > 0 && it->link)
        model_receive(it->link, data, (size_t)size);
    return size > 0;
}

int clients_read(clients *self, const struct pollfd *polled, size_t count)
{
    int has_read = 0;
    for (size_t i = count; i-- > 0;) { /* from the end: a removed client is replaced by the last one */
        if (!(polled[i].revents & (POLLIN | POLLHUP | POLLERR)))
            continue;
        has_read = 1;
        if (!read_client(&self->items[i]))
            remove_client(self, i);
    }
    return has_read;
}

/* The socket stays open for the client's last bytes: closing it at once would reset the connection,
 * and the client could lose the reason. */
static void begin_end(client *it, int64_t wall_ms)
{
    model_disconnect(it->link);
    it->link = NULL;
    it->end_ms = wall_ms + LAST_MS;
    shutdown(it->fd, SHUT_WR);
}

static int is_pending(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* Returns 0 if a client that does not read must go: its connection was closed some time ago, or
 * cut. */
static int may_wait(client *it, int64_t wall_ms)
{
    if (!model_is_closing(it->link))
        return 1;
    if (it->end_ms == 0)
        it->end_ms = wall_ms + LAST_MS;
    return wall_ms < it->end_ms;
}

/* Returns 0 if the client is gone. */
static int write_client(client *it, int64_t wall_ms, int *has_written)
{
    bh_bytes output = it->link ? model_output(it->link) : (bh_bytes){"", 0};
    while (output.size > 0) {
        ssize_t size = send(it->fd, output.data, output.size, MSG_NOSIGNAL);
        if (size < 0)
            return is_pending(errno) && may_wait(it, wall_ms);
        model_sent(it->link, (size_t)size);
        *has_written = 1;
        output = model_output(it->link);
    }
    if (it->link && model_is_closing(it->link))
        begin_end(it, wall_ms);
    return it->link || wall_ms < it->end_ms;
}

int clients_write(clients *self, int64_t wall_ms)
{
    int has_written = 0;
    for (size_t i = self->count; i-- > 0;)
        if (!write_client(&self->items[i], wall_ms, &has_written))
            remove_client(self, i);
    return has_written;
}

int clients_are_served(const clients *self)
{
    size_t connected = 0;
    for (size_t i = 0; i < self->count; i++) {
        if (self->items[i].link && model_output(self->items[i].link).size > 0)
            return 0;
        connected += self->items[i].link != NULL;
    }
    return connected > 0;
}

int64_t clients_next_ms(const clients *self)
{
    int64_t next_ms = INT64_MAX;
    for (size_t i = 0; i < self->count; i++)
        if (self->items[i].end_ms > 0 && self->items[i].end_ms < next_ms)
            next_ms = self->items[i].end_ms;
    return next_ms;
}
