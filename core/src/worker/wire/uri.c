#include "worker/wire/uri.h"

#include "base/memory.h"

#include <stdlib.h>

enum { HEARTBEAT_S = 60, PORT = 5672, TLS_PORT = 5671, MOST = 65535, LONGEST_VHOST = 255 };

#define FORM "amqp[s]://user:password@host:port/vhost?heartbeat=seconds"

static bh_bytes slice(const char *begin, const char *end)
{
    bh_bytes bytes = {begin, (size_t)(end - begin)};
    return bytes;
}

/* Returns the first of the characters in `set` from `begin` on, else `end`. */
static const char *find_any(const char *begin, const char *end, const char *set)
{
    while (begin < end && !strchr(set, *begin))
        begin++;
    return begin;
}

static const char *find_last_of(const char *begin, const char *end, char character)
{
    for (const char *at = end; at > begin; at--)
        if (at[-1] == character)
            return at - 1;
    return NULL;
}

static int hex(char digit)
{
    return digit >= '0' && digit <= '9'   ? digit - '0'
           : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
           : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                          : -1;
}

/* Writes `part`, its percent escapes decoded, and a zero byte at *to. RFC 3986, section 2.1. */
static int decode_escapes(char **to, bh_bytes part)
{
    for (size_t i = 0; i < part.size; i++) {
        char character = part.data[i];
        if (character == '%') {
            if (part.size - i < 3 || hex(part.data[i + 1]) < 0 || hex(part.data[i + 2]) < 0)
                return 0;
            character = (char)(hex(part.data[i + 1]) * 16 + hex(part.data[i + 2]));
            i += 2;
        }
        if (character == '\0')
            return 0;
        *(*to)++ = character;
    }
    *(*to)++ = '\0';
    return 1;
}

/* Returns a number of 0 to 65535 from decimal digits; -1 for anything else. */
static int port_or_seconds(bh_bytes digits)
{
    int value = 0;
    for (size_t i = 0; i < digits.size; i++) {
        if (digits.data[i] < '0' || digits.data[i] > '9' || value > MOST)
            return -1;
        value = value * 10 + (digits.data[i] - '0');
    }
    return digits.size && value <= MOST ? value : -1;
}

static int begins_with_scheme(bh_bytes uri, const char *scheme)
{
    size_t size = strlen(scheme);
    if (uri.size < size)
        return 0;
    for (size_t i = 0; i < size; i++) {
        char letter = uri.data[i];
        if ((letter >= 'A' && letter <= 'Z' ? letter - 'A' + 'a' : letter) != scheme[i])
            return 0;
    }
    return 1;
}

static bh_status refuse_uri(bh__report *report, const char *reason)
{
    return bh__report_set(report, BH_ERR_URI, "the URI cannot be used: %s; its form is " FORM, reason);
}

bh_status bh__uri_parse(bh__uri *self, bh_bytes uri, bh__report *report)
{
    bh__uri_free(self);
    if (uri.size && memchr(uri.data, '\0', uri.size))
        return refuse_uri(report, "it has a zero byte");
    for (size_t i = 0; i < uri.size; i++)
        if ((unsigned char)uri.data[i] < ' ' || uri.data[i] == 0x7f)
            return refuse_uri(report, "it has a control character, such as a line break at its end: remove it");
    int tls = begins_with_scheme(uri, "amqps://");
    if (!tls && !begins_with_scheme(uri, "amqp://"))
        return refuse_uri(report, "it begins neither with amqp:// nor with amqps://");

    const char *end = uri.data + uri.size;
    const char *begin = uri.data + strlen(tls ? "amqps://" : "amqp://");
    if (find_any(begin, end, "#") != end)
        return refuse_uri(report, "it has a '#', which must be written %23");
    const char *query = find_any(begin, end, "?");
    const char *path = find_any(begin, query, "/");

    bh_bytes user = bh_str("guest"), password = bh_str("guest");
    const char *at = find_last_of(begin, path, '@');
    if (at) {
        const char *colon = find_any(begin, at, ":");
        user = slice(begin, colon);
        if (colon < at)
            password = slice(colon + 1, at);
        begin = at + 1;
    }

    bh_bytes host, port;
    const char *colon;
    if (begin < path && *begin == '[') {
        const char *bracket = find_any(begin, path, "]");
        if (bracket == path)
            return refuse_uri(report, "the '[' before the host has no ']'");
        host = slice(begin + 1, bracket);
        colon = bracket + 1;
        if (colon < path && *colon != ':')
            return refuse_uri(report, "after the ']' of the host only ':' and a port may follow");
    } else {
        colon = find_any(begin, path, ":");
        host = slice(begin, colon);
    }
    if (host.size == 0)
        host = bh_str("localhost");
    self->port = tls ? TLS_PORT : PORT;
    if (colon < path) {
        port = slice(colon + 1, path);
        self->port = port_or_seconds(port);
        if (self->port < 1)
            return refuse_uri(report,
                              "the port is not a number from 1 to 65535 (in a password, '/' must be written %2F, "
                              "'?' %3F, '#' %23, '@' %40 and '%' %25; an IPv6 host stands in brackets)");
    }

    bh_bytes vhost = path < query ? slice(path + 1, query) : bh_str("");
    if (vhost.size == 0)
        vhost = bh_str("/");
    else if (find_any(vhost.data, query, "/@") != query)
        return refuse_uri(report, "in user, password and vhost, '/' must be written %2F and '@' %40");

    self->heartbeat_s = HEARTBEAT_S;
    if (query < end) {
        const char *name = "heartbeat=";
        bh_bytes setting = slice(query + 1, end);
        if (!bh__begins(setting, name) || find_any(setting.data, end, "&") != end)
            return refuse_uri(report, "after '?' only heartbeat=seconds is understood");
        self->heartbeat_s = port_or_seconds(slice(setting.data + strlen(name), end));
        if (self->heartbeat_s < 0)
            return refuse_uri(report, "the heartbeat is not a number of seconds from 0 to 65535");
    }

    self->text = malloc(user.size + password.size + host.size + vhost.size + 4);
    if (!self->text)
        return bh__report_set(report, BH_ERR_NO_MEMORY, "no memory for the URI");
    self->tls = tls;
    self->has_user = at != NULL;
    char *to = self->text;
    bh_bytes parts[] = {user, password, host, vhost};
    const char **strings[] = {&self->user, &self->password, &self->host, &self->vhost};
    for (size_t i = 0; i < 4; i++) {
        *strings[i] = to;
        if (!decode_escapes(&to, parts[i])) {
            bh__uri_free(self);
            return refuse_uri(report, "a '%' in it is not followed by two hexadecimal digits other than 00");
        }
    }
    if (strlen(self->vhost) > LONGEST_VHOST) {
        bh__uri_free(self);
        return refuse_uri(report, "the vhost is longer than 255 bytes");
    }
    return BH_OK;
}

void bh__uri_free(bh__uri *self)
{
    free(self->text);
    *self = (bh__uri){.text = NULL};
}
