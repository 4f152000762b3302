/* URI: amqp[s]://user:password@host:port/vhost?heartbeat=seconds, taken apart. Internal. */
#ifndef BACKHOP_WORKER_WIRE_URI_H
#define BACKHOP_WORKER_WIRE_URI_H

#include "report.h"

typedef struct bh__uri {
    int tls;
    int port;
    int heartbeat_s;
    char *text; /* holds the strings below, each with a zero byte behind it */
    const char *user;
    const char *password;
    const char *host;
    const char *vhost;
} bh__uri;

/* Replaces what was parsed before. BH_ERR_URI, BH_ERR_NO_MEMORY; the report never repeats a part of the URI, because
 * a password with a character that is not escaped can end up in any of them. */
bh_status bh__uri_parse(bh__uri *self, bh_bytes uri, bh__report *report);
void bh__uri_free(bh__uri *self);

#endif
