/* Fuzzing: bytes become a history in the model of calls, which checks what must hold. */
#include "../core/calls_model.h"
#include "fuzz.h"
#include "model_input.h"

#define MOST_HAPPENINGS 2000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    calls_model_play(take, &in, size / 2 < MOST_HAPPENINGS ? (int)(size / 2) : MOST_HAPPENINGS, "the input");
    return 0;
}
