/* Broker: whether a broker's product and version can serve a strategy. */
#include "topology/data.h"

/* Reads a number below 10,000 at *at. Returns 0 if there is none. */
static int read_version_number(bh_bytes version, size_t *at, int *number)
{
    size_t first = *at;
    *number = 0;
    while (*at < version.size && version.data[*at] >= '0' && version.data[*at] <= '9' && *number < 10000)
        *number = *number * 10 + (version.data[(*at)++] - '0');
    return *at > first && *number < 10000;
}

int bh__broker_version(bh_bytes version)
{
    int major;
    int minor;
    size_t at = 0;
    if (!read_version_number(version, &at, &major) || at == version.size || version.data[at++] != '.' ||
        !read_version_number(version, &at, &minor))
        return -1;
    return major * 10000 + minor;
}

bh_status bh_topology_check_broker(bh_topology *self, bh_bytes product, bh_bytes version)
{
    if (!self || !product.data || !version.data)
        return BH_ERR_ARGUMENT;
    if (!self->is_built)
        return BH_ERR_STATE;
    self->error[0] = '\0';
    if (!bh__same(product, bh_str("RabbitMQ")))
        return bh__topology_fail(self, BH_ERR_BROKER,
                                 "the broker is not RabbitMQ, whose queues and dead letters all strategies need");
    int number = bh__broker_version(version);
    if (number < 0)
        return bh__topology_fail(self, BH_ERR_BROKER,
                                 "the broker's version does not begin with two numbers, as 4.0 does");
    if (number < 3 * 10000 + 8)
        return bh__topology_fail(self, BH_ERR_BROKER, "RabbitMQ is older than 3.8: upgrade it");
    if (self->strategy == BH_STRATEGY_NATIVE && number < 4 * 10000 + 3)
        return bh__topology_fail(
            self, BH_ERR_BROKER,
            "strategy native needs RabbitMQ 4.3 or newer, older ones ignore its arguments: take strategy ladder");
    if (self->strategy == BH_STRATEGY_DELAYED_EXCHANGE && number > 4 * 10000 + 2)
        return bh__topology_fail(
            self, BH_ERR_BROKER,
            "strategy delayed-exchange needs a plugin that runs on RabbitMQ 4.2 and older: take strategy ladder");
    int needs_ttl = self->queue_type == BH_QUEUE_QUORUM && self->strategy != BH_STRATEGY_DELAYED_EXCHANGE;
    int needs_at_least_once = self->strategy == BH_STRATEGY_REJECT && self->work_queue_type == BH_QUEUE_QUORUM;
    if ((needs_ttl || needs_at_least_once) && number < 3 * 10000 + 10)
        return bh__topology_fail(
            self, BH_ERR_BROKER,
            "quorum queues have no message TTL and no safe dead letters before RabbitMQ 3.10: take queue type "
            "classic with this strategy");
    return BH_OK;
}
