#include "common/unix_socket.h"

#include "common/output.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { TYPE = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK };

size_t unix_socket_most(void)
{
    return sizeof((struct sockaddr_un){.sun_family = AF_UNIX}).sun_path - 1;
}

/* Returns 1 if the path is a socket, and no symbolic link to one. */
static int is_socket(const char *path, int *exists)
{
    struct stat found;
    *exists = lstat(path, &found) == 0;
    return *exists && S_ISSOCK(found.st_mode);
}

/* Removes the file of a program that has ended: nothing listens there. */
static void remove_stale(const struct sockaddr_un *address)
{
    int probe = socket(AF_UNIX, TYPE, 0);
    if (probe >= 0 && connect(probe, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED)
        unlink(address->sun_path);
    if (probe >= 0)
        close(probe);
}

int unix_socket_listen(const char *path, mode_t mask, int backlog)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int exists, is_ours = is_socket(path, &exists);
    if (exists && !is_ours) {
        complain("cannot listen at %s: it exists and is no socket; remove it, or choose another path", path);
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path));
    if (is_ours)
        remove_stale(&address);
    int made = socket(AF_UNIX, TYPE, 0);
    mode_t before = umask(mask);
    int is_open = made >= 0 && bind(made, (struct sockaddr *)&address, sizeof address) == 0;
    umask(before);
    is_open = is_open && listen(made, backlog) == 0;
    if (!is_open)
        complain("cannot listen at %s: %s", path, strerror(errno));
    if (!is_open && made >= 0)
        close(made);
    return is_open ? made : -1;
}

void unix_socket_remove(const char *path)
{
    int exists;
    if (is_socket(path, &exists))
        unlink(path);
}
