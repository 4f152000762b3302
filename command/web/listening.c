#include "web/listening.h"

#include "common/options.h"
#include "common/output.h"
#include "common/unix_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128, TYPE = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK };

/* --------------------------------------------------------------------------------- Unix sockets */

static int open_unix(const char *path)
{
    if (!*path || strlen(path) > unix_socket_most())
        options_refuse("--listen: '%s' is no path of a Unix socket: at most %zu bytes", path, unix_socket_most());
    return unix_socket_listen(path, 0117, BACKLOG); /* for this user and group alone */
}

/* ------------------------------------------------------------------------------------ addresses */

/* getaddrinfo() takes 65536 for 0. */
static int is_port(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits <= 5 && !text[digits] && strtol(text, NULL, 10) <= 65535;
}

static int open_address(const char *address)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char host[256] = "";
    const char *colon = strrchr(address, ':');
    int on = 1;
    if (!colon || !is_port(colon + 1) || (size_t)(colon - address) >= sizeof host)
        options_refuse("--listen: '%s' is no host:port, as 127.0.0.1:9419, with a port up to 65535", address);
    const char *begin = *address == '[' ? address + 1 : address;
    snprintf(host, sizeof host, "%.*s", (int)(colon - begin - (begin != address)), begin);
    int error = getaddrinfo(*host ? host : "127.0.0.1", colon + 1, &hints, &found);
    int made = error ? -1 : socket(found->ai_family, TYPE, found->ai_protocol);
    if (made >= 0)
        setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    int is_open = made >= 0 && bind(made, found->ai_addr, found->ai_addrlen) == 0 && listen(made, BACKLOG) == 0;
    if (!is_open)
        complain("cannot listen at %s: %s", address, error ? gai_strerror(error) : strerror(errno));
    if (!is_open && made >= 0)
        close(made);
    if (found)
        freeaddrinfo(found);
    return is_open ? made : -1;
}

int listening_open(const char *address)
{
    size_t size = strlen(UNIX_PREFIX);
    return strncmp(address, UNIX_PREFIX, size) == 0 ? open_unix(address + size) : open_address(address);
}

/* ------------------------------------------------------------------------------------- its name */

static socklen_t name_of(int socket, struct sockaddr_storage *address)
{
    socklen_t size = sizeof *address;
    *address = (struct sockaddr_storage){.ss_family = AF_UNSPEC};
    return getsockname(socket, (struct sockaddr *)address, &size) == 0 ? size : 0;
}

void listening_close(int socket)
{
    struct sockaddr_storage address;
    if (socket < 0)
        return;
    if (name_of(socket, &address) && address.ss_family == AF_UNIX)
        unix_socket_remove(((struct sockaddr_un *)&address)->sun_path);
    close(socket);
}

int listening_url(int socket, char out[300])
{
    struct sockaddr_storage address;
    char host[128] = "", port[16] = "0";
    socklen_t size = name_of(socket, &address);
    if (address.ss_family == AF_UNIX) {
        snprintf(out, 300, UNIX_PREFIX "%.108s", ((struct sockaddr_un *)&address)->sun_path);
        return 0;
    }
    getnameinfo((struct sockaddr *)&address, size, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    int is_long = strchr(host, ':') != NULL;
    snprintf(out, 300, "http://%s%s%s:%s", is_long ? "[" : "", host, is_long ? "]" : "", port);
    return (int)strtol(port, NULL, 10);
}

int listening_is_local(int socket)
{
    struct sockaddr_storage address;
    name_of(socket, &address);
    const struct sockaddr_in *four = (const struct sockaddr_in *)&address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&address;
    return address.ss_family == AF_UNIX ||
           (address.ss_family == AF_INET && ntohl(four->sin_addr.s_addr) >> 24 == 127) ||
           (address.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr));
}
