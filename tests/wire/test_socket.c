#include "suites.h"

#include "worker/engine/mailbox.h"
#include "worker/wire/lookup.h"
#include "worker/wire/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LIMIT_MS = 20000, TICK_MS = 5 };

/* ---------------------------------------------------------------------------------- descriptors */

/*
 * The test looks at each descriptor that the library opens, in the very moment of opening. A child
 * that another thread starts just then inherits it, unless it is made with FD_CLOEXEC. Setting
 * FD_CLOEXEC later is the race of this test.
 */
static int opened, inheritable, blocking;

static void see(int fd)
{
    if (fd < 0)
        return;
    opened++;
    inheritable += !(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    blocking += !(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

int __real_socket(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol);
int __real_pipe(int ends[2]);
int __wrap_pipe(int ends[2]);
int __real_pipe2(int ends[2], int flags);
int __wrap_pipe2(int ends[2], int flags);

int __wrap_socket(int family, int type, int protocol)
{
    int fd = __real_socket(family, type, protocol);
    see(fd);
    return fd;
}

int __wrap_pipe(int ends[2])
{
    int result = __real_pipe(ends);
    see(result == 0 ? ends[0] : -1);
    see(result == 0 ? ends[1] : -1);
    return result;
}

int __wrap_pipe2(int ends[2], int flags)
{
    int result = __real_pipe2(ends, flags);
    see(result == 0 ? ends[0] : -1);
    see(result == 0 ? ends[1] : -1);
    return result;
}

/* A port that takes connections. */
static int listen_at(struct sockaddr_in *own)
{
    socklen_t size = sizeof *own;
    *own = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = __real_socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)own, size), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)own, &size), 0);
    return fd;
}

/* Connects one to a peer of the test's own. */
static void connect_pair(bh__socket *self, int *peer)
{
    struct sockaddr_in own;
    int listener = listen_at(&own);
    struct addrinfo address = {
        .ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_addr = (struct sockaddr *)&own, .ai_addrlen = sizeof own};
    ck_assert_int_eq(bh__socket_begin(self, &address), 1);
    *peer = accept(listener, NULL, NULL);
    ck_assert_int_ge(*peer, 0);
    fcntl(*peer, F_SETFL, O_NONBLOCK);
    close(listener);
    struct pollfd ready = {self->fd, POLLOUT, 0};
    ck_assert_int_eq(poll(&ready, 1, LIMIT_MS), 1);
    ck_assert_int_eq(bh__socket_connected(self), BH__DONE);
}

START_TEST(a_socket_is_never_inheritable_nor_blocking)
{
    bh__socket made;
    int peer;
    connect_pair(&made, &peer);
    ck_assert_int_eq(opened, 1);
    ck_assert_int_eq(inheritable, 0);
    ck_assert_int_eq(blocking, 0);
    bh__socket_close(&made);
    ck_assert_int_eq(made.fd, -1);
    close(peer);
}
END_TEST

START_TEST(the_pipe_of_a_lookup_is_never_inheritable)
{
    bh__uri uri = {.host = "127.0.0.1", .port = 5672};
    struct addrinfo *addresses;
    int fd;
    bh__lookup *lookup = bh__lookup_begin(&fd, &uri);
    ck_assert_ptr_nonnull(lookup);
    ck_assert_int_eq(opened, 2);
    ck_assert_int_eq(inheritable, 0);
    struct pollfd done = {fd, POLLIN, 0};
    ck_assert_int_eq(poll(&done, 1, LIMIT_MS), 1);
    ck_assert_int_eq(bh__lookup_is_done(lookup), 1);
    ck_assert_int_eq(bh__lookup_end(lookup, &addresses), 0);
    ck_assert_ptr_nonnull(addresses);
    ck_assert_int_eq(addresses->ai_family, AF_INET);
    freeaddrinfo(addresses);
    close(fd);
}
END_TEST

START_TEST(f13_the_pipes_of_a_worker_are_open_while_it_runs_and_never_inheritable_nor_blocking)
{
    bh__mailbox mailbox = {.forks = 0};
    ck_assert_int_eq(bh__mailbox_init(&mailbox), 1);
    ck_assert_int_eq(opened, 0);
    ck_assert_int_eq(bh__mailbox_open(&mailbox), 1);
    ck_assert_int_eq(opened, 4);
    ck_assert_int_eq(inheritable, 0);
    ck_assert_int_eq(blocking, 0);
    int fd = bh__mailbox_watch(&mailbox);
    bh__mailbox_end(&mailbox);
    bh__mailbox_wake(&mailbox); /* nothing to wake */
    bh__mailbox_unwatch(&mailbox);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    bh__mailbox_free(&mailbox);
}
END_TEST

