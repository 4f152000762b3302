/* Marks: which messages this run replayed. A set of hashes, with open addressing. */
#ifndef BACKHOP_COMMAND_PARKED_MARKS_H
#define BACKHOP_COMMAND_PARKED_MARKS_H

#include <backhop/bytes.h>
#include <stddef.h>
#include <stdint.h>

typedef struct marks {
    uint64_t *items; /* 0: free */
    size_t capacity; /* a power of two */
} marks;

/* Makes an empty set with room for `most` marks; free it with marks_free. Ends the program if there
 * is no memory. */
void marks_init(marks *self, int64_t most);
void marks_free(marks *self);
/* Returns the mark of a message that was replayed so often. Never 0. */
uint64_t mark_of(bh_bytes id, int64_t replays);
void marks_add(marks *self, uint64_t mark);
int marks_have(const marks *self, uint64_t mark);

#endif
