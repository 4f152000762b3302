/* Socket: a stream of bytes over TCP or TLS that never blocks. Internal. */
#ifndef BACKHOP_WORKER_WIRE_SOCKET_H
#define BACKHOP_WORKER_WIRE_SOCKET_H

#include "base/report.h"
#include "worker/wire/uri.h"

#include <netdb.h>
#include <openssl/ssl.h>
#include <sys/types.h>

/* PEM files for TLS. */
typedef struct bh__tls_files {
    const char *ca;   /* trusted CAs; NULL: the system's */
    const char *cert; /* the client's certificate and its chain; NULL: none */
    const char *key;  /* its private key; NULL: in `cert` */
} bh__tls_files;

typedef struct bh__socket {
    int fd; /* -1: closed */
    SSL_CTX *context;
    SSL *tls;        /* NULL: no TLS */
    short tls_wants; /* POLLIN or POLLOUT if TLS must read to write, or write to read; else 0 */
} bh__socket;

/* The result of a step. */
typedef enum bh__step { BH__DONE, BH__AGAIN, BH__BROKEN } bh__step;

/* Begins to connect to an address. Returns 0 if that fails; errno has the reason. */
int bh__socket_begin(bh__socket *self, const struct addrinfo *address);
/* Returns if it is connected. If it is broken, errno has the reason. */
bh__step bh__socket_connected(const bh__socket *self);
/* Begins TLS, which verifies the peer's certificate and its subjectAltName. BH_ERR_TLS,
 * BH_ERR_NO_MEMORY. */
bh_status bh__socket_begin_tls(bh__socket *self, const bh__uri *uri, const bh__tls_files *files, bh__report *report);
/* Continues the TLS handshake. BH_OK: *step is BH__DONE or BH__AGAIN. BH_ERR_TLS. */
bh_status bh__socket_handshake(bh__socket *self, const bh__uri *uri, bh__step *step, bh__report *report);
/* Return the number of bytes; 0: none now; -1: the connection is lost, with the reason in errno
 * (0: the peer closed it). */
ssize_t bh__socket_read(bh__socket *self, char *data, size_t size);
ssize_t bh__socket_write(bh__socket *self, const char *data, size_t size);
/* Closes the socket without a TLS shutdown, so that a fork's child can also close it. */
void bh__socket_close(bh__socket *self);

#endif
