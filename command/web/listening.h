/* Listening: a socket for HTTP, at an address or in the file system. */
#ifndef BACKHOP_COMMAND_WEB_LISTENING_H
#define BACKHOP_COMMAND_WEB_LISTENING_H

#define UNIX_PREFIX "unix:" /* the beginning of the address of a Unix socket */

/* Returns the socket, which does not block. Complains and returns -1 if it cannot listen. Ends the
 * program if the address is none. */
int listening_open(const char *address);
/* Closes it, and removes a Unix socket's file. -1 is allowed. */
void listening_close(int socket);
/* Writes the URL as in server_url, and returns the port. */
int listening_url(int socket, char out[300]);
/* Returns 1 if only processes of this machine can connect. */
int listening_is_local(int socket);

#endif
