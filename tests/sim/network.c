#include "network.h"

#include "base/report.h"
#include "schedule.h"
#include "witness.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CONNECTIONS = 8192, MOST_QUEUED = 524288, COMMAND_ROOM = 1024 };

typedef struct piece {
    struct piece *next;
    int64_t at_us;
    size_t size;
    size_t taken;
    char data[];
} piece;

typedef struct stream {
    piece *first, *last;
    int64_t last_us; /* when the last piece arrives */
    int64_t sent;    /* bytes that were written */
    int64_t arrived; /* bytes that the other end has */
    size_t queued;
    int64_t silent_until_us;
    int64_t cut_after; /* bytes; INT64_MAX: no cut */
} stream;

typedef struct connection {
    int fd;
    model_link *link; /* NULL: not connected yet, or gone */
    int is_lookup;
    int is_connected;
    int64_t ready_us; /* when connecting or looking up ends */
    int has_ended;    /* the broker's end is gone */
    int error;        /* of the end, for the worker; 0: the other side closed it */
    int is_closed;    /* by the worker */
    stream ways[2];
} connection;

network_weather network_weather_now;

static struct {
    model *broker;
    connection *open[MOST_CONNECTIONS]; /* by descriptor; NULL: freed */
    int count;
    int first;        /* all before are freed */
    int is_touched;   /* the broker may have other timers than before */
    int64_t timer_us; /* the broker's next one */
    size_t memory;    /* of all pieces */
} it;

/* -------------------------------------------------------------------------------------- streams */

static void free_piece(piece *self)
{
    it.memory -= malloc_usable_size(self);
    free(self);
}

size_t network_memory(void)
{
    return it.memory;
}

static void clear_stream(stream *self)
{
    while (self->first) {
        piece *first = self->first;
        self->first = first->next;
        free_piece(first);
    }
    self->last = NULL;
    self->queued = 0;
}

static void push_piece(stream *self, const char *data, size_t size)
{
    piece *added = malloc(sizeof *added + size);
    if (!added)
        fail("no memory for the network");
    const network_weather *weather = &network_weather_now;
    int64_t at_us =
        schedule_now_us() + weather->latency_us + (weather->jitter_us ? schedule_draw(weather->jitter_us) : 0);
    at_us = at_us > self->last_us ? at_us : self->last_us;
    at_us = at_us > self->silent_until_us ? at_us : self->silent_until_us;
    *added = (piece){.at_us = at_us, .size = size};
    memcpy(added->data, data, size);
    if (self->last)
        self->last->next = added;
    else
        self->first = added;
    self->last = added;
    self->last_us = at_us;
    self->queued += size;
    it.memory += malloc_usable_size(added);
}

/* Writes to a stream, in pieces. Bytes beyond the cut are lost. */
static void push_bytes(stream *self, const char *data, size_t size)
{
    int64_t before = self->sent;
    self->sent += (int64_t)size;
    if (before >= self->cut_after)
        return;
    if (self->sent > self->cut_after)
        size = (size_t)(self->cut_after - before);
    while (size) {
        size_t most = network_weather_now.fragment_bytes ? 1 + schedule_draw(network_weather_now.fragment_bytes) : size;
        size_t part = size < most ? size : most;
        push_piece(self, data, part);
        data += part;
        size -= part;
    }
}

static void drop_first(stream *self)
{
    piece *first = self->first;
    self->first = first->next;
    if (!self->first)
        self->last = NULL;
    free_piece(first);
}

static int has_arrived(const stream *self)
{
    return self->first && self->first->at_us <= schedule_now_us();
}

/* ---------------------------------------------------------------------------------- connections */

static connection *connection_of(int fd)
{
    int i = fd - FIRST_FD;
    return i >= 0 && i < it.count ? it.open[i] : NULL;
}

static int number_of(const connection *self)
{
    return self->fd - FIRST_FD;
}

