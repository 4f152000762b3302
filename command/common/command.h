/*
 * Command: declarations that the sub-commands of `backhop` share with main.c.
 *
 * A sub-command is a function. It gets its own arguments, its name first, and returns an exit code
 * of <sysexits.h>, or EXIT_INTERRUPTED if it was interrupted. Results go to standard output, all
 * else to standard error.
 */
#ifndef BACKHOP_COMMAND_H
#define BACKHOP_COMMAND_H

#include <stddef.h>

enum { EXIT_INTERRUPTED = 130 }; /* by Ctrl-C, as a shell has it */

typedef struct command {
    const char *name;
    const char *summary; /* one line of the help */
    int (*run)(int count, char **arguments);
} command;

/* Runs the sub-command that arguments[1] names. `whole` is the command so far ("backhop parked").
 * The help begins with the lines `first` and ends with `last`. */
int command_dispatch(const char *whole, const char *first, const command *table, size_t size, const char *last,
                     int count, char **arguments);

/* The sub-commands. */
int doctor_main(int count, char **arguments);
int exporter_main(int count, char **arguments);
int migrate_main(int count, char **arguments);
int model_main(int count, char **arguments);
int parked_main(int count, char **arguments);
int relay_main(int count, char **arguments);
int schedule_main(int count, char **arguments);
int simulate_main(int count, char **arguments);
int top_main(int count, char **arguments);
int topology_main(int count, char **arguments);
int web_main(int count, char **arguments);

#endif
