#include "web/requests.h"

#include "web/access.h"

#include "base/buffer.h"
#include "common/output.h"
#include "worker/wire/clock.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_HEADERS = 8, MOST_STREAM_BYTES = 1048576, BLOCK_BYTES = 16384 };

struct request {
    request *next;
    server *server;
    struct MHD_Connection *connection;
    client *client;
    const char *method, *path;
    char *body;
    size_t body_size;
    int is_handled, is_suspended, is_stream, is_over;
    unsigned status;
    struct MHD_Response *response;
    char *names[MOST_HEADERS], *values[MOST_HEADERS];
    size_t header_count;
    bh__buffer events; /* of a stream, which were not sent */
};

/* -------------------------------------------------------------------------------------- reading */

const char *request_method(const request *self)
{
    return self->method;
}

const char *request_path(const request *self)
{
    return self->path;
}

const char *request_header(const request *self, const char *name)
{
    return MHD_lookup_connection_value(self->connection, MHD_HEADER_KIND, name);
}

const char *request_cookie(const request *self, const char *name)
{
    return MHD_lookup_connection_value(self->connection, MHD_COOKIE_KIND, name);
}

const char *request_body(const request *self, size_t *size)
{
    *size = self->body_size;
    return self->body ? self->body : "";
}

/* ------------------------------------------------------------------------------------ answering */

void request_add_header(request *self, const char *name, const char *value)
{
    if (self->header_count == MOST_HEADERS)
        return;
    self->names[self->header_count] = copy_text(bh_str(name));
    self->values[self->header_count++] = copy_text(bh_str(value));
}

static void add_headers(request *self, const char *type)
{
    const char *const(*each)[2] = self->server->settings->headers;
    MHD_add_response_header(self->response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    for (; each && (*each)[0]; each++)
        MHD_add_response_header(self->response, (*each)[0], (*each)[1]);
    for (size_t i = 0; i < self->header_count; i++)
        MHD_add_response_header(self->response, self->names[i], self->values[i]);
}

static void resume(request *self)
{
    if (!self->is_suspended)
        return;
    MHD_resume_connection(self->connection); /* requests_on_access is called again, or next_events */
    self->is_suspended = 0;
    self->server->is_resumed = 1;
}

void request_answer(request *self, unsigned status, const char *type, const void *body, size_t size)
{
    static char nothing[1];
    self->response =
        must(MHD_create_response_from_buffer(size, size ? (void *)(uintptr_t)body : nothing, MHD_RESPMEM_MUST_COPY));
    self->status = status;
    add_headers(self, type);
    resume(self);
}

void request_answer_file(request *self, const char *type, int fd, size_t size)
{
    self->response = must(MHD_create_response_from_fd(size, fd)); /* which closes it */
    self->status = MHD_HTTP_OK;
    add_headers(self, type);
    resume(self);
}

void request_later(request *self)
{
    MHD_suspend_connection(self->connection);
    self->is_suspended = 1;
}

/* -------------------------------------------------------------------------------------- streams */

/* Gives libmicrohttpd the next events, or suspends the connection until there are some: without
 * that it would try for ever. */
static ssize_t next_events(void *data, uint64_t at, char *out, size_t room)
{
    request *self = data;
    size_t size = bh__buffer_size(&self->events);
    (void)at;
    if (self->is_over)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (size == 0) {
        request_later(self);
        return 0;
    }
    size = size < room ? size : room;
    memcpy(out, self->events.data + self->events.begin, size);
    self->events.begin += size;
    return (ssize_t)size;
}

static void add_event(request *self, const char *event)
{
    size_t size = strlen(event);
    if (bh__buffer_size(&self->events) == 0)
        bh__buffer_clear(&self->events);
    self->is_over |= bh__buffer_size(&self->events) + size > MOST_STREAM_BYTES;
    if (!self->is_over) {
        if (!bh__buffer_reserve(&self->events, size))
            must(NULL);
        bh__put_bytes(&self->events, bh_str(event));
    }
    resume(self);
}

void request_stream(request *self, const char *event)
{
    self->is_stream = 1;
    add_event(self, event);
    self->response = must(MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, next_events, self, NULL));
    self->status = MHD_HTTP_OK;
    add_headers(self, "text/event-stream");
}

void server_broadcast(server *self, const char *event)
{
    for (request *each = self->requests; each; each = each->next)
        if (each->is_stream)
            add_event(each, event);
}

size_t server_streams(const server *self)
{
    size_t count = 0;
    for (const request *each = self->requests; each; each = each->next)
        count += (size_t)each->is_stream;
    return count;
}

/* ------------------------------------------------------------------------------------- arriving */

static void refuse(request *self, unsigned status, const char *text)
{
    self->is_handled = 1;
    request_add_header(self, MHD_HTTP_HEADER_CONNECTION, "close");
    request_answer(self, status, "text/plain; charset=utf-8", text, strlen(text));
}

/* Headers that a request may have once. A proxy and this program could read different ones of
 * two. */
static const char *const single_headers[] = {MHD_HTTP_HEADER_HOST,
                                             MHD_HTTP_HEADER_CONTENT_LENGTH,
                                             MHD_HTTP_HEADER_TRANSFER_ENCODING,
                                             MHD_HTTP_HEADER_ORIGIN,
                                             MHD_HTTP_HEADER_COOKIE,
                                             "Sec-Fetch-Site",
                                             MHD_HTTP_HEADER_CONTENT_TYPE,
                                             "X-Backhop",
                                             "X-Forwarded-Proto"};
