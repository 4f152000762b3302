/* Guard: a process that keeps a connection's socket open for a while if this process is killed. */
#ifndef BACKHOP_COMMAND_GUARD_H
#define BACKHOP_COMMAND_GUARD_H

#include <sys/types.h>

typedef struct guard {
    pid_t process; /* 0: there is none */
    int alive;     /* a pipe's end that closes with this process */
} guard;

/*
 * Begins a guard; there is none if no process can be made.
 *
 * The guard reads the socket after this process is killed, and ends after 5 seconds without input.
 * So the broker processes everything that was written to the socket before.
 */
guard guard_begin(int socket);
/* Ends it: from here on the socket closes with this process. */
void guard_end(guard self);

#endif
