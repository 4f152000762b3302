#include "model/commands.h"

#include "common/output.h"
#include "common/unix_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 4096, LINE_BYTES = 65536, PATIENCE_MS = 5000, ACCEPT_PAUSE_MS = 100 };

/* -------------------------------------------------------------------------------------- opening */

static int open_socket(commands *self, const char *path)
{
    if (!*path || strlen(path) > unix_socket_most()) {
        complain("--control: the path of a Unix socket has 1 to %zu bytes", unix_socket_most());
        return 0;
    }
    self->listener = unix_socket_listen(path, 0177, COMMANDS_PEERS); /* for this user alone */
    if (self->listener >= 0)
        self->path = path;
    return self->listener >= 0;
}

int commands_open(commands *self, const char *where, command_handler *handle, void *data)
{
    *self = (commands){.listener = -1, .handle = handle, .data = data};
    for (int i = 0; i < COMMANDS_PEERS; i++)
        self->peers[i].in = self->peers[i].out = -1;
    if (!where)
        return 1;
    if (strcmp(where, "-") != 0)
        return open_socket(self, where);
    self->peers[0].in = STDIN_FILENO;
    self->peers[0].out = STDOUT_FILENO;
    return 1;
}

static void leave(command_peer *peer)
{
    if (peer->in > STDERR_FILENO)
        close(peer->in);
    bh__buffer_free(&peer->line);
    *peer = (command_peer){.in = -1, .out = -1};
}

void commands_close(commands *self)
{
    for (int i = 0; i < COMMANDS_PEERS; i++)
        leave(&self->peers[i]);
    if (self->listener >= 0)
        close(self->listener);
    if (self->path)
        unix_socket_remove(self->path);
    self->listener = -1;
    self->path = NULL;
}

/* -------------------------------------------------------------------------------------- obeying */

void commands_fill(const commands *self, struct pollfd *out, int64_t wall_ms)
{
    for (int i = 0; i < COMMANDS_PEERS; i++)
        out[i] = (struct pollfd){.fd = self->peers[i].in, .events = POLLIN};
    out[COMMANDS_PEERS] = (struct pollfd){.fd = wall_ms < self->accept_ms ? -1 : self->listener, .events = POLLIN};
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

static void obey(commands *self, const command_peer *peer, const char *line)
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
static void obey_lines(commands *self, command_peer *peer)
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

static void read_peer(commands *self, command_peer *peer)
{
    if (!bh__buffer_reserve(&peer->line, READ_BYTES)) {
        leave(peer);
        return;
    }
    ssize_t size = read(peer->in, peer->line.data + peer->line.end, READ_BYTES);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (size > 0)
        peer->line.end += (size_t)size;
    else if (size == 0 && bh__buffer_size(&peer->line) > 0)
        peer->line.data[peer->line.end++] = '\n'; /* the last line may end with the input */
    obey_lines(self, peer);
    if (size <= 0 || bh__buffer_size(&peer->line) > LINE_BYTES) {
        self->has_ended |= peer->in == STDIN_FILENO;
        leave(peer);
    }
}

static void accept_peer(commands *self, int64_t wall_ms)
{
    int fd = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && errno != EAGAIN)
        self->accept_ms = wall_ms + ACCEPT_PAUSE_MS;
    for (int i = 0; i < COMMANDS_PEERS && fd >= 0; i++)
        if (self->peers[i].in < 0) {
            self->peers[i].in = self->peers[i].out = fd;
            return;
        }
    if (fd >= 0)
        close(fd);
}

void commands_work(commands *self, const struct pollfd *polled, int64_t wall_ms)
{
    for (int i = 0; i < COMMANDS_PEERS; i++)
        if (self->peers[i].in >= 0 && polled[i].fd == self->peers[i].in && polled[i].revents)
            read_peer(self, &self->peers[i]);
    if (self->listener >= 0 && polled[COMMANDS_PEERS].revents)
        accept_peer(self, wall_ms);
}
