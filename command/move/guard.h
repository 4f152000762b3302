/* Guard: a process that keeps a connection's socket open for a while where this process is killed. */
#ifndef BACKHOP_COMMAND_GUARD_H
#define BACKHOP_COMMAND_GUARD_H

#include <sys/types.h>

typedef struct guard {
    pid_t process; /* 0: there is none */
    int alive;     /* a pipe's end that closes with this process */
} guard;

/* Begins one; where no process can be made there is none. What was written to the socket before is worked off by the other side even where this
 * process is killed: the guard takes what comes, and ends when nothing came for 5 seconds. */
guard guard_begin(int socket);
/* Ends it: from here on the socket closes with this process. */
void guard_end(guard self);

#endif