enum { SINGLE_HEADERS = sizeof single_headers / sizeof single_headers[0] };

struct head {
    size_t size;
    int counts[SINGLE_HEADERS + 1]; /* of single_headers, and of the header of the settings */
    const char *single;
};

static enum MHD_Result add_header(void *data, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct head *head = data;
    (void)kind;
    head->size += strlen(name) + (value ? strlen(value) : 0) + strlen(": \r\n");
    for (size_t i = 0; i < SINGLE_HEADERS; i++)
        head->counts[i] += strcasecmp(name, single_headers[i]) == 0;
    head->counts[SINGLE_HEADERS] += head->single && strcasecmp(name, head->single) == 0;
    return MHD_YES;
}

static int has_doubles(const struct head *head)
{
    for (size_t i = 0; i <= SINGLE_HEADERS; i++)
        if (head->counts[i] > 1)
            return 1;
    return 0;
}

/* Refuses a request by its head alone. */
static void check_head(request *self)
{
    struct head head = {.size = strlen(self->method) + strlen(self->path),
                        .single = self->server->settings->single_header};
    const char *length = request_header(self, MHD_HTTP_HEADER_CONTENT_LENGTH);
    MHD_get_connection_values(self->connection, MHD_HEADER_KIND, add_header, &head);
    if (head.size > SERVER_MOST_HEAD)
        refuse(self, MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, "the head of this request is too large\n");
    else if (has_doubles(&head))
        refuse(self, MHD_HTTP_BAD_REQUEST, "a header is there twice that may be there once\n");
    else if (length && request_header(self, MHD_HTTP_HEADER_TRANSFER_ENCODING))
        refuse(self, MHD_HTTP_BAD_REQUEST, "Content-Length and Transfer-Encoding exclude each other\n");
    else if (!access_allows_host(request_header(self, MHD_HTTP_HEADER_HOST), &self->server->settings->hosts))
        refuse(self, MHD_HTTP_MISDIRECTED_REQUEST,
               "this name is not served here: --host NAME allows a name in the Host header\n");
    else if (length && strtoull(length, NULL, 10) > self->server->settings->most_body)
        refuse(self, MHD_HTTP_CONTENT_TOO_LARGE, "the body of this request is too large\n");
}

static request *begin(server *self, struct MHD_Connection *connection, const char *path, const char *method)
{
    request *made = must(calloc(1, sizeof *made));
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    *made = (request){.next = self->requests,
                      .server = self,
                      .connection = connection,
                      .client = info ? info->socket_context : NULL,
                      .method = method,
                      .path = path};
    self->requests = made;
    check_head(made);
    return made;
}

static enum MHD_Result add_body(request *self, const char *upload, size_t *size)
{
    if (self->body_size + *size > self->server->settings->most_body)
        return MHD_NO; /* a body that gave no length */
    self->body = must(realloc(self->body, self->body_size + *size + 1));
    memcpy(self->body + self->body_size, upload, *size);
    self->body_size += *size;
    self->body[self->body_size] = '\0';
    *size = 0;
    return MHD_YES;
}

enum MHD_Result requests_on_access(void *data, struct MHD_Connection *connection, const char *path, const char *method,
                                   const char *version, const char *upload, size_t *upload_size, void **context)
{
    server *self = data;
    request *it = *context;
    (void)version;
    if (!it) {
        *context = it = begin(self, connection, path, method);
        if (!it->response)
            return MHD_YES;
    } else if (*upload_size > 0) {
        return add_body(it, upload, upload_size);
    }
    if (it->client)
        it->client->is_arriving = 0;
    if (!it->is_handled) {
        it->is_handled = 1;
        self->settings->handle(self->settings->data, it);
    }
    if (!it->response)
        return MHD_YES; /* suspended */
    if (it->client && !it->is_stream) {
        it->client->is_answered = 1;
        it->client->since_ms = bh__monotonic_ms();
    }
    enum MHD_Result result = MHD_queue_response(connection, it->status, it->response);
    MHD_destroy_response(it->response); /* libmicrohttpd has its own reference */
    it->response = NULL;
    return result;
}

static void destroy(request *self)
{
    for (request **at = &self->server->requests; *at; at = &(*at)->next)
        if (*at == self) {
            *at = self->next;
            break;
        }
    for (size_t i = 0; i < self->header_count; i++) {
        free(self->names[i]);
        free(self->values[i]);
    }
    bh__buffer_free(&self->events);
    free(self->body);
    free(self);
}

void requests_on_completed(void *data, struct MHD_Connection *connection, void **context,
                           enum MHD_RequestTerminationCode code)
{
    request *it = *context;
    (void)data, (void)connection, (void)code;
    if (!it)
        return;
    if (it->client) {
        it->client->is_answered = 0;
        it->client->is_arriving = 1; /* the next request of this connection */
        it->client->since_ms = bh__monotonic_ms();
    }
    destroy(it);
    *context = NULL;
}

void requests_end_all(server *self)
{
    for (request *each = self->requests; each; each = each->next) {
        each->is_over = 1;
        if (each->is_stream)
            resume(each);
        else if (each->is_suspended)
            refuse(each, MHD_HTTP_SERVICE_UNAVAILABLE, "this program ends\n");
    }
}
