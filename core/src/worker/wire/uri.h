/* URI: parses amqp[s]://user:password@host:port/vhost?heartbeat=seconds. Internal. */
#ifndef BACKHOP_WORKER_WIRE_URI_H
#define BACKHOP_WORKER_WIRE_URI_H

#include "base/report.h"

typedef struct bh__uri {
    int tls;
    int port;
    int heartbeat_s;
    int has_user; /* it names a user, or an empty one; otherwise the user is guest */
    char *text;   /* holds the strings below, each with a zero byte after it */
    const char *user;
    const char *password;
    const char *host;
    const char *vhost;
} bh__uri;

/* Parses a URI. BH_ERR_URI; BH_ERR_NO_MEMORY. The report never repeats a part of the URI,
 * because an unescaped password can end up in any part. */
bh_status bh__uri_parse(bh__uri *self, bh_bytes uri, bh__report *report);
void bh__uri_free(bh__uri *self);

#endif
