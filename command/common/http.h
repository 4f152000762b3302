/*
 * HTTP: one GET after the other, by libcurl. It is loaded on the first use of the management API,
 * so that the command also runs without it.
 */
#ifndef BACKHOP_COMMAND_HTTP_H
#define BACKHOP_COMMAND_HTTP_H

#include <stddef.h>

typedef struct http http;

typedef enum http_result {
    HTTP_ANSWERED,    /* with a status */
    HTTP_UNREACHABLE, /* no connection, or no answer in time */
    HTTP_NOT_TRUSTED, /* TLS could not be agreed on */
    HTTP_NO_URL,      /* the text is no URL */
    HTTP_NO_LIBRARY   /* there is no libcurl */
} http_result;

/* A client in *out, which http_free frees. Credentials, "" for none, are for URLs that have none.
 * HTTP_NO_LIBRARY: *problem is the reason, a constant. */
http_result http_new(http **out, const char *user, const char *password, const char *ca_file, const char **problem);
void http_free(http *self);
/* Ends http_get in another thread within a second, and each later one: HTTP_UNREACHABLE. */
void http_stop(http *self);
int http_is_stopped(const http *self);
/* Gets a URL. The answer ends with a zero byte, and is the client's until the next call. `problem`
 * has the URL's host, and no other part of the URL. */
http_result http_get(http *self, const char *url, long *status, const char **body, size_t *size, char problem[256]);

#endif
