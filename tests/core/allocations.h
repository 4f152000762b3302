/* Allocations: counts what the program and the static libraries in it allocate, and fails one of
 * them on request. */
#ifndef ALLOCATIONS_H
#define ALLOCATIONS_H

/* Starts to count anew; the allocation of this number, from 0, gets no memory. A negative number:
 * none fails. */
void allocations_start(long failing);
/* Allocations since allocations_start, the failed one included; a realloc is one. */
long allocations_count(void);
/* Returns 1 if the allocation that had to fail has done so. */
int allocations_failed(void);
/* Blocks that are allocated now. */
long allocations_live(void);

#endif
