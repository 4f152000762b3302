/* Fuzzing: bytes become a history in the breaker's model, which checks the invariants. */
#include "../core/breaker_model.h"
#include "fuzz.h"
#include "model_input.h"

#define MOST_HAPPENINGS 2000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    breaker_model_play(take, &in, size / 2 < MOST_HAPPENINGS ? (int)(size / 2) : MOST_HAPPENINGS, "the input");
    return 0;
}
