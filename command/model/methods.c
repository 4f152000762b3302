/* Methods: where their tables are. amqp_decode_method reads all methods that a broker receives;
 * only this is missing. */
#include "model/methods.h"

#include "worker/wire/content.h"

/* s: a short string, 2: two octets, o: an octet (of bits), t: the table. */
static const struct {
    amqp_method_number_t method;
    const char *layout;
} layouts[] = {
    {AMQP_CONNECTION_START_OK_METHOD, "t"}, {AMQP_EXCHANGE_DECLARE_METHOD, "2ssot"},
    {AMQP_EXCHANGE_BIND_METHOD, "2sssot"},  {AMQP_EXCHANGE_UNBIND_METHOD, "2sssot"},
    {AMQP_QUEUE_DECLARE_METHOD, "2sot"},    {AMQP_QUEUE_BIND_METHOD, "2sssot"},
    {AMQP_QUEUE_UNBIND_METHOD, "2ssst"},    {AMQP_BASIC_CONSUME_METHOD, "2ssot"},
};

static int skip(bh_bytes *rest, size_t size)
{
    if (rest->size < size)
        return 0;
    rest->data += size;
    rest->size -= size;
    return 1;
}

int model_method_table(amqp_method_number_t method, bh_bytes arguments, bh_bytes *out)
{
    const char *layout = "";
    *out = bh_str("");
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].method == method)
            layout = layouts[i].layout;
    for (; *layout; layout++) {
        if (*layout == 't') {
            if (arguments.size < 4 || bh__get_number(arguments.data, 4) > arguments.size - 4)
                return 0;
            *out = (bh_bytes){arguments.data + 4, bh__get_number(arguments.data, 4)};
            return bh__content_is_shallow(*out);
        }
        size_t size = *layout == '2' ? 2 : 1;
        if (*layout == 's' && arguments.size > 0)
            size += (unsigned char)arguments.data[0];
        if (!skip(&arguments, size))
            return 0;
    }
    return 1;
}

int model_method_is_known(amqp_method_number_t method)
{
    static const amqp_method_number_t known[] = {
        AMQP_CONNECTION_START_OK_METHOD, AMQP_CONNECTION_SECURE_OK_METHOD, AMQP_CONNECTION_TUNE_OK_METHOD,
        AMQP_CONNECTION_OPEN_METHOD,     AMQP_CONNECTION_CLOSE_METHOD,     AMQP_CONNECTION_CLOSE_OK_METHOD,
        AMQP_CHANNEL_OPEN_METHOD,        AMQP_CHANNEL_FLOW_METHOD,         AMQP_CHANNEL_FLOW_OK_METHOD,
        AMQP_CHANNEL_CLOSE_METHOD,       AMQP_CHANNEL_CLOSE_OK_METHOD,     AMQP_ACCESS_REQUEST_METHOD,
        AMQP_EXCHANGE_DECLARE_METHOD,    AMQP_EXCHANGE_DELETE_METHOD,      AMQP_EXCHANGE_BIND_METHOD,
        AMQP_EXCHANGE_UNBIND_METHOD,     AMQP_QUEUE_DECLARE_METHOD,        AMQP_QUEUE_BIND_METHOD,
        AMQP_QUEUE_PURGE_METHOD,         AMQP_QUEUE_DELETE_METHOD,         AMQP_QUEUE_UNBIND_METHOD,
        AMQP_BASIC_QOS_METHOD,           AMQP_BASIC_CONSUME_METHOD,        AMQP_BASIC_CANCEL_METHOD,
        AMQP_BASIC_CANCEL_OK_METHOD,     AMQP_BASIC_PUBLISH_METHOD,        AMQP_BASIC_GET_METHOD,
        AMQP_BASIC_ACK_METHOD,           AMQP_BASIC_REJECT_METHOD,         AMQP_BASIC_RECOVER_ASYNC_METHOD,
        AMQP_BASIC_RECOVER_METHOD,       AMQP_BASIC_NACK_METHOD,           AMQP_TX_SELECT_METHOD,
        AMQP_TX_COMMIT_METHOD,           AMQP_TX_ROLLBACK_METHOD,          AMQP_CONFIRM_SELECT_METHOD};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] == method)
            return 1;
    return 0;
}
