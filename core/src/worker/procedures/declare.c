#include "worker/procedures/runner.h"

#include "relay/internal.h"
#include "topology/internal.h"
#include "worker/wire/declaration.h"

/* Declarations, on a channel of their own. */
typedef struct session {
    bh__runner *runner;
    bh_declaring *steps;
    int is_open;
} session;

/* Calls on the channel for declarations, and opens it if needed. The channel is on the consume
 * link, because the broker does not answer on a connection whose publishes it blocks. */
static bh_status call_to_declare(session *self, amqp_method_number_t method, void *arguments,
                                 amqp_method_number_t reply, const char *what, bh__answer *out)
{
    bh__link *link = &self->runner->context->consume.link;
    bh_status status = BH_OK;
    *out = (bh__answer){.code = 0};
    if (!self->is_open)
        status = bh__call_open_channel(self->runner, link, BH__CHANNEL_DECLARE, out);
    if (status == BH_OK)
        status = bh__call(self->runner, link, BH__CHANNEL_DECLARE, method, arguments, reply, 0, what, out);
    self->is_open = status == BH_OK;
    return status;
}

static bh_status close_declare_channel(session *self, bh_status status)
{
    bh__answer answer;
    amqp_channel_close_t close = {.reply_code = AMQP_REPLY_SUCCESS, .reply_text = amqp_empty_bytes};
    if (self->is_open && status == BH_OK)
        return bh__call_close_channel(self->runner, &self->runner->context->consume.link, BH__CHANNEL_DECLARE, &answer);
    if (self->is_open)
        bh__link_send(&self->runner->context->consume.link, BH__CHANNEL_DECLARE, AMQP_CHANNEL_CLOSE_METHOD, &close);
    return status;
}

static bh_status take_step(session *self, const bh_declaration *step, bh__answer *out)
{
    bh__declaration declaration;
    if (!bh__declaration_init(&declaration, step))
        return bh__report_set(&self->runner->problem, BH_ERR_NO_MEMORY, "no memory for a declaration");
    bh_status status =
        call_to_declare(self, declaration.method, &declaration.arguments, declaration.reply, declaration.what, out);
    bh__declaration_free(&declaration);
    return status;
}

/* Executes all steps. If the broker closes the connection because of a step, as for an unknown
 * type of exchange, the step counts as refused. */
static bh_status take_steps(session *self)
{
    bh_declaring *steps = self->steps;
    const bh__link *link = &self->runner->context->consume.link;
    bh_declaration step;
    while (bh_declaring_next(steps, &step)) {
        bh__answer got = {.code = 0};
        bh_status status = take_step(self, &step, &got);
        int code = got.code ? got.code : link->close_code;
        if (status == BH_OK)
            continue;
        if (!code)
            return status;
        bh_declaring_refuse(steps, code, bh_str(got.text));
        if (!got.code && bh_declaring_status(steps) != BH_ERR_BROKER)
            return status;
    }
    bh_bytes error = bh_declaring_error(steps);
    return bh__report_set(&self->runner->problem, bh_declaring_status(steps), "%.*s", (int)error.size, error.data);
}

static bh_status declare(bh__runner *self, bh_mode mode, int64_t rung_ms)
{
    session made = {.runner = self, .steps = self->declaring};
    bh_status status = bh_declaring_begin(self->declaring, mode, rung_ms);
    if (status == BH_OK)
        status = take_steps(&made);
    return close_declare_channel(&made, status);
}

bh_status bh__declare(bh__runner *self)
{
    return declare(self, (bh_mode)self->context->settings->mode, 0);
}

bh_status bh__declare_rung(bh__runner *self, int64_t wait_ms)
{
    return declare(self, BH_MODE_CREATE, wait_ms);
}

bh_status bh__check_topology(bh__runner *self)
{
    session made = {.runner = self, .steps = self->declaring};
    bh_status status = bh_declaring_look(self->declaring, (bh_mode)self->context->settings->mode);
    if (status == BH_OK)
        status = take_steps(&made);
    return close_declare_channel(&made, status);
}

/* Like bh__find_queue. *is_down, if not NULL: the queue exists, but its node is down or the
 * queue stopped. */
