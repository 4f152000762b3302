#include "web/listening.h"

#include "common/options.h"
#include "common/output.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128, TYPE = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK };

/* --------------------------------------------------------------------------------------------------------- Unix sockets */

/* Returns 1 if the path is a socket, and no symbolic link to one. */
static int is_socket(const char *path, int *exists)
{
    struct stat found;
    *exists = lstat(path, &found) == 0;
    return *exists && S_ISSOCK(found.st_mode);
}

/* Removes the socket's file of a program that has ended: nothing listens there. */
static void remove_stale(const struct sockaddr_un *address)
{
    int probe = socket(AF_UNIX, TYPE, 0);
    if (probe >= 0 && connect(probe, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED)
        unlink(address->sun_path);
    if (probe >= 0)
        close(probe);
}

static int open_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof address.sun_path)
        options_refuse("--listen: '%s' is no path of a Unix socket: at most %zu bytes", path,
                       sizeof address.sun_path - 1);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int exists, is_ours = is_socket(path, &exists);
    if (exists && !is_ours) {
        complain("cannot listen at %s: it exists and is no socket; remove it, or choose another path", path);
        return -1;
    }
    if (is_ours)
        remove_stale(&address);
    int made = socket(AF_UNIX, TYPE, 0);
    mode_t before = umask(0117); /* the socket is for this user and group alone, from its first moment */
    int is_open = made >= 0 && bind(made, (struct sockaddr *)&address, sizeof address) == 0;
    umask(before);
    is_open = is_open && listen(made, BACKLOG) == 0;
    if (!is_open)
        complain("cannot listen at %s: %s", path, strerror(errno));
    if (!is_open && made >= 0)
        close(made);
    return is_open ? made : -1;
}

/* ------------------------------------------------------------------------------------------------------------ addresses */

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

/* --------------------------------------------------------------------------------------------------------------- its name */

static socklen_t name_of(int socket, struct sockaddr_storage *address)
{
    socklen_t size = sizeof *address;
    *address = (struct sockaddr_storage){.ss_family = AF_UNSPEC};
    return getsockname(socket, (struct sockaddr *)address, &size) == 0 ? size : 0;
}

void listening_close(int socket)
{
    struct sockaddr_storage address;
    int exists;
    if (socket < 0)
        return;
    const char *path = ((struct sockaddr_un *)&address)->sun_path;
    if (name_of(socket, &address) && address.ss_family == AF_UNIX && is_socket(path, &exists))
        unlink(path);
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
