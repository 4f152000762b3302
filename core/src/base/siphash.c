#include "base/siphash.h"

#include <string.h>

static uint64_t rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static void mix(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static void add_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    mix(v);
    v[0] ^= word;
}

uint64_t bh__siphash(bh__siphash_key key, bh_bytes bytes)
{
    uint64_t v[4] = {key.first ^ UINT64_C(0x736f6d6570736575), key.second ^ UINT64_C(0x646f72616e646f6d),
                     key.first ^ UINT64_C(0x6c7967656e657261), key.second ^ UINT64_C(0x7465646279746573)};
    uint64_t word;
    size_t at = 0;
    for (; bytes.size - at >= sizeof word; at += sizeof word) {
        memcpy(&word, bytes.data + at, sizeof word); /* in the machine's order: the hash never leaves the process */
        add_word(v, word);
    }
    word = 0;
    if (bytes.size > at)
        memcpy(&word, bytes.data + at, bytes.size - at);
    add_word(v, word);
    add_word(v, (uint64_t)bytes.size);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        mix(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
