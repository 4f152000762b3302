/*
 * Pipes: the worker's pipes, without the system. The linker puts these functions in place of pipe2,
 * read, write and close (--wrap). Other descriptors than pipes of this file go to the system.
 */
#ifndef BACKHOP_TESTS_SIM_PIPES_H
#define BACKHOP_TESTS_SIM_PIPES_H

/* Returns the events that are ready, as poll does. */
short pipes_look(int fd, short events);
/* Returns how many ends are open. */
int pipes_open(void);

#endif
