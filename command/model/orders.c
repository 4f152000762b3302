#include "model/orders.h"

#include "common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { READ_BYTES = 4096, LINE_BYTES = 65536, PATIENCE_MS = 5000 };

/* -------------------------------------------------------------------------------------------------------------- opening */

/* Removes the socket of a model that was killed: nothing listens there. */
static void remove_stale(const struct sockaddr_un *address)
{
    struct stat it;
    if (lstat(address->sun_path, &it) != 0 || !S_ISSOCK(it.st_mode))
        return;
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe >= 0 && connect(probe, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED)
        unlink(address->sun_path);
    if (probe >= 0)
        close(probe);
}

static int open_socket(orders *self, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof address.sun_path) {
        complain("--control: the path of a Unix socket has 1 to %zu bytes", sizeof address.sun_path - 1);
        return 0;
    }
    memcpy(address.sun_path, path, strlen(path));
    remove_stale(&address);
    self->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0177); /* for this user alone */
    int is_bound = self->listener >= 0 && bind(self->listener, (struct sockaddr *)&address, sizeof address) == 0;
    umask(before);
    if (is_bound)
        self->path = path;
    if (is_bound && listen(self->listener, ORDERS_PEERS) == 0)
        return 1;
    complain("--control: cannot listen at %s: %s", path, strerror(errno));
    return 0;
}

int orders_open(orders *self, const char *where, order_handler *handle, void *data)
{
    *self = (orders){.listener = -1, .handle = handle, .data = data};
    for (int i = 0; i < ORDERS_PEERS; i++)
        self->peers[i].in = self->peers[i].out = -1;
    if (!where)
        return 1;
    if (strcmp(where, "-") != 0)
        return open_socket(self, where);
    self->peers[0].in = STDIN_FILENO;
    self->peers[0].out = STDOUT_FILENO;
    return 1;
}

static void leave(order_peer *peer)
{
    if (peer->in > STDERR_FILENO)
        close(peer->in);
    bh__buffer_free(&peer->line);
    *peer = (order_peer){.in = -1, .out = -1};
}

void orders_close(orders *self)
{
    for (int i = 0; i < ORDERS_PEERS; i++)
        leave(&self->peers[i]);
    if (self->listener >= 0)
        close(self->listener);
    if (self->path)
        unlink(self->path);
    self->listener = -1;
    self->path = NULL;
}

/* -------------------------------------------------------------------------------------------------------------- obeying */

void orders_fill(const orders *self, struct pollfd *out)
{
    for (int i = 0; i < ORDERS_PEERS; i++)
        out[i] = (struct pollfd){.fd = self->peers[i].in, .events = POLLIN};
    out[ORDERS_PEERS] = (struct pollfd){.fd = self->listener, .events = POLLIN};
}

/* Writes all bytes. Waits for a slow reader, but not for ever: it would stop the model. */
static void write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t count = write(fd, data, size);
        if (count < 0 && errno == EAGAIN && poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, PATIENCE_MS) > 0)
            continue;
        if (count < 0 && errno != EINTR)
            return;
        data += count > 0 ? count : 0;
        size -= count > 0 ? (size_t)count : 0;
    }
}

static void obey(orders *self, const order_peer *peer, const char *line)
{
    bh__report answer = {.status = BH_OK};
    bh_status status = self->handle(self->data, line, &answer);
    bh_bytes text = bh__report_text(&answer);
    if (status != BH_OK)
        write_all(peer->out, "error: ", strlen("error: "));
    if (status != BH_OK || answer.size > 0)
        write_all(peer->out, text.data, text.size);
    if (text.size > 0 && (status != BH_OK || answer.size > 0) && text.data[text.size - 1] != '\n')
        write_all(peer->out, "\n", 1);
    if (status == BH_OK)
        write_all(peer->out, "ok\n", 3);
    bh__report_free(&answer);
}

/* Executes the whole lines of the buffer. */
static void obey_lines(orders *self, order_peer *peer)
{
    for (;;) {
        char *begin = peer->line.data + peer->line.begin;
        char *newline = memchr(begin, '\n', bh__buffer_size(&peer->line));
        if (!newline)
            return;
        *newline = '\0';
        peer->line.begin += (size_t)(newline - begin) + 1;
        obey(self, peer, begin);
    }
}

static void read_peer(orders *self, order_peer *peer)
{
    if (!bh__buffer_reserve(&peer->line, READ_BYTES)) {
        leave(peer);
        return;
    }
    ssize_t size = read(peer->in, peer->line.data + peer->line.end, READ_BYTES);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (size > 0) {
        peer->line.end += (size_t)size;
        obey_lines(self, peer);
    }
    if (size <= 0 || bh__buffer_size(&peer->line) > LINE_BYTES) {
        self->has_ended |= peer->in == STDIN_FILENO;
        leave(peer);
    }
}

static void accept_peer(orders *self)
{
    int fd = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    for (int i = 0; i < ORDERS_PEERS && fd >= 0; i++)
        if (self->peers[i].in < 0) {
            self->peers[i].in = self->peers[i].out = fd;
            return;
        }
    if (fd >= 0)
        close(fd);
}

void orders_work(orders *self, const struct pollfd *polled)
{
    for (int i = 0; i < ORDERS_PEERS; i++)
        if (self->peers[i].in >= 0 && polled[i].fd == self->peers[i].in && polled[i].revents)
            read_peer(self, &self->peers[i]);
    if (self->listener >= 0 && polled[ORDERS_PEERS].revents)
        accept_peer(self);
}