void network_touch(void)
{
    it.is_touched = 1;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The broker's clock follows before something happens to it. */
static void advance(void)
{
    if (model_now_ms(it.broker) < schedule_now_ms())
        model_advance(it.broker, schedule_now_ms());
}

/* Returns when the broker's next timer is due; INT64_MAX: never. */
static int64_t timer_us(void)
{
    if (it.is_touched) {
        int64_t timer_ms = earlier(model_next_ms(it.broker), model_next_beat_ms(it.broker));
        it.timer_us = timer_ms < INT64_MAX / 1000 ? timer_ms * 1000 : INT64_MAX;
        it.is_touched = 0;
    }
    return it.timer_us;
}

/* The broker's end goes. error: for the worker. */
static void end_link(connection *self, int error)
{
    if (self->link) {
        advance();
        model_disconnect(self->link);
        it.is_touched = 1;
    }
    self->link = NULL;
    self->has_ended = 1;
    self->error = error;
    clear_stream(&self->ways[NETWORK_UP]);
}

static void try_to_connect(connection *self)
{
    advance();
    self->link = model_connect(it.broker);
    it.is_touched = 1;
    self->is_connected = self->link != NULL;
    if (!self->link)
        end_link(self, ECONNREFUSED);
    trace("connection %d %s", number_of(self), self->link ? "opens" : "is refused");
}

static void take_output(connection *self)
{
    for (bh_bytes output; self->link && (output = model_output(self->link)).size;) {
        push_bytes(&self->ways[NETWORK_DOWN], output.data, output.size);
        model_sent(self->link, output.size);
    }
    if (self->link && model_is_closing(self->link)) {
        trace("the broker closes connection %d", number_of(self));
        end_link(self, schedule_draw(2) ? ECONNRESET : 0);
    }
}

static void deliver_up(connection *self)
{
    stream *up = &self->ways[NETWORK_UP];
    while (self->link && has_arrived(up) && model_reads(self->link)) {
        piece *first = up->first;
        up->arrived += (int64_t)first->size;
        up->queued -= first->size;
        advance();
        model_receive(self->link, first->data, first->size);
        it.is_touched = 1;
        drop_first(up);
    }
    int is_cut = up->arrived >= up->cut_after;
    const stream *down = &self->ways[NETWORK_DOWN];
    if (self->link && (is_cut || (down->sent >= down->cut_after && !down->first))) {
        trace("connection %d is cut after %lld bytes up, %lld down", number_of(self), (long long)up->arrived,
              (long long)down->arrived);
        end_link(self, ECONNRESET);
    }
    if (self->is_closed && self->link && !up->first)
        end_link(self, 0);
}

static int is_over(const connection *self)
{
    return self->is_closed && !self->link;
}

void network_run(void)
{
    if (!it.broker)
        return;
    for (int i = it.first; i < it.count; i++) {
        connection *each = it.open[i];
        if (!each)
            continue;
        if (!each->is_lookup && !each->is_connected && !each->has_ended && each->ready_us <= schedule_now_us())
            try_to_connect(each);
        deliver_up(each);
    }
    if (timer_us() <= schedule_now_us()) {
        model_advance(it.broker, schedule_now_ms());
        model_beat(it.broker, schedule_now_ms());
        it.is_touched = 1;
    }
    for (int i = it.first; i < it.count; i++) {
        connection *each = it.open[i];
        if (!each)
            continue;
        take_output(each);
        if (is_over(each)) {
            clear_stream(&each->ways[NETWORK_DOWN]);
            free(each);
            it.open[i] = NULL;
        }
    }
    while (it.first < it.count && !it.open[it.first])
        it.first++;
}

int64_t network_next_us(void)
{
    int64_t now_us = schedule_now_us();
    if (!it.broker)
        return INT64_MAX;
    int64_t next_us = timer_us();
    for (int i = it.first; i < it.count; i++) {
        const connection *each = it.open[i];
        if (!each)
            continue;
        if (!each->is_connected && !each->has_ended && each->ready_us > now_us)
            next_us = earlier(next_us, each->ready_us);
        const piece *up = each->ways[NETWORK_UP].first, *down = each->ways[NETWORK_DOWN].first;
        if (up && (up->at_us > now_us || (each->link && model_reads(each->link))))
            next_us = earlier(next_us, up->at_us);
        if (down && down->at_us > now_us)
            next_us = earlier(next_us, down->at_us);
    }
    return next_us;
}

/* ------------------------------------------------------------------------------- broker, faults */

int network_try(const char *line)
{
    bh__report answer = {.size = 0};
    advance();
    it.is_touched = 1;
    bh_status status = model_control(it.broker, line, &answer);
    trace("%s: %s", line, status == BH_OK ? "done" : bh__report_text(&answer).data);
    bh__report_free(&answer);
    network_run();
    return status == BH_OK;
}

void network_control(char *answer, size_t room, const char *format, ...)
{
    char line[COMMAND_ROOM];
    bh__report report = {.size = 0};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    advance();
    it.is_touched = 1;
    bh_status status = model_control(it.broker, line, &report);
    if (status != BH_OK)
        fail("the model does not %s: %s", line, bh__report_text(&report).data);
    if (answer)
        snprintf(answer, room, "%s", report.text ? report.text : "");
    else
        trace("%s", line);
    bh__report_free(&report);
    network_run();
}

static connection *newest(unsigned number)
{
    for (int i = it.count - 1; i >= it.first; i--)
        if (it.open[i] && it.open[i]->link && !it.open[i]->is_closed && number-- == 0)
            return it.open[i];
    return NULL;
}

int network_cut_after(unsigned number, network_way way, int64_t bytes)
{
    connection *self = newest(number);
    if (self)
        self->ways[way].cut_after = self->ways[way].sent + bytes;
    return self != NULL;
}

int network_silence(unsigned number, network_way way, int64_t until_us)
{
    connection *self = newest(number);
    if (!self)
        return 0;
    trace("connection %d is silent %s", number_of(self), way == NETWORK_UP ? "up" : "down");
    self->ways[way].silent_until_us = until_us;
    for (piece *each = self->ways[way].first; each; each = each->next)
        each->at_us = each->at_us > until_us ? each->at_us : until_us;
    return 1;
}

void network_heal(void)
{
    network_weather_now.is_unreachable = network_weather_now.is_unknown = 0;
    for (int i = it.first; i < it.count; i++)
        for (int way = 0; it.open[i] && way < 2; way++) {
            stream *each = &it.open[i]->ways[way];
            each->silent_until_us = each->last_us = 0;
            if (each->sent < each->cut_after) /* else bytes are lost already */
                each->cut_after = INT64_MAX;
            for (piece *late = each->first; late; late = late->next)
                late->at_us = earlier(late->at_us, schedule_now_us() + network_weather_now.latency_us);
        }
}

void network_begin(model *broker)
{
    it.broker = broker;
    it.count = it.first = 0;
    it.is_touched = 1;
    network_weather_now = (network_weather){.latency_us = 100};
}

void network_end(void)
{
    for (int i = it.first; i < it.count; i++)
        if (it.open[i]) {
            end_link(it.open[i], 0);
            clear_stream(&it.open[i]->ways[NETWORK_DOWN]);
            free(it.open[i]);
        }
    it.count = it.first = 0;
    it.broker = NULL;
}

/* ---------------------------------------------------------------------------------- descriptors */

static connection *add_connection(void)
{
    if (it.count == MOST_CONNECTIONS)
        fail("%d connections: the worker connects without end", MOST_CONNECTIONS);
    connection *added = calloc(1, sizeof *added);
    if (!added)
        fail("no memory for a connection");
    added->fd = FIRST_FD + it.count;
    added->ready_us = schedule_now_us() + network_weather_now.latency_us;
    added->ways[0].cut_after = added->ways[1].cut_after = INT64_MAX;
    it.open[it.count++] = added;
    return added;
}

int network_connect(void)
{
    connection *added = add_connection();
    if (network_weather_now.is_unreachable)
        added->ready_us = INT64_MAX;
    witness_open(number_of(added));
    return added->fd;
}

int network_look_up(void)
{
    connection *added = add_connection();
    added->is_lookup = 1;
    return added->fd;
}

int network_is_done(int fd)
{
    const connection *self = connection_of(fd);
    return self && self->ready_us <= schedule_now_us();
}

int network_has(int fd)
{
    return fd >= FIRST_FD;
}

/* Returns how many bytes the socket takes now. */
static size_t room_of(const connection *self)
{
    size_t most = network_weather_now.most_queued ? network_weather_now.most_queued : MOST_QUEUED;
    size_t queued = self->ways[NETWORK_UP].queued;
    return queued < most ? most - queued : 0;
}

short network_look(int fd, short events)
{
    const connection *self = connection_of(fd);
    if (!self || self->is_closed)
        return POLLNVAL;
    if (self->is_lookup)
        return network_is_done(fd) ? (short)(POLLIN & events) : 0;
    if (!self->is_connected)
        return self->has_ended ? POLLERR : 0;
    if (self->has_ended && !self->ways[NETWORK_DOWN].first)
        return (short)(POLLHUP | (POLLIN & events));
    int ready = has_arrived(&self->ways[NETWORK_DOWN]) ? POLLIN : 0;
    if (room_of(self))
        ready |= POLLOUT;
    return (short)(ready & events);
}

int network_connected(int fd)
{
    const connection *self = connection_of(fd);
    if (!self || (!self->is_connected && !self->has_ended))
        return 0;
    errno = self->error;
    return self->is_connected ? 1 : -1;
}

ssize_t network_read(int fd, char *data, size_t size)
{
    connection *self = connection_of(fd);
    stream *down = &self->ways[NETWORK_DOWN];
    size_t count = 0;
    errno = 0;
    while (count < size && has_arrived(down)) {
        piece *first = down->first;
        size_t part = first->size - first->taken < size - count ? first->size - first->taken : size - count;
        memcpy(data + count, first->data + first->taken, part);
        count += part;
        first->taken += part;
        down->queued -= part;
        down->arrived += (int64_t)part;
        if (first->taken == first->size)
            drop_first(down);
    }
    if (count) {
        witness_see(number_of(self), WITNESS_DOWN, data, count);
        return (ssize_t)count;
    }
    errno = self->error;
    return self->has_ended && !down->first ? -1 : 0;
}

ssize_t network_write(int fd, const char *data, size_t size)
{
    connection *self = connection_of(fd);
    errno = EPIPE;
    if (self->has_ended && !self->ways[NETWORK_DOWN].first)
        return -1;
    errno = 0;
    if (size > room_of(self))
        size = room_of(self);
    if (!size)
        return 0;
    if (!self->has_ended)
        push_bytes(&self->ways[NETWORK_UP], data, size);
    witness_see(number_of(self), WITNESS_UP, data, size);
    return (ssize_t)size;
}

void network_close(int fd)
{
    connection *self = connection_of(fd);
    if (!self)
        return;
    self->is_closed = 1;
    if (self->is_lookup || !self->is_connected)
        self->has_ended = 1;
    if (!self->is_lookup)
        witness_close(number_of(self), self->ways[NETWORK_UP].arrived);
}
