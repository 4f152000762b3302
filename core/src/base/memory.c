#include "base/memory.h"

#include <stdlib.h>

int bh__reserve(void **items, size_t *capacity, size_t size, size_t count)
{
    if (count <= *capacity)
        return 1;
    if (count > SIZE_MAX / 2 / size) /* the limit keeps the doubling from overflowing */
        return 0;
    size_t wanted = *capacity ? *capacity : 16;
    while (wanted < count)
        wanted *= 2;
    void *grown = realloc(*items, wanted * size);
    if (!grown)
        return 0;
    *items = grown;
    *capacity = wanted;
    return 1;
}

void *bh__duplicate(const void *data, size_t size)
{
    void *copy = malloc(size ? size : 1);
    if (copy && size)
        memcpy(copy, data, size);
    return copy;
}

void bh__store_free(bh__store *self)
{
    free(self->data);
}

static int reserve_bytes(bh__store *self, size_t size)
{
    void *data = self->data;
    if (!bh__reserve(&data, &self->capacity, 1, size))
        return 0;
    self->data = data;
    return 1;
}

int bh__store_copy(bh__store *self, const bh__store *other)
{
    if (!reserve_bytes(self, other->size))
        return 0;
    self->size = other->size;
    if (other->size)
        memcpy(self->data, other->data, other->size);
    return 1;
}

int bh__store_add(bh__store *self, bh__text *out, bh_bytes text)
{
    return bh__store_join(self, out, text, bh_str(""), bh_str(""));
}

int bh__store_join(bh__store *self, bh__text *out, bh_bytes first, bh_bytes second, bh_bytes third)
{
    bh_bytes parts[] = {first, second, third};
    size_t size = first.size + second.size + third.size;
    char *old = self->data;
    if (self->size + size + 1 > self->capacity) {
        /* A part can be in the old store, which is therefore freed after the copies. */
        bh__store grown = {.size = self->size};
        if (!reserve_bytes(&grown, 2 * (self->size + size + 1)) || !grown.data)
            return 0;
        if (old)
            memcpy(grown.data, old, self->size);
        *self = grown;
    }
    out->offset = self->size;
    out->size = size;
    for (size_t i = 0; i < 3; i++) {
        if (parts[i].size)
            memcpy(self->data + self->size, parts[i].data, parts[i].size);
        self->size += parts[i].size;
    }
    self->data[self->size++] = '\0';
    if (old != self->data)
        free(old);
    return 1;
}

bh_bytes bh__decimal(char digits[BH__DIGITS], int64_t number)
{
    size_t at = BH__DIGITS - 1;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    digits[at] = '\0';
    do
        digits[--at] = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (number < 0)
        digits[--at] = '-';
    bh_bytes text = {digits + at, BH__DIGITS - 1 - at};
    return text;
}

/* Converts the upper 53 bits to a number, 0 to below 1. */
static double fraction(uint64_t bits)
{
    return (double)(bits >> 11) / 9007199254740992.0; /* 2^53 */
}

uint64_t bh__seed(const char bytes[8])
{
    uint64_t bits = 0;
    for (size_t i = 0; i < 8; i++)
        bits = bits << 8 | (unsigned char)bytes[i];
    return bits;
}

double bh__random_number(const char bytes[8])
{
    return fraction(bh__seed(bytes));
}

double bh__draw_number(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return fraction(z ^ (z >> 31));
}

int bh__random_choice(const char bytes[16], int count)
{
    unsigned first = ((unsigned)(unsigned char)bytes[6] & 7U) << 8 | (unsigned char)bytes[7];
    unsigned second = ((unsigned)(unsigned char)bytes[14] & 7U) << 8 | (unsigned char)bytes[15];
    return (int)(((uint64_t)(first << 11 | second) * (uint64_t)count) >> 22);
}
