/* Program: the command that runs beside the model, with the model's URL in its environment. */
#ifndef BACKHOP_COMMAND_MODEL_PROGRAM_H
#define BACKHOP_COMMAND_MODEL_PROGRAM_H

#include <sys/types.h>

typedef struct program {
    pid_t process; /* 0: none runs */
    int code;      /* its exit status, once it ended: 128 and the signal's number if a signal ended it */
} program;

/* Blocks the signals of an end: SIGINT, SIGTERM, and SIGCHLD of a program. ppoll has to let them
 * through. */
void program_watch(void);
/* Starts the command of `words`, which a NULL ends. Returns 0 and complains if it cannot. */
int program_start(program *self, char **words);
/* Returns 1 if the program has ended. */
int program_has_ended(program *self);
/* Sends SIGTERM to the program. */
void program_stop(program *self);

#endif
