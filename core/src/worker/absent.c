/* The worker of a build without librabbitmq: its functions return BH_ERR_NO_LIBRABBITMQ. */
#include <backhop/worker.h>

bh_status bh_worker_new(bh_worker **out, const bh_policy *policy, const bh_topology *topology)
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

/* No object exists to call these with. */
#define NONE(function, ...)                                                                                            \
    bh_status function(bh_worker *self, __VA_ARGS__)                                                                   \
    {                                                                                                                  \
        (void)self;                                                                                                    \
        return BH_ERR_NO_LIBRABBITMQ;                                                                                  \
    }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
NONE(bh_worker_add_uri, bh_bytes uri)
NONE(bh_worker_set, const bh_worker_settings *settings)
NONE(bh_worker_set_credentials, bh_bytes user, bh_bytes password)
NONE(bh_worker_set_metrics, const bh_metrics *metrics)
NONE(bh_worker_read_metrics, bh_metrics *out)
NONE(bh_worker_take, bh_message **out, int64_t timeout_ms)
NONE(bh_worker_settle, bh_message *message, const bh_settlement *settlement)
NONE(bh_worker_take_event, bh_event **out)
NONE(bh_worker_replay, int64_t most)
NONE(bh_worker_stop, int64_t limit_ms)
NONE(bh_worker_run, bh_handler handler, bh_listener listener, void *data)
NONE(bh_worker_read, const bh_message *message, bh_delivery *delivery, bh_history *history)
#pragma GCC diagnostic pop

void bh_worker_defaults(bh_worker_settings *out)
{
    if (out)
        *out = (bh_worker_settings){.mode = BH_MODE_CREATE};
}

void bh_worker_state(bh_worker *self, bh_health *out)
{
    (void)self;
    if (out)
        *out = (bh_health){.state = BH_HEALTH_STOPPED};
}

void bh_worker_close_fd(bh_worker *self)
{
    (void)self;
}

int64_t bh_worker_copies(const bh_worker *self)
{
    (void)self;
    return 0;
}

bh_status bh_worker_start(bh_worker *self)
{
    (void)self;
    return BH_ERR_NO_LIBRABBITMQ;
}

int bh_worker_fd(bh_worker *self)
{
    (void)self;
    return -1;
}

void bh_message_free(bh_message *self)
{
    (void)self;
}

bh_bytes bh_message_body(const bh_message *self)
{
    (void)self;
    return bh_str("");
}

int64_t bh_message_number(const bh_message *self)
{
    (void)self;
    return 0;
}

int bh_message_redelivered(const bh_message *self)
{
    (void)self;
    return 0;
}

int64_t bh_worker_attempt(bh_worker *self, const bh_message *message)
{
    (void)self;
    (void)message;
    return 0;
}

int bh_worker_may_park(bh_worker *self, const bh_message *message, const bh_settlement *settlement)
{
    (void)self;
    (void)message;
    (void)settlement;
    return 0;
}

bh_bytes bh_worker_error(const bh_worker *self)
{
    (void)self;
    return bh_status_text(BH_ERR_NO_LIBRABBITMQ);
}

void bh_worker_librabbitmq(bh_librabbitmq *out)
{
    if (out)
        *out = (bh_librabbitmq){bh_str(""), bh_str("")};
}
