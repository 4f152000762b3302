/*
 * Memory: growable arrays, the text store of the pure objects, and operations on bytes. Internal.
 */
#ifndef BACKHOP_MEMORY_H
#define BACKHOP_MEMORY_H

#include "base/utf8.h"

#include <backhop/status.h>
#include <stdint.h>

/*
 * Makes room for `count` items of `size` bytes in *items. *capacity is its capacity in items.
 * Returns 0 and changes nothing if memory runs out.
 */
int bh__reserve(void **items, size_t *capacity, size_t size, size_t count);

/* Returns a copy of `size` bytes (0 is allowed); free it. Returns NULL if memory runs out. */
void *bh__duplicate(const void *data, size_t size);

/* A store of strings. Strings have offsets, because the store moves when it grows. */
typedef struct bh__store {
    char *data;
    size_t size;
    size_t capacity;
} bh__store;

/* A string in a store. All fields 0: the empty string of any store. */
typedef struct bh__text {
    size_t offset;
    size_t size;
} bh__text;

void bh__store_free(bh__store *self);
/*
 * Add the strings as one text, with a zero byte after it. The strings may be in the same store.
 * Return 0 and change nothing if memory runs out.
 */
int bh__store_add(bh__store *self, bh__text *out, bh_bytes text);
int bh__store_join(bh__store *self, bh__text *out, bh_bytes first, bh_bytes second, bh_bytes third);
/* Copies another store; texts keep their offsets. Returns 0 if memory runs out. */
int bh__store_copy(bh__store *self, const bh__store *other);

static inline bh_bytes bh__store_get(const bh__store *self, bh__text text)
{
    bh_bytes bytes = {text.size ? self->data + text.offset : "", text.size};
    return bytes;
}

/* Writes a whole number in decimal to `digits`, and returns the text. */
#define BH__DIGITS 24
bh_bytes bh__decimal(char digits[BH__DIGITS], int64_t number);

/* The bytes of a string literal, for initializers. */
#define BH__LITERAL(text)                                                                                              \
    {                                                                                                                  \
        (text), sizeof(text) - 1                                                                                       \
    }

/* Returns a random number, 0 to below 1, from the upper 53 bits of eight bytes (big-endian). */
double bh__random_number(const char bytes[8]);
/*
 * Draws random numbers, 0 to below 1, by SplitMix64 (Sebastiano Vigna). It only has to keep the
 * delays of two consumers apart. `state` begins as bh__seed of eight random bytes (big-endian).
 */
uint64_t bh__seed(const char bytes[8]);
double bh__draw_number(uint64_t *state);
/*
 * Returns a random index below `count`, from the bits of 2 x 8 bytes that bh__random_number
 * ignores.
 */
int bh__random_choice(const char bytes[16], int count);

/* Copies the bytes and a zero byte to *at, and moves *at behind them. */
static inline bh_bytes bh__keep(char **at, bh_bytes bytes)
{
    bh_bytes kept = {*at, bytes.size};
    if (bytes.size)
        memcpy(*at, bytes.data, bytes.size);
    (*at)[bytes.size] = '\0';
    *at += bytes.size + 1;
    return kept;
}

static inline int bh__same(bh_bytes a, bh_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static inline int bh__begins(bh_bytes text, const char *prefix)
{
    size_t size = strlen(prefix);
    return text.size >= size && memcmp(text.data, prefix, size) == 0;
}

/* Returns the first occurrence of `part` in the text; NULL if there is none. */
static inline const char *bh__find(bh_bytes text, const char *part)
{
    for (; text.size >= strlen(part); text.data++, text.size--)
        if (bh__begins(text, part))
            return text.data;
    return NULL;
}

/* Continues the 64-bit FNV-1a hash `sum` with a text. */
#define BH__HASH_OF_NOTHING UINT64_C(14695981039346656037)
static inline uint64_t bh__hash_on(uint64_t sum, bh_bytes text)
{
    for (size_t i = 0; i < text.size; i++)
        sum = (sum ^ (unsigned char)text.data[i]) * UINT64_C(1099511628211);
    return sum;
}

/* Returns the hash of one text, folded to size_t. */
static inline size_t bh__hash(bh_bytes text)
{
    uint64_t sum = bh__hash_on(BH__HASH_OF_NOTHING, text);
    return (size_t)(sum ^ sum >> 32);
}

#endif
