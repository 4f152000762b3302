/* Fuzzing: bytes are a URI. An accepted URI is within its limits, and means the same when it is
 * written anew with every character escaped. A refused URI has a reason. */
#include "fuzz.h"

#include "worker/wire/uri.h"

#include <string.h>

enum { MOST_BYTES = 4096 };

static char *escape(char *to, const char *text)
{
    for (; *text; text++)
        to += sprintf(to, "%%%02x", (unsigned char)*text);
    return to;
}

static void check_understood(const bh__uri *uri, size_t size)
{
    static char text[12 * MOST_BYTES + 256];
    bh__uri again = {.text = NULL};
    bh__report report = {.status = BH_OK};
    CHECK(uri->port >= 1 && uri->port <= 65535 && uri->heartbeat_s >= 0 && uri->heartbeat_s <= 65535);
    CHECK(strlen(uri->user) + strlen(uri->password) + strlen(uri->host) + strlen(uri->vhost) <=
          size + strlen("guestguestlocalhost/"));
    CHECK(*uri->host && *uri->vhost && strlen(uri->vhost) <= 255);
    char *to = text + sprintf(text, "amqp%s://", uri->tls ? "s" : "");
    to = escape(to, uri->user);
    *to++ = ':';
    to = escape(to, uri->password);
    *to++ = '@';
    to = escape(to, uri->host);
    to += sprintf(to, ":%d/", uri->port);
    to = escape(to, uri->vhost);
    sprintf(to, "?heartbeat=%d", uri->heartbeat_s);
    CHECK(bh__uri_parse(&again, bh_str(text), &report) == BH_OK);
    CHECK(again.tls == uri->tls && again.port == uri->port && again.heartbeat_s == uri->heartbeat_s);
    CHECK(strcmp(again.user, uri->user) == 0 && strcmp(again.password, uri->password) == 0);
    CHECK(strcmp(again.host, uri->host) == 0 && strcmp(again.vhost, uri->vhost) == 0);
    bh__uri_free(&again);
    bh__report_free(&report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > MOST_BYTES)
        return 0;
    bh__uri uri = {.text = NULL};
    bh__report report = {.status = BH_OK};
    bh_status status = bh__uri_parse(&uri, (bh_bytes){(const char *)data, size}, &report);
    if (status == BH_OK) {
        check_understood(&uri, size);
    } else {
        CHECK(status == BH_ERR_URI && report.status == status && !uri.text);
        CHECK(strncmp(bh__report_text(&report).data, "the URI cannot be used: ", 24) == 0);
    }
    bh__uri_free(&uri);
    bh__report_free(&report);
    return 0;
}
