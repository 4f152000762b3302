/*
 * Server: HTTP/1.1 on libmicrohttpd, in the caller's thread. `backhop exporter` and `backhop web`
 * use it.
 *
 *     server_open(&it, &settings);                 listens
 *     server_poll(it, others, count, 1000);        waits, then calls settings.handle for each request that is complete
 *     server_close(it);
 *
 * A request that is not let in by its Host header never reaches the handler. Everything is bounded:
 * SERVER_MOST_CLIENTS connections, heads of SERVER_MOST_HEAD bytes, bodies, and the time of a
 * request. If all connections are taken, a new one replaces the oldest one that has sent no whole
 * request.
 */
#ifndef BACKHOP_COMMAND_WEB_SERVER_H
#define BACKHOP_COMMAND_WEB_SERVER_H

#include "common/options.h"

#include <poll.h>
#include <stddef.h>

enum { SERVER_MOST_CLIENTS = 32, SERVER_MOST_HEAD = 8192, SERVER_MOST_OTHERS = 64 };

typedef struct server server;
typedef struct request request;

typedef struct server_settings {
    const char *address;             /* host:port, [address]:port, :port for this machine alone, or unix:PATH */
    texts hosts;                     /* names in Host headers, besides localhost and addresses */
    size_t most_body;                /* bytes */
    int64_t request_ms;              /* how long a request may take to arrive */
    const char *single_header;       /* a further header that a request may have once; NULL: none */
    const char *const (*headers)[2]; /* names and values that each answer has; the last name is NULL. NULL: none */
    void (*handle)(void *data, request *it); /* calls request_answer, request_later or request_stream */
    void *data;
} server_settings;

/* Listens. `settings` are used until server_close. Complains and returns 0 if it cannot. */
int server_open(server **out, const server_settings *settings);
/* Answers all requests that wait, with 503, and closes. NULL is allowed. */
void server_close(server *self);
/* Waits at most `limit_ms` for requests and for `others`, whose revents it sets; works on the
 * requests. */
void server_poll(server *self, struct pollfd *others, size_t count, int limit_ms);
/* Writes "http://127.0.0.1:9419", or "unix:PATH". Returns the port; 0 for a Unix socket. */
int server_url(const server *self, char out[300]);
/* Returns 1 if only processes of this machine can connect. */
int server_is_local(const server *self);

/* Sends an event to all streams. A stream that does not read is ended. */
void server_broadcast(server *self, const char *event);
/* Returns the number of streams that are open. */
size_t server_streams(const server *self);

/* Reads the request. Texts are the request's, until it is answered. A missing header or cookie is
 * NULL. */
const char *request_method(const request *self);
const char *request_path(const request *self);
const char *request_header(const request *self, const char *name);
const char *request_cookie(const request *self, const char *name);
const char *request_body(const request *self, size_t *size);

/* Adds a header to the answer. Both texts are copied. */
void request_add_header(request *self, const char *name, const char *value);
/* Answers with a copy of the body. The request is gone then. */
void request_answer(request *self, unsigned status, const char *type, const void *body, size_t size);
/* Answers with a file, which is closed. */
void request_answer_file(request *self, const char *type, int fd, size_t size);
/* Keeps the request until request_answer, after the handler has returned. */
void request_later(request *self);
/* Answers with a stream of events, which begins with `event`. */
void request_stream(request *self, const char *event);

#endif
