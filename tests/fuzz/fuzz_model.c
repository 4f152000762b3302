/*
 * Fuzzing: bytes are a client's for the model of RabbitMQ, from the fourth on. The first three
 * choose the version, the pieces of the stream, and the time between them. The client is logged in,
 * with channel 1 open. The model must write whole frames, and its time must not stand still.
 */
#include "fuzz.h"

#include "base/buffer.h"
#include "model/model.h"

enum { CHOICES = 3, MOST_BYTES = 4096, FRAME_START = 7, FRAME_END = 0xCE };

/* A body of gigabytes is announced easily: such an allocation fails, as it does if memory is
 * short. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=256";
}

/* The header; start-ok with PLAIN guest and no properties; tune-ok with the broker's limits; open
 * of "/"; channel.open. */
static const char login[] = "AMQP\0\0\011\001"
                            "\001\0\0\0\0\0\044\0\012\0\013\0\0\0\0\005PLAIN\0\0\0\014\0guest\0guest\005en_US\316"
                            "\001\0\0\0\0\0\014\0\012\0\037\007\377\0\002\0\0\0\0\316"
                            "\001\0\0\0\0\0\010\0\012\0\050\001/\0\0\316"
                            "\001\0\001\0\0\0\005\0\024\0\012\0\316";

/* Takes the output, which is whole frames. */
static void take_output(model_link *link)
{
    bh_bytes there = model_output(link);
    size_t size = there.size;
    while (there.size > 0) {
        CHECK(there.size > FRAME_START);
        size_t whole = FRAME_START + bh__get_number(there.data + 3, 4) + 1;
        CHECK(there.size >= whole && (unsigned char)there.data[whole - 1] == FRAME_END);
        there.data += whole;
        there.size -= whole;
    }
    model_sent(link, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const versions[] = {"3.10", "4.0", "4.3"};
    model *broker = NULL;
    if (size < CHOICES || size > MOST_BYTES)
        return 0;
    model_settings settings = {.version = versions[data[0] % 3], .tape = data, .tape_size = CHOICES};
    CHECK(model_new(&broker, &settings) == BH_OK);
    model_link *link = model_connect(broker);
    CHECK(link);
    model_receive(link, login, sizeof login - 1);
    take_output(link);
    CHECK(!model_is_closing(link));
    for (size_t at = CHOICES, piece = 1 + data[1]; at < size; at += piece) {
        model_receive(link, (const char *)data + at, size - at < piece ? size - at : piece);
        model_advance(broker, model_now_ms(broker) + data[2]);
        CHECK(model_next_ms(broker) > model_now_ms(broker));
        take_output(link);
    }
    model_advance(broker, model_now_ms(broker) + 10000000);
    take_output(link);
    model_disconnect(link);
    model_free(broker);
    return 0;
}
