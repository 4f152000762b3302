/* Fuzzing: bytes become a history of workers on the model of RabbitMQ, under virtual time. */
#include "../sim/history.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    outcome out;
    history_play_tape(data, size, "the input", &out);
    return 0;
}
