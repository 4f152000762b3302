/* Socket: a connected stream of bytes, by TCP or TLS, that never blocks. Internal. */
#ifndef BACKHOP_WORKER_WIRE_SOCKET_H
#define BACKHOP_WORKER_WIRE_SOCKET_H

#include "report.h"
#include "wire/uri.h"

#include <netdb.h>
#include <openssl/ssl.h>
#include <sys/types.h>

typedef struct bh__socket {
    int fd; /* -1: closed */
    SSL_CTX *context;
    SSL *tls;        /* NULL: TCP alone */
    short tls_wants; /* POLLIN or POLLOUT, where TLS has to read in order to write, or the other way; else 0 */
} bh__socket;

/* What a step came to. */
typedef enum bh__step { BH__DONE, BH__AGAIN, BH__BROKEN } bh__step;

/* Begins to connect to an address. False: it cannot, errno tells why. */
int bh__socket_begin(bh__socket *self, const struct addrinfo *address);
/* Whether it is connected; where it broke, errno tells why. */
bh__step bh__socket_connected(const bh__socket *self);
/* Begins TLS: the peer's certificate and its subjectAltName are verified. BH_ERR_TLS, BH_ERR_NO_MEMORY. */
bh_status bh__socket_begin_tls(bh__socket *self, const bh__uri *uri, const char *ca_file, bh__report *report);
/* Goes on with the TLS handshake. BH_OK (*step is done or again), BH_ERR_TLS. */
bh_status bh__socket_handshake(bh__socket *self, const bh__uri *uri, bh__step *step, bh__report *report);
/* Bytes read or written; 0: not now; -1: the connection is gone, which errno tells of (0: closed by the peer). */
ssize_t bh__socket_read(bh__socket *self, char *data, size_t size);
ssize_t bh__socket_write(bh__socket *self, const char *data, size_t size);
/* Closes it without a word, so that also a fork's child can. */
void bh__socket_close(bh__socket *self);

#endif