static bh_status find_queue(bh__runner *self, bh_bytes queue, int *is_down)
{
    bh__answer got;
    session made = {.runner = self};
    amqp_queue_declare_t look = {.queue = bh__to_amqp(queue), .passive = 1};
    bh_status status = call_to_declare(&made, AMQP_QUEUE_DECLARE_METHOD, &look, AMQP_QUEUE_DECLARE_OK_METHOD,
                                       "looking for the work queue", &got);
    if (is_down)
        *is_down = status == BH_ERR_MISSING && !bh__find(bh_str(got.text), "no queue");
    return close_declare_channel(&made, status);
}

bh_status bh__find_queue(bh__runner *self)
{
    return find_queue(self, bh__topology_queue(self->context->settings->topology), NULL);
}

/* ------------------------------------------------------------------- the work queues of a relay */

static bh_status declare_for_queue(bh__runner *self, const bh_topology *part)
{
    session made = {.runner = self};
    bh_mode mode = (bh_mode)self->context->settings->mode;
    bh_status status = bh_declaring_new(&made.steps, part, BH_DIALECT_RELAY);
    if (status == BH_OK)
        status = bh_declaring_set_makes_rungs(made.steps, 1);
    if (status == BH_OK)
        status = bh_declaring_set_declared(made.steps, self->declared);
    if (status == BH_OK)
        status = bh_declaring_begin(made.steps, mode, 0);
    if (status == BH_OK)
        status = close_declare_channel(&made, take_steps(&made));
    bh_declaring_free(made.steps);
    return status;
}

/* Checks that the queue exists, and declares or verifies its other parts. */
static bh_status check_work_queue(bh__runner *self, bh_bytes queue)
{
    const bh__settings *settings = self->context->settings;
    bh_topology *part = NULL;
    int is_down = 0;
    if (settings->mode == BH_MODE_NONE)
        return BH_OK;
    bh_status status = find_queue(self, queue, &is_down);
    if (is_down) /* copies wait until it is up */
        return BH_OK;
    if (status == BH_ERR_MISSING)
        return bh__report_set(&self->problem, status,
                              "the work queue \"%.*s\" is missing: its dead letters go to \"%s\" until it exists",
                              (int)queue.size, queue.data, bh__topology_unroutable_queue(settings->topology).data);
    if (status == BH_OK)
        status = bh__relay_topology_of(&part, settings->relay, queue);
    if (status == BH_OK)
        status = declare_for_queue(self, part);
    bh_topology_free(part);
    return status;
}

/* Records the check of a work queue. Emits BH_EVENT_UNAVAILABLE if it was not missing before. */
static void record_check(bh__runner *self, bh_bytes queue, bh_status status)
{
    bh__context *context = self->context;
    bh__work_queue *known = bh__work_queues_find(&context->work_queues, queue);
    if (!known)
        return;
    bh__presence before = known->last;
    bh__work_queues_record(&context->work_queues, known, status == BH_OK ? BH__PRESENT : BH__MISSING,
                           bh__monotonic_ms());
    if (status != BH_OK && before != BH__MISSING && context->settings->mode == BH_MODE_CREATE)
        bh__emit(context, (bh__event_data){.kind = BH_EVENT_UNAVAILABLE,
                                           .status = status,
                                           .text = bh__report_text(&self->problem),
                                           .connection = &context->consume});
}

bh_status bh__check_work_queues(bh__runner *self)
{
    bh__context *context = self->context;
    bh__report missing = {.size = 0};
    bh_status first = BH_OK;
    char name[256];
    for (bh__work_queue *known; (known = bh__work_queues_next(&context->work_queues));) {
        bh_bytes queue = {name, known->size};
        int is_named = known->is_named;
        memcpy(name, known->name, known->size); /* pumping can add queues and move this one */
        bh_status status = check_work_queue(self, queue);
        if (status == BH_ERR_CONNECTION || status == BH_ERR_NO_MEMORY) {
            bh__report_free(&missing);
            return status;
        }
        record_check(self, queue, status);
        if (status == BH_OK || !is_named || context->settings->mode != BH_MODE_VERIFY)
            continue;
        bh__report_add(&missing, "%s%s", missing.size ? "; " : "", bh__report_text(&self->problem).data);
        first = first == BH_OK ? status : first;
    }
    if (first != BH_OK)
        bh__report_set(&self->problem, first, "%s", bh__report_text(&missing).data);
    bh__report_free(&missing);
    return first;
}
