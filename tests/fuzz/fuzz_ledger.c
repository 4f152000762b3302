/*
 * Fuzzing: bytes become a history of happenings in the ledger's model, which checks what must always hold.
 */
#include "../core/ledger_model.h"

#include <stddef.h>
#include <stdint.h>

#define MOST_HAPPENINGS 400

typedef struct {
    const unsigned char *data;
    size_t size;
} input;

/* Behind the end of the bytes there are zeros. */
static unsigned take(void *source, unsigned below)
{
    input *in = source;
    if (in->size == 0)
        return 0;
    in->size--;
    return *in->data++ % below;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    ledger_model_play(take, &in, size / 4 < MOST_HAPPENINGS ? (int)(size / 4) : MOST_HAPPENINGS, "the input");
    return 0;
}