START_TEST(a_lookup_that_is_given_up_frees_itself)
{
    bh__uri uri = {.host = "::1", .port = 1};
    struct addrinfo *addresses;
    for (int i = 0; i < 50; i++) {
        int fd;
        bh__lookup *lookup = bh__lookup_begin(&fd, &uri);
        ck_assert_ptr_nonnull(lookup);
        int error = bh__lookup_end(lookup, &addresses); /* done or not: either is fine, and a leak is not */
        ck_assert(error == EAI_AGAIN || error == 0);
        if (addresses)
            freeaddrinfo(addresses);
        struct pollfd done = {fd, POLLIN, 0};
        ck_assert_int_eq(poll(&done, 1, LIMIT_MS), 1); /* the thread has ended */
        close(fd);
    }
}
END_TEST

/* ---------------------------------------------------------------------------------------- bytes */

START_TEST(bytes_go_both_ways_and_none_is_none)
{
    bh__socket made;
    int peer;
    char bytes[8];
    connect_pair(&made, &peer);
    ck_assert_int_eq(bh__socket_read(&made, bytes, sizeof bytes), 0);
    ck_assert_int_eq(bh__socket_write(&made, "to", 2), 2);
    struct pollfd ready = {peer, POLLIN, 0};
    ck_assert_int_eq(poll(&ready, 1, LIMIT_MS), 1);
    ck_assert_int_eq(read(peer, bytes, sizeof bytes), 2);
    ck_assert_int_eq(write(peer, "from", 4), 4);
    ready = (struct pollfd){made.fd, POLLIN, 0};
    ck_assert_int_eq(poll(&ready, 1, LIMIT_MS), 1);
    ck_assert_int_eq(bh__socket_read(&made, bytes, sizeof bytes), 4);
    close(peer);
    ck_assert_int_eq(poll(&ready, 1, LIMIT_MS), 1);
    ck_assert_int_eq(bh__socket_read(&made, bytes, sizeof bytes), -1);
    ck_assert_int_eq(errno, 0); /* closed by the peer */
    bh__socket_close(&made);
}
END_TEST

START_TEST(a_port_where_nobody_listens_is_refused)
{
    struct sockaddr_in own;
    bh__socket made;
    close(listen_at(&own));
    struct addrinfo address = {
        .ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_addr = (struct sockaddr *)&own, .ai_addrlen = sizeof own};
    int begun = bh__socket_begin(&made, &address);
    if (begun) {
        struct pollfd ready = {made.fd, POLLOUT, 0};
        ck_assert_int_eq(poll(&ready, 1, LIMIT_MS), 1);
        ck_assert_int_eq(bh__socket_connected(&made), BH__BROKEN);
    }
    ck_assert_int_eq(errno, ECONNREFUSED);
    bh__socket_close(&made);
    address.ai_family = -1;
    ck_assert_int_eq(bh__socket_begin(&made, &address), 0);
    ck_assert_int_eq(made.fd, -1);
}
END_TEST

/* ------------------------------------------------------------------------------------------ TLS */

static EVP_PKEY *key;
static X509 *certificate;
static int trusts_the_system;
static char ca_file[] = "/tmp/test-wire-ca-XXXXXX"; /* has the private key too */
static int requires_certificate;                    /* of the client */
static long valid_s = 3600;                         /* from now on */
static const char *client_cert, *client_key;

