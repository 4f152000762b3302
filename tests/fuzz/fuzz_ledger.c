/*
 * Fuzzing: bytes become a history of happenings in the ledger's model, which checks the invariants.
 */
#include "../core/ledger_model.h"
#include "fuzz.h"
#include "model_input.h"

#define MOST_HAPPENINGS 400

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    ledger_model_play(take, &in, size / 4 < MOST_HAPPENINGS ? (int)(size / 4) : MOST_HAPPENINGS, "the input");
    return 0;
}
