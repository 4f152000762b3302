/* Buffer: bytes, written at the end and read at the beginning. Internal. */
#ifndef BACKHOP_BUFFER_H
#define BACKHOP_BUFFER_H

#include "base/memory.h"

#include <stdlib.h>

/* All fields 0: an empty buffer. */
typedef struct bh__buffer {
    char *data;
    size_t begin;
    size_t end;
    size_t capacity;
} bh__buffer;

static inline size_t bh__buffer_size(const bh__buffer *self)
{
    return self->end - self->begin;
}

static inline void bh__buffer_clear(bh__buffer *self)
{
    self->begin = self->end = 0;
}

static inline void bh__buffer_free(bh__buffer *self)
{
    free(self->data);
    *self = (bh__buffer){.data = NULL};
}

/*
 * Makes room for `size` bytes at the end; moves the content to the front. Returns 0 if memory runs
 * out.
 */
static inline int bh__buffer_reserve(bh__buffer *self, size_t size)
{
    if (self->capacity - self->end >= size && self->data)
        return 1;
    if (self->begin > 0 && self->data) {
        memmove(self->data, self->data + self->begin, bh__buffer_size(self));
        self->end -= self->begin;
        self->begin = 0;
    }
    void *data = self->data;
    int is_there = bh__reserve(&data, &self->capacity, 1, self->end + size);
    self->data = data;
    return is_there;
}

/* The next functions need room: call bh__buffer_reserve first. */
static inline void bh__put_bytes(bh__buffer *self, bh_bytes bytes)
{
    if (bytes.size)
        memcpy(self->data + self->end, bytes.data, bytes.size);
    self->end += bytes.size;
}

/* Writes the lower `size` bytes of a number, big-endian. */
static inline void bh__put_number(bh__buffer *self, uint64_t number, size_t size)
{
    for (size_t i = 0; i < size; i++)
        self->data[self->end + i] = (char)(number >> 8 * (size - 1 - i));
    self->end += size;
}

/* Writes a length of `length_size` bytes, then the bytes. */
static inline void bh__put_counted(bh__buffer *self, bh_bytes bytes, size_t length_size)
{
    bh__put_number(self, bytes.size, length_size);
    bh__put_bytes(self, bytes);
}

/*
 * Writes a length of `length_size` bytes that bh__end_counted fills in. Returns the start of the
 * counted bytes, for bh__end_counted.
 */
static inline size_t bh__begin_counted(bh__buffer *self, size_t length_size)
{
    bh__put_number(self, 0, length_size);
    return self->end;
}

static inline void bh__end_counted(bh__buffer *self, size_t start, size_t length_size)
{
    size_t end = self->end;
    self->end = start - length_size;
    bh__put_number(self, end - start, length_size);
    self->end = end;
}

static inline uint64_t bh__get_number(const char *data, size_t size)
{
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++)
        number = number << 8 | (unsigned char)data[i];
    return number;
}

#endif
