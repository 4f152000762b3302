/* Unix socket: a listener at a path. */
#ifndef BACKHOP_COMMAND_COMMON_UNIX_SOCKET_H
#define BACKHOP_COMMAND_COMMON_UNIX_SOCKET_H

#include <stddef.h>
#include <sys/types.h>

/* Returns the most bytes of a path. */
size_t unix_socket_most(void);
/* Listens at a path of 1 to unix_socket_most() bytes. Removes the socket of a program that has
 * ended, and nothing else.
 *
 * mask: of the file's permissions, from its first moment.
 *
 * Returns the socket, which does not block; -1, with a complaint, if it cannot listen. */
int unix_socket_listen(const char *path, mode_t mask, int backlog);
/* Removes the file if it is a socket. */
void unix_socket_remove(const char *path);

#endif
