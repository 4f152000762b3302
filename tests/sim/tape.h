/*
 * Tape: the choices of a history. They come from bytes, so that one program serves a seed, a
 * scenario and a fuzzer. After its last byte a tape gives the first choice for ever.
 */
#ifndef BACKHOP_TESTS_SIM_TAPE_H
#define BACKHOP_TESTS_SIM_TAPE_H

#include <stddef.h>
#include <stdint.h>

typedef struct tape {
    const unsigned char *data;
    size_t size;
} tape;

/* Draws a number from 0 to below - 1; below is at most 65536. */
static inline unsigned tape_draw(tape *self, unsigned below)
{
    unsigned drawn = 0;
    for (unsigned range = 1; range < below && self->size; range *= 256, self->size--)
        drawn = drawn * 256 + *self->data++;
    return below ? drawn % below : 0;
}

/* Draws 1 in one of `of` cases; 0 after the last byte. */
static inline int tape_hits(tape *self, unsigned of)
{
    return tape_draw(self, of) == of - 1;
}

/* Fills a tape's bytes from a seed: SplitMix64, by Sebastiano Vigna. */
static inline void tape_fill(unsigned char *data, size_t size, uint64_t seed)
{
    uint64_t state = seed * UINT64_C(0xd1342543de82ef95);
    for (size_t i = 0; i < size; i++) {
        uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        data[i] = (unsigned char)((z ^ (z >> 31)) >> 33);
    }
}

#endif
