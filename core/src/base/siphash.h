/* SipHash-1-3 (Aumasson, Bernstein): a hash that cannot be predicted without its key.
 * Internal. */
#ifndef BACKHOP_BASE_SIPHASH_H
#define BACKHOP_BASE_SIPHASH_H

#include <backhop/bytes.h>
#include <stdint.h>

/* Two random numbers. */
typedef struct bh__siphash_key {
    uint64_t first;
    uint64_t second;
} bh__siphash_key;

/* Returns the hash of the bytes. data may be NULL if size is 0. */
uint64_t bh__siphash(bh__siphash_key key, bh_bytes bytes);

#endif