/* A certificate that signs itself, for this common name and these alternative names ("": none). */
static void make_certificate(const char *common_name, const char *names)
{
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, NULL);
    ck_assert(EVP_PKEY_keygen_init(context) == 1 &&
              EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1) == 1 &&
              EVP_PKEY_keygen(context, &key) == 1);
    EVP_PKEY_CTX_free(context);
    certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), valid_s);
    X509_set_pubkey(certificate, key);
    X509_NAME *name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)common_name, -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    if (*names) {
        X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, names);
        ck_assert_ptr_nonnull(extension);
        X509_add_ext(certificate, extension, -1);
        X509_EXTENSION_free(extension);
    }
    ck_assert_int_gt(X509_sign(certificate, key, EVP_sha256()), 0);
    int fd = mkstemp(ca_file);
    ck_assert_int_ge(fd, 0);
    FILE *file = fdopen(fd, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(PEM_write_X509(file, certificate), 1);
    ck_assert_int_eq(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
}

static void free_certificate(void)
{
    unlink(ca_file);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

/* Connects to the host by TLS; the server has a certificate for these names. */
static bh_status secure(const char *host, const char *common_name, const char *names, bh__report *report)
{
    bh__uri uri = {.host = host, .port = 5671};
    bh__socket client;
    int peer;
    char bytes[8] = "";
    make_certificate(common_name, names);
    connect_pair(&client, &peer);
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    ck_assert(SSL_CTX_use_certificate(context, certificate) == 1 && SSL_CTX_use_PrivateKey(context, key) == 1);
    if (requires_certificate) {
        SSL_CTX_load_verify_locations(context, ca_file, NULL);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    }
    SSL *server = SSL_new(context);
    SSL_set_fd(server, peer);
    SSL_set_accept_state(server);
    bh__step step = BH__AGAIN;
    const bh__tls_files files = {trusts_the_system ? NULL : ca_file, client_cert, client_key};
    bh_status status = bh__socket_begin_tls(&client, &uri, &files, report);
    for (int waited = 0; status == BH_OK && step == BH__AGAIN; waited += TICK_MS) {
        ck_assert_int_lt(waited, LIMIT_MS);
        status = bh__socket_handshake(&client, &uri, &step, report);
        SSL_do_handshake(server);
        struct pollfd ready = {client.fd, POLLIN, 0};
        poll(&ready, 1, TICK_MS);
    }
    if (status == BH_OK) { /* and it can be used */
        ssize_t got = 0;
        ck_assert_int_eq(bh__socket_write(&client, "ping", 4), 4);
        for (int waited = 0; SSL_read(server, bytes, sizeof bytes) != 4; waited += TICK_MS) {
            ck_assert_int_lt(waited, LIMIT_MS);
            poll(NULL, 0, TICK_MS);
        }
        ck_assert_mem_eq(bytes, "ping", 4);
        ck_assert_int_eq(SSL_write(server, "pong!", 5), 5);
        for (int waited = 0; (got = bh__socket_read(&client, bytes, sizeof bytes)) == 0; waited += TICK_MS) {
            ck_assert_int_lt(waited, LIMIT_MS);
            poll(NULL, 0, TICK_MS);
        }
        ck_assert_int_eq(got, 5);
        SSL_shutdown(server);
        for (int waited = 0; (got = bh__socket_read(&client, bytes, sizeof bytes)) == 0; waited += TICK_MS) {
            ck_assert_int_lt(waited, LIMIT_MS);
            poll(NULL, 0, TICK_MS);
        }
        ck_assert_int_eq(got, -1);
    }
    bh__socket_close(&client);
    SSL_free(server);
    SSL_CTX_free(context);
    close(peer);
    free_certificate();
    return status;
}

static void expect_accepted(const char *host, const char *common_name, const char *names)
{
    bh__report report = {.status = BH_OK};
    bh_status status = secure(host, common_name, names, &report);
    ck_assert_msg(status == BH_OK, "%s", bh__report_text(&report).data);
    bh__report_free(&report);
}

static void expect_refused(const char *host, const char *common_name, const char *names, const char *part)
{
    bh__report report = {.status = BH_OK};
    ck_assert_int_eq(secure(host, common_name, names, &report), BH_ERR_TLS);
    ck_assert_msg(strstr(bh__report_text(&report).data, part) != NULL, "%s", bh__report_text(&report).data);
    bh__report_free(&report);
}

/* part: of the error; NULL: the certificate is accepted. */
static const struct {
    const char *host, *common_name, *names, *part;
} certificates[] = {
    {"broker.example.com", "somebody", "DNS:other.example.com,DNS:broker.example.com", NULL},
    {"broker.example.com", "somebody", "DNS:*.example.com", NULL},
    {"127.0.0.1", "somebody", "IP:127.0.0.1", NULL},
    {"broker.example.com", "broker.example.com", "", "have it issued with the subjectAltName DNS:broker.example.com"},
    {"broker.example.com", "broker.example.com", "IP:127.0.0.1", "its common name is not looked at"},
    {"broker.example.com", "somebody", "DNS:bro*.example.com", "subjectAltName DNS:broker.example.com"},
    {"broker.eu.example.com", "somebody", "DNS:*.example.com", "does not name this host"},
    {"broker.example.com", "somebody", "DNS:broker.example.org", "does not name this host"},
    {"127.0.0.1", "127.0.0.1", "DNS:127.0.0.1", "subjectAltName IP:127.0.0.1"},
};

START_TEST(a_certificate_has_the_host_in_its_subject_alt_name)
{
    if (certificates[_i].part)
        expect_refused(certificates[_i].host, certificates[_i].common_name, certificates[_i].names,
                       certificates[_i].part);
    else
        expect_accepted(certificates[_i].host, certificates[_i].common_name, certificates[_i].names);
}
END_TEST

START_TEST(F12_the_advice_about_an_expired_certificate_fits)
{
    valid_s = -60;
    expect_refused("broker.example.com", "somebody", "DNS:broker.example.com", "expired); renew it");
    valid_s = 3600;
}
END_TEST

START_TEST(a_certificate_that_no_trusted_ca_has_signed_is_refused_with_what_to_do)
{
    bh__report report = {.status = BH_OK};
    trusts_the_system = 1;
    ck_assert_int_eq(secure("broker.example.com", "somebody", "DNS:broker.example.com", &report), BH_ERR_TLS);
    ck_assert_msg(strstr(bh__report_text(&report).data, "name the file of the CA") != NULL, "%s",
                  bh__report_text(&report).data);
    bh__report_free(&report);
}
END_TEST

START_TEST(a_ca_file_that_is_none_is_refused_by_its_name)
{
    bh__uri uri = {.host = "broker.example.com", .port = 5671};
    bh__report report = {.status = BH_OK};
    const char *file = _i ? "/dev/null" : "/nonexistent/ca.pem";
    bh__socket made;
    int peer;
    connect_pair(&made, &peer);
    ck_assert_int_eq(bh__socket_begin_tls(&made, &uri, &(bh__tls_files){.ca = file}, &report), BH_ERR_TLS);
    ck_assert_ptr_nonnull(strstr(bh__report_text(&report).data, file));
    bh__socket_close(&made);
    close(peer);
    bh__report_free(&report);
}
END_TEST

START_TEST(X14_a_client_certificate_is_sent)
{
    requires_certificate = 1;
    client_cert = ca_file;
    client_key = _i ? ca_file : NULL;
    expect_accepted("broker.example.com", "somebody", "DNS:broker.example.com");
}
END_TEST

START_TEST(X14_a_certificate_or_key_that_is_none_is_refused_by_its_name)
{
    client_cert = _i ? ca_file : "/nonexistent/cert.pem";
    client_key = "/nonexistent/key.pem";
    expect_refused("broker.example.com", "somebody", "DNS:broker.example.com", _i ? client_key : client_cert);
}
END_TEST

/* The peer sends words that are no TLS; no words: it closes. */
static void expect_no_tls(const char *words)
{
    bh__uri uri = {.host = "broker.example.com", .port = 5672};
    bh__report report = {.status = BH_OK};
    bh__socket made;
    int peer;
    bh__step step = BH__AGAIN;
    connect_pair(&made, &peer);
    bh_status status = bh__socket_begin_tls(&made, &uri, &(bh__tls_files){.ca = NULL}, &report);
    ck_assert_int_eq(status, BH_OK);
    ck_assert_int_eq(write(peer, words, strlen(words)), (ssize_t)strlen(words));
    shutdown(peer, SHUT_WR);
    for (int waited = 0; status == BH_OK; waited += TICK_MS) {
        ck_assert_int_lt(waited, LIMIT_MS);
        status = bh__socket_handshake(&made, &uri, &step, &report);
        poll(NULL, 0, TICK_MS);
    }
    ck_assert_int_eq(status, BH_ERR_TLS);
    ck_assert_msg(strstr(bh__report_text(&report).data, "check that this port uses TLS") != NULL, "%s",
                  bh__report_text(&report).data);
    bh__socket_close(&made);
    close(peer);
    bh__report_free(&report);
}

START_TEST(a_peer_that_speaks_no_tls_is_told_with_what_to_check)
{
    expect_no_tls("AMQP");
    expect_no_tls("HTTP/1.1 400 Bad Request\r\n\r\n");
    expect_no_tls("");
}
END_TEST

Suite *suite_socket(void)
{
    Suite *suite = suite_create("socket");
    TCase *descriptors = tcase_create("descriptors");
    tcase_add_test(descriptors, a_socket_is_never_inheritable_nor_blocking);
    tcase_add_test(descriptors, the_pipe_of_a_lookup_is_never_inheritable);
    tcase_add_test(descriptors, f13_the_pipes_of_a_worker_are_open_while_it_runs_and_never_inheritable_nor_blocking);
    tcase_add_test(descriptors, a_lookup_that_is_given_up_frees_itself);
    suite_add_tcase(suite, descriptors);
    TCase *bytes = tcase_create("bytes");
    tcase_add_test(bytes, bytes_go_both_ways_and_none_is_none);
    tcase_add_test(bytes, a_port_where_nobody_listens_is_refused);
    suite_add_tcase(suite, bytes);
    TCase *tls = tcase_create("TLS");
    tcase_add_loop_test(tls, a_certificate_has_the_host_in_its_subject_alt_name, 0,
                        (int)(sizeof certificates / sizeof certificates[0]));
    tcase_add_test(tls, F12_the_advice_about_an_expired_certificate_fits);
    tcase_add_test(tls, a_certificate_that_no_trusted_ca_has_signed_is_refused_with_what_to_do);
    tcase_add_loop_test(tls, a_ca_file_that_is_none_is_refused_by_its_name, 0, 2);
    tcase_add_loop_test(tls, X14_a_client_certificate_is_sent, 0, 2);
    tcase_add_loop_test(tls, X14_a_certificate_or_key_that_is_none_is_refused_by_its_name, 0, 2);
    tcase_add_test(tls, a_peer_that_speaks_no_tls_is_told_with_what_to_check);
    suite_add_tcase(suite, tls);
    return suite;
}
