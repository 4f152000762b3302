/* Requests: what server.c and requests.c share. Internal. */
#ifndef BACKHOP_COMMAND_WEB_REQUESTS_H
#define BACKHOP_COMMAND_WEB_REQUESTS_H

#include "web/server.h"

#include <microhttpd.h>

/* A connection. */
typedef struct client {
    int fd;           /* -1: a free place */
    int is_arriving;  /* its next request is not complete */
    int is_answered;  /* it reads the answer; it is no stream */
    int64_t since_ms; /* monotonic: since when */
} client;

struct server {
    const server_settings *settings;
    struct MHD_Daemon *daemon;
    int socket;
    client clients[SERVER_MOST_CLIENTS];
    client *coming;    /* the one that is being added */
    int64_t accept_ms; /* monotonic: no connection is accepted before, as none could be */
    int is_resumed;    /* a connection is; MHD_run has to send its answer */
    request *requests; /* without an answer yet, and streams; linked by `next` */
};

/* Callbacks of libmicrohttpd. */
enum MHD_Result requests_on_access(void *data, struct MHD_Connection *connection, const char *path, const char *method,
                                   const char *version, const char *upload, size_t *upload_size, void **context);
void requests_on_completed(void *data, struct MHD_Connection *connection, void **context,
                           enum MHD_RequestTerminationCode code);
/* Answers all requests that wait, and ends all streams. */
void requests_end_all(server *self);

#endif
