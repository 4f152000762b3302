/* The worker of a build without librabbitmq: there is none, and asking for one says so. */
#include <backhop/worker.h>

bh_status bh_worker_new(bh_worker **out, const bh_policy *policy, bh_topology *topology)
{
    (void)policy;
    (void)topology;
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    return BH_ERR_NO_LIBRABBITMQ;
}

void bh_worker_free(bh_worker *self)
{
    (void)self;
}

bh_status bh_worker_set_ca_file(bh_worker *self, bh_bytes path)
{
    (void)self;
    (void)path;
    return BH_ERR_NO_LIBRABBITMQ;
}

bh_status bh_worker_set_prefetch(bh_worker *self, int count)
{
    (void)self;
    (void)count;
    return BH_ERR_NO_LIBRABBITMQ;
}

bh_status bh_worker_set_connect_timeout_ms(bh_worker *self, int64_t timeout_ms)
{
    (void)self;
    (void)timeout_ms;
    return BH_ERR_NO_LIBRABBITMQ;
}

bh_status bh_worker_set_confirm_timeout_ms(bh_worker *self, int64_t timeout_ms)
{
    (void)self;
    (void)timeout_ms;
    return BH_ERR_NO_LIBRABBITMQ;
}

bh_status bh_worker_set_legacy_counter(bh_worker *self, bh_bytes header)
{
    (void)self;
    (void)header;
    return BH_ERR_NO_LIBRABBITMQ;
}

bh_status bh_worker_add_wait_queue(bh_worker *self, bh_bytes queue)
{
    (void)self;
    (void)queue;
    return BH_ERR_NO_LIBRABBITMQ;
}

bh_status bh_worker_connect(bh_worker *self, bh_bytes uri)
{
    (void)self;
    (void)uri;
    return BH_ERR_NO_LIBRABBITMQ;
}

bh_bytes bh_worker_broker_product(const bh_worker *self)
{
    (void)self;
    return bh_str("");
}

bh_bytes bh_worker_broker_version(const bh_worker *self)
{
    (void)self;
    return bh_str("");
}

bh_status bh_worker_declare(bh_worker *self, bh_mode mode)
{
    (void)self;
    (void)mode;
    return BH_ERR_NO_LIBRABBITMQ;
}

bh_status bh_worker_take(bh_worker *self, int64_t timeout_ms)
{
    (void)self;
    (void)timeout_ms;
    return BH_ERR_NO_LIBRABBITMQ;
}

bh_bytes bh_worker_body(const bh_worker *self)
{
    (void)self;
    return bh_str("");
}

int bh_worker_redelivered(const bh_worker *self)
{
    (void)self;
    return 0;
}

bh_status bh_worker_delivery(const bh_worker *self, bh_delivery *out)
{
    (void)self;
    (void)out;
    return BH_ERR_NO_LIBRABBITMQ;
}

int64_t bh_worker_attempt(const bh_worker *self)
{
    (void)self;
    return 0;
}

bh_bytes bh_worker_exchange(const bh_worker *self)
{
    (void)self;
    return bh_str("");
}

bh_bytes bh_worker_routing_key(const bh_worker *self)
{
    (void)self;
    return bh_str("");
}

bh_status bh_worker_settle(bh_worker *self, bh_outcome outcome, bh_bytes error, int64_t retry_after_ms)
{
    (void)self;
    (void)outcome;
    (void)error;
    (void)retry_after_ms;
    return BH_ERR_NO_LIBRABBITMQ;
}

bh_action bh_worker_last_action(const bh_worker *self)
{
    (void)self;
    return BH_ACTION_NONE;
}

int64_t bh_worker_last_delay_ms(const bh_worker *self)
{
    (void)self;
    return 0;
}

bh_bytes bh_worker_last_reason(const bh_worker *self)
{
    (void)self;
    return bh_str("");
}

bh_status bh_worker_fail(bh_worker *self, bh_bytes error, int64_t retry_after_ms)
{
    (void)self;
    (void)error;
    (void)retry_after_ms;
    return BH_ERR_NO_LIBRABBITMQ;
}

bh_status bh_worker_run(bh_worker *self, bh_handler handler, void *data)
{
    (void)self;
    (void)handler;
    (void)data;
    return BH_ERR_NO_LIBRABBITMQ;
}

void bh_worker_stop(bh_worker *self)
{
    (void)self;
}

bh_status bh_worker_replay(bh_worker *self, int64_t most, int64_t *count)
{
    (void)self;
    (void)most;
    if (count)
        *count = 0;
    return BH_ERR_NO_LIBRABBITMQ;
}

bh_bytes bh_worker_error(const bh_worker *self)
{
    (void)self;
    return bh_status_text(BH_ERR_NO_LIBRABBITMQ);
}

bh_bytes bh_worker_librabbitmq_compiled(void)
{
    return bh_str("");
}

bh_bytes bh_worker_librabbitmq_loaded(void)
{
    return bh_str("");
}
