#include "web/access.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LONGEST_HOST = 255 };

/* Returns the size of the host in "host:port" or "[address]:port"; 0: it is none. */
static size_t host_size(const char *text)
{
    size_t size = *text == '[' ? strcspn(text, "]") + 1 : strcspn(text, ":");
    size_t whole = strlen(text);
    if (size == 0 || size > whole || size > LONGEST_HOST)
        return 0;
    if (size == whole)
        return size;
    size_t digits = strspn(text + size + 1, "0123456789");
    return text[size] == ':' && digits > 0 && digits <= 5 && size + 1 + digits == whole ? size : 0;
}

static int is_address(const char *host)
{
    char plain[LONGEST_HOST + 1];
    struct in6_addr address;
    size_t size = strlen(host);
    if (*host != '[')
        return inet_pton(AF_INET, host, &address) == 1;
    snprintf(plain, sizeof plain, "%.*s", (int)(size - 2), host + 1);
    return host[size - 1] == ']' && inet_pton(AF_INET6, plain, &address) == 1;
}

int access_allows_host(const char *host, const texts *names)
{
    char name[LONGEST_HOST + 1];
    size_t size = host ? host_size(host) : 0;
    if (size == 0)
        return 0;
    snprintf(name, sizeof name, "%.*s", (int)size, host);
    if (strcasecmp(name, "localhost") == 0 || is_address(name))
        return 1;
    for (size_t i = 0; i < names->count; i++)
        if (strcasecmp(name, names->items[i]) == 0)
            return 1;
    return 0;
}

int access_is_same_origin(const char *origin, const char *host)
{
    if (!origin || !host)
        return 0;
    size_t scheme = strncmp(origin, "http://", 7) == 0 ? 7 : strncmp(origin, "https://", 8) == 0 ? 8 : 0;
    return scheme > 0 && strcasecmp(origin + scheme, host) == 0;
}

int access_is_own_page(const char *fetch_site, const char *origin, const char *host, int is_change)
{
    if (fetch_site)
        return strcmp(fetch_site, "same-origin") == 0 || (!is_change && strcmp(fetch_site, "none") == 0);
    return origin ? access_is_same_origin(origin, host) : !is_change;
}

int access_is_secret(const char *text, const char *secret)
{
    if (!text || strlen(text) != strlen(secret))
        return 0;
    unsigned char difference = 0;
    for (size_t i = 0; secret[i]; i++)
        difference |= (unsigned char)(text[i] ^ secret[i]);
    return difference == 0;
}
