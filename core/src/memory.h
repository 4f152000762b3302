/* Memory: growable arrays and the text store of the pure objects, and what they do with bytes. Internal. */
#ifndef BACKHOP_MEMORY_H
#define BACKHOP_MEMORY_H

#include <backhop/status.h>
#include <stdint.h>

/* Makes room for `count` items of `size` bytes in *items, whose capacity is *capacity items; false: no memory, and
 * nothing was changed. */
int bh__reserve(void **items, size_t *capacity, size_t size, size_t count);

/* A copy of `size` bytes, of 0 too, to be freed; NULL: no memory. */
void *bh__duplicate(const void *data, size_t size);

/* A store of strings. They are named by offset, because the store moves as it grows. */
typedef struct bh__store {
    char *data;
    size_t size;
    size_t capacity;
} bh__store;

/* A string in a store; all zero is the empty string of any store. */
typedef struct bh__text {
    size_t offset;
    size_t size;
} bh__text;

void bh__store_free(bh__store *self);
/* Adds the strings, which may be the store's own, one after the other as one text, and a zero byte behind it. False: no
 * memory, and nothing was changed. */
int bh__store_add(bh__store *self, bh__text *out, bh_bytes text);
int bh__store_join(bh__store *self, bh__text *out, bh_bytes first, bh_bytes second, bh_bytes third);
/* Makes the store a copy of another, in which the other's texts are at the same place. False: no memory. */
int bh__store_copy(bh__store *self, const bh__store *other);

static inline bh_bytes bh__store_get(const bh__store *self, bh__text text)
{
    bh_bytes bytes = {text.size ? self->data + text.offset : "", text.size};
    return bytes;
}

/* A whole number's decimal digits, in `digits`. */
#define BH__DIGITS 24
bh_bytes bh__decimal(char digits[BH__DIGITS], int64_t number);

/* A string literal's bytes, also in a static initialiser. */
#define BH__LITERAL(text)                                                                                              \
    {                                                                                                                  \
        (text), sizeof(text) - 1                                                                                       \
    }

/* The random number in [0, 1) that the upper 53 bits of eight bytes make, big-endian. */
double bh__random_number(const char bytes[8]);
/* One of `count` numbers from 0 on, by the bits that bh__random_number leaves of two times eight bytes. */
int bh__random_choice(const char bytes[16], int count);

/* Copies the bytes to *at, a zero byte behind them, and moves *at behind that. */
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

/* Where the part begins in the text, the first time; NULL: nowhere. */
static inline const char *bh__find(bh_bytes text, const char *part)
{
    for (; text.size >= strlen(part); text.data++, text.size--)
        if (bh__begins(text, part))
            return text.data;
    return NULL;
}

/* FNV-1a of 64 bits: of what is hashed by `sum`, and a text behind it. */
#define BH__HASH_OF_NOTHING UINT64_C(14695981039346656037)
static inline uint64_t bh__hash_on(uint64_t sum, bh_bytes text)
{
    for (size_t i = 0; i < text.size; i++)
        sum = (sum ^ (unsigned char)text.data[i]) * UINT64_C(1099511628211);
    return sum;
}

/* The same of one text, folded. */
static inline size_t bh__hash(bh_bytes text)
{
    uint64_t sum = bh__hash_on(BH__HASH_OF_NOTHING, text);
    return (size_t)(sum ^ sum >> 32);
}

int bh__is_utf8(bh_bytes text);
/* The longest beginning of at most `most` bytes that does not end within a UTF-8 character. */
bh_bytes bh__cut(bh_bytes text, size_t most);

#endif
