/* librabbitmq, 0.11 and later: 0.12 renamed its headers. Internal. */
#ifndef BACKHOP_LIBRABBITMQ_H
#define BACKHOP_LIBRABBITMQ_H

#include <backhop/bytes.h>
#include <stdint.h>
#include <sys/time.h>

#if defined(__has_include) && __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/ssl_socket.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#endif

static inline bh_bytes bh__from_amqp(amqp_bytes_t bytes)
{
    bh_bytes borrowed = {bytes.len ? bytes.bytes : "", bytes.len};
    return borrowed;
}

/* librabbitmq has no const, but it only reads the arguments of methods. */
static inline amqp_bytes_t bh__to_amqp(bh_bytes bytes)
{
    amqp_bytes_t borrowed = {bytes.size, (void *)(uintptr_t)bytes.data};
    return borrowed;
}

#endif
