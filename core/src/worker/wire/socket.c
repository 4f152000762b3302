#include "worker/wire/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int bh__socket_begin(bh__socket *self, const struct addrinfo *address)
{
    int on = 1;
    *self = (bh__socket){
        .fd = socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->ai_protocol)};
    if (self->fd < 0)
        return 0;
    setsockopt(self->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(self->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
#ifdef SO_NOSIGPIPE
    setsockopt(self->fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
    if (connect(self->fd, address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS)
        return 1;
    int error = errno;
    bh__socket_close(self);
    errno = error;
    return 0;
}

bh__step bh__socket_connected(const bh__socket *self)
{
    struct pollfd socket = {.fd = self->fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    if (poll(&socket, 1, 0) <= 0)
        return BH__AGAIN;
    if (getsockopt(self->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        return BH__BROKEN;
    errno = error;
    return error == 0 ? BH__DONE : BH__BROKEN;
}

/* ------------------------------------------------------------------------------------------ TLS */

static int is_address(const char *host)
{
    unsigned char bytes[16];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

/* Sets whose certificate has to come. */
static int expect_peer(SSL *tls, const char *host)
{
    /* RFC 6125, section 6.4.4, and RFC 9525, section 6.3: subjectAltName alone, and a '*' is a
     * whole label. */
    SSL_set_hostflags(tls, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (is_address(host))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host);
    return SSL_set1_host(tls, host) && SSL_ctrl(tls, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                                                (void *)(uintptr_t)host); /* SSL_set_tlsext_host_name, const as it is */
}

/* Trusts OpenSSL's own paths and variables. For an OpenSSL that was built on another system,
 * trusts the bundle of Debian, Fedora, openSUSE, or Alpine and the BSDs. */
static int trust_system(SSL_CTX *context)
{
    static const char *const bundles[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                          "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    int is_there = SSL_CTX_set_default_verify_paths(context) == 1;
    for (size_t i = 0; i < sizeof bundles / sizeof bundles[0]; i++)
        if (!getenv(X509_get_default_cert_file_env()) && !getenv(X509_get_default_cert_dir_env()) &&
            access(bundles[i], R_OK) == 0)
            return SSL_CTX_load_verify_locations(context, bundles[i], NULL) == 1 || is_there;
    return is_there;
}

static bh_status load_trusted(SSL_CTX *context, const char *ca_file, bh__report *report)
{
    if (ca_file && SSL_CTX_load_verify_locations(context, ca_file, NULL) != 1)
        return bh__report_set(report, BH_ERR_TLS,
                              "the CA file %s cannot be used; it must be readable and hold certificates in PEM form",
                              ca_file);
    return ca_file || trust_system(context)
               ? BH_OK
               : bh__report_set(report, BH_ERR_TLS,
                                "the system's CA certificates cannot be used; install them (ca-certificates), or name "
                                "a CA file");
}

/* Answers OpenSSL's request for a passphrase, which would otherwise block on the terminal. */
/* NOLINTNEXTLINE(readability-non-const-parameter): the type is OpenSSL's */
static int no_passphrase(char *out, int room, int writes, void *data)
{
    (void)out, (void)room, (void)writes, (void)data;
    return 0;
}

static bh_status load_certificate(SSL_CTX *context, const bh__tls_files *files, bh__report *report)
{
    const char *key = files->key ? files->key : files->cert;
    if (!files->cert)
        return BH_OK;
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    if (SSL_CTX_use_certificate_chain_file(context, files->cert) != 1)
        return bh__report_set(report, BH_ERR_TLS,
                              "the client certificate %s cannot be used; it must be readable and in PEM form, the "
                              "client's certificate first",
                              files->cert);
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(context) != 1)
        return bh__report_set(report, BH_ERR_TLS,
                              "the private key %s cannot be used; it must be readable, in PEM form, without a "
                              "passphrase, and belong to the client certificate %s",
                              key, files->cert);
    return BH_OK;
}

bh_status bh__socket_begin_tls(bh__socket *self, const bh__uri *uri, const bh__tls_files *files, bh__report *report)
{
    ERR_clear_error();
    self->context = SSL_CTX_new(TLS_client_method());
    if (!self->context)
        return bh__report_set(report, BH_ERR_NO_MEMORY, "no memory for TLS");
    SSL_CTX_set_min_proto_version(self->context, TLS1_2_VERSION);
    SSL_CTX_set_verify(self->context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(self->context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    bh_status status = load_trusted(self->context, files->ca, report);
    if (status == BH_OK)
        status = load_certificate(self->context, files, report);
    if (status != BH_OK)
        return status;
    self->tls = SSL_new(self->context);
    if (!self->tls || !expect_peer(self->tls, uri->host) || !SSL_set_fd(self->tls, self->fd))
        return bh__report_set(report, BH_ERR_NO_MEMORY, "no memory for TLS");
    SSL_set_connect_state(self->tls);
    return BH_OK;
}

/* Notes which way the socket has to be ready for TLS to go on. */
static bh__step tls_step(bh__socket *self, int result, short wanted)
{
    int error = SSL_get_error(self->tls, result);
    self->tls_wants = 0;
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
        return BH__BROKEN;
    short wants = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    if (wants != wanted)
        self->tls_wants = wants;
    return BH__AGAIN;
}

/* Returns what to do about a certificate that OpenSSL refuses for this reason. */
static const char *advice_for(long verified)
{
    switch (verified) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return "renew it, or check the clock of this host";
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return "check the clocks of both hosts";
    default:
        return "name the file of the CA that signed it";
    }
}

static bh_status handshake_failed(const SSL *tls, const bh__uri *uri, int error, bh__report *report)
{
    long verified = SSL_get_verify_result(tls);
    char reason[256] = "the connection was closed";
    unsigned long code = ERR_peek_last_error();
    if (code)
        ERR_error_string_n(code, reason, sizeof reason);
    else if (error)
        snprintf(reason, sizeof reason, "%s", strerror(error));
    if (verified == X509_V_ERR_HOSTNAME_MISMATCH || verified == X509_V_ERR_IP_ADDRESS_MISMATCH)
        return bh__report_set(report, BH_ERR_TLS,
                              "the certificate of %s:%d does not name this host in its subjectAltName (its common name "
                              "is not looked at): connect with a name that it holds there, or have it issued with the "
                              "subjectAltName %s:%s",
                              uri->host, uri->port, is_address(uri->host) ? "IP" : "DNS", uri->host);
    if (verified != X509_V_OK)
        return bh__report_set(report, BH_ERR_TLS, "the certificate of %s:%d is refused (%s); %s", uri->host, uri->port,
                              X509_verify_cert_error_string(verified), advice_for(verified));
    return bh__report_set(report, BH_ERR_TLS, "no TLS with %s:%d (%s); check that this port uses TLS (often 5671)",
                          uri->host, uri->port, reason);
}

bh_status bh__socket_handshake(bh__socket *self, const bh__uri *uri, bh__step *step, bh__report *report)
{
    ERR_clear_error();
    errno = 0;
    int result = SSL_do_handshake(self->tls);
    int error = errno;
    if (result == 1) {
        self->tls_wants = 0;
        *step = BH__DONE;
        return BH_OK;
    }
    *step = tls_step(self, result, POLLIN);
    return *step == BH__AGAIN ? BH_OK : handshake_failed(self->tls, uri, error, report);
}

static int limited_to_int(size_t size)
{
    return size < INT_MAX ? (int)size : INT_MAX;
}

/* ---------------------------------------------------------------------------------------- bytes */

static ssize_t tls_result(bh__socket *self, int result, short wanted)
{
    if (result > 0) {
        self->tls_wants = 0;
        return result;
    }
    return tls_step(self, result, wanted) == BH__AGAIN ? 0 : -1;
}

static ssize_t tcp_result(ssize_t result)
{
    if (result >= 0)
        return result;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

ssize_t bh__socket_read(bh__socket *self, char *data, size_t size)
{
    errno = 0;
    if (self->tls) {
        ERR_clear_error();
        return tls_result(self, SSL_read(self->tls, data, limited_to_int(size)), POLLIN);
    }
    ssize_t result = recv(self->fd, data, size, 0);
    return result == 0 ? -1 : tcp_result(result);
}

ssize_t bh__socket_write(bh__socket *self, const char *data, size_t size)
{
    errno = 0;
    if (self->tls) {
        ERR_clear_error();
        return tls_result(self, SSL_write(self->tls, data, limited_to_int(size)), POLLOUT);
    }
#ifdef MSG_NOSIGNAL
    return tcp_result(send(self->fd, data, size, MSG_NOSIGNAL));
#else
    return tcp_result(send(self->fd, data, size, 0));
#endif
}

void bh__socket_close(bh__socket *self)
{
    SSL_free(self->tls);
    SSL_CTX_free(self->context);
    if (self->fd >= 0)
        close(self->fd);
    *self = (bh__socket){.fd = -1};
}
