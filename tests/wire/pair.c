#include "pair.h"

#include "properties.h"

#include <check.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

void pair_open(pair *self)
{
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    bh__link_init(&self->link);
    self->link.phase = BH__TALKING;
    self->link.is_open = 1;
    self->link.socket.fd = ends[0];
    self->broker = ends[1];
}

void pair_close(pair *self)
{
    bh__link_free(&self->link);
    if (self->broker >= 0)
        close(self->broker);
}

void pair_send(pair *self, const void *bytes, size_t size)
{
    for (size_t sent = 0; sent < size;) {
        ssize_t now = write(self->broker, (const char *)bytes + sent, size - sent);
        if (now > 0)
            sent += (size_t)now;
        bh__link_read(&self->link, 0);
        ck_assert(now > 0 || !bh__link_is_broken(&self->link));
    }
    while (self->link.has_more)
        bh__link_read(&self->link, 0);
}

size_t pair_receive(pair *self, char *bytes, size_t room)
{
    size_t size = 0;
    for (ssize_t now = 1; now > 0 && size < room;) {
        bh__link_flush(&self->link, 0);
        now = read(self->broker, bytes + size, room - size);
        if (now > 0)
            size += (size_t)now;
    }
    return size;
}

void add_frame(bh__buffer *to, int type, int channel, bh_bytes payload)
{
    add_number(to, (uint64_t)type, 1);
    add_number(to, (uint64_t)channel, 2);
    add_counted(to, 4, payload);
    add_number(to, 0xCE, 1);
}

void add_method(bh__buffer *to, int channel, amqp_method_number_t method, void *arguments)
{
    char bytes[4096];
    for (size_t i = 0; i < 4; i++)
        bytes[i] = (char)(method >> 8 * (3 - i));
    int size = amqp_encode_method(method, arguments, (amqp_bytes_t){sizeof bytes - 4, bytes + 4});
    ck_assert_int_ge(size, 0);
    add_frame(to, AMQP_FRAME_METHOD, channel, (bh_bytes){bytes, (size_t)size + 4});
}

void add_content(bh__buffer *to, int channel, uint64_t body_size, bh_bytes properties)
{
    bh__buffer payload = {.data = NULL};
    add_number(&payload, AMQP_BASIC_CLASS, 2);
    add_number(&payload, 0, 2);
    add_number(&payload, body_size, 8);
    add_bytes(&payload, properties.data, properties.size);
    add_frame(to, AMQP_FRAME_HEADER, channel, bytes_of(&payload));
    bh__buffer_free(&payload);
}
