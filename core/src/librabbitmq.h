/* librabbitmq, 0.11 and later: 0.12 renamed its headers, 0.14 learnt where the system keeps its CAs. Internal. */
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

#if AMQP_VERSION >= AMQP_VERSION_CODE(0, 14, 0, 0)
#define bh__trust_system(socket) amqp_ssl_socket_enable_default_verify_paths(socket)
#else
#include <stdlib.h>
#include <unistd.h>

/* OpenSSL's variable, else the bundle of Debian, Fedora, openSUSE, or Alpine and the BSDs. */
static inline int bh__trust_system(amqp_socket_t *socket)
{
    const char *paths[] = {getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt",
                           "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (paths[i] && access(paths[i], R_OK) == 0)
            return amqp_ssl_socket_set_cacert(socket, paths[i]);
    return AMQP_STATUS_SSL_ERROR;
}
#endif

static inline bh_bytes bh__from_amqp(amqp_bytes_t bytes)
{
    bh_bytes borrowed = {bytes.len ? bytes.bytes : "", bytes.len};
    return borrowed;
}

/* librabbitmq has no const, but only reads what it encodes. */
static inline amqp_bytes_t bh__to_amqp(bh_bytes bytes)
{
    amqp_bytes_t borrowed = {bytes.size, (void *)(uintptr_t)bytes.data};
    return borrowed;
}

#endif
