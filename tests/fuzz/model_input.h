/* Model input: the draws of a model come from the bytes of a fuzzer. */
#ifndef BACKHOP_TESTS_MODEL_INPUT_H
#define BACKHOP_TESTS_MODEL_INPUT_H

#include <stddef.h>

typedef struct {
    const unsigned char *data;
    size_t size;
} input;

/* Returns zeros after the last byte. */
static unsigned take(void *source, unsigned below)
{
    input *in = source;
    if (in->size == 0)
        return 0;
    in->size--;
    return *in->data++ % below;
}

#endif
