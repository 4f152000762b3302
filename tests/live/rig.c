#include "rig.h"
#include "../reading.h"

#include <backhop/adapter/delivery.h>
#include <backhop/adapter/history.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* RabbitMQ counts whole milliseconds: a message that came at 10.9 ms came at 10, and its 100 ms end
 * at 110.0. */
enum { CLOCK_STEP_MS = 1 };

static void make_topology(rig *self)
{
    bh_topology_free(self->topology);
    ck_assert_int_eq(bh_topology_new(&self->topology, bh_str(self->queue)), BH_OK);
    ck_assert_int_eq(topology_set_strategy(self->topology, self->strategy), BH_OK);
    ck_assert_int_eq(topology_set_queue_type(self->topology, self->type), BH_OK);
    ck_assert_int_eq(topology_set_name_space(self->topology, bh_str(self->ns)), BH_OK);
}

static void set_up(rig *self, bh_strategy strategy, bh_queue_type type)
{
    self->broker = broker_open();
    self->strategy = strategy;
    self->type = type;
    ck_assert_int_eq(bh_policy_new(&self->policy), BH_OK);
    ck_assert_int_eq(policy_set_kind(self->policy, BH_KIND_FIXED), BH_OK);
    ck_assert_int_eq(policy_set_initial_ms(self->policy, RIG_DELAY_MS), BH_OK);
    ck_assert_int_eq(policy_set_jitter(self->policy, BH_JITTER_NONE, 0), BH_OK);
    ck_assert_int_eq(policy_set_max_attempts(self->policy, 3), BH_OK);
    ck_assert_int_eq(policy_set_max_retry_after_ms(self->policy, 0), BH_OK);
    ck_assert_int_eq(bh_delivery_new(&self->delivery), BH_OK);
    ck_assert_int_eq(bh_history_new(&self->history), BH_OK);
}

/* Takes the work queue's name, and has the topology make it. */
static void set_queue(rig *self, const char *prefix, const char *name)
{
    snprintf(self->queue, sizeof self->queue, "%s%s", prefix, name);
    snprintf(self->parked, sizeof self->parked, "%s.parked", self->queue);
    make_topology(self);
    ck_assert_int_eq(topology_declare_work_queue(self->topology, self->type), BH_OK);
}

void rig_rename(rig *self, const char *ns, const char *queue)
{
    if (ns != self->ns)
        snprintf(self->ns, sizeof self->ns, "%s", ns);
    set_queue(self, "", queue);
}

void rig_leave_work_queue(rig *self)
{
    make_topology(self);
    broker_remove_later(self->queue);
}

rig *rig_new(bh_strategy strategy, bh_queue_type type)
{
    static int count;
    rig *self = calloc(1, sizeof *self);
    ck_assert_ptr_nonnull(self);
    snprintf(self->ns, sizeof self->ns, "live.%ld.%d", (long)getpid(), ++count);
    snprintf(self->exchange, sizeof self->exchange, "%s.events", self->ns);
    set_up(self, strategy, type);
    set_queue(self, rig_name(self, ""), "work");
    return self;
}

rig *rig_new_beside(const rig *first, const char *name)
{
    rig *self = calloc(1, sizeof *self);
    ck_assert_ptr_nonnull(self);
    memcpy(self->ns, first->ns, sizeof self->ns);
    memcpy(self->exchange, first->exchange, sizeof self->exchange);
    set_up(self, first->strategy, first->type);
    set_queue(self, rig_name(self, ""), name);
    return self;
}

void rig_prepare(rig *self)
{
    bh_status status = bh_topology_build(self->topology, self->policy);
    ck_assert_msg(status == BH_OK, "%s", bh_topology_error(self->topology).data);
    for (size_t i = 0; i < view_of(self->topology).declaration_count; i++)
        if (declaration_at(self->topology, i).kind != BH_DECLARE_BINDING)
            broker_remove_later(declaration_at(self->topology, i).name.data);
    broker_declare_exchange(self->broker, self->exchange, "topic");
}

void rig_make_worker(rig *self)
{
    bh_status status = bh_worker_new(&self->worker, self->policy, self->topology);
    ck_assert_msg(status == BH_OK, "bh_worker_new: %s", bh_status_text(status).data);
    bh_worker_defaults(&self->settings);
    self->settings.emits[BH_EVENT_RETRIED] = 1;
    rig_set(self, emits[BH_EVENT_DROPPED], 1);
}

void rig_apply(rig *self)
{
    expect_ok(self->worker, bh_worker_set(self->worker, &self->settings));
}

void rig_set_timeouts(rig *self, int64_t connect_ms, int64_t confirm_ms)
{
    self->settings.connect_timeout_ms = connect_ms;
    rig_set(self, confirm_timeout_ms, confirm_ms);
}

void rig_set_history(rig *self, const char *legacy_counter, const char *wait_queue)
{
    bh_history *history;
    ck_assert_int_eq(bh_history_new(&history), BH_OK);
    if (legacy_counter)
        ck_assert_int_eq(bh_history_set_legacy_counter(history, bh_str(legacy_counter)), BH_OK);
    if (wait_queue)
        ck_assert_int_eq(bh_history_add_wait_queue(history, bh_str(wait_queue)), BH_OK);
    rig_set(self, history, history);
    self->settings.history = NULL;
    bh_history_free(history);
}

void rig_connect_by(rig *self, const char *url)
{
    expect_ok(self->worker, bh_worker_add_uri(self->worker, bh_str(url)));
    expect_ok(self->worker, bh_worker_start(self->worker));
    rig_await(self, BH_EVENT_CONNECTED);
}

void rig_connect(rig *self)
{
    rig_connect_by(self, broker_url());
}

void rig_start(rig *self)
{
    if (!self->worker) {
        rig_prepare(self);
        rig_make_worker(self);
    }
    rig_connect(self);
    broker_bind(self->broker, self->queue, self->exchange, "work.#");
}

void rig_stop_worker(rig *self)
{
    bh_worker_free(self->worker);
    self->worker = NULL;
    rig_forget_events(self);
}

void rig_free_with_nothing_ready(rig *self)
{
    rig_stop_worker(self);
    ck_assert_int_eq(broker_depth(self->broker, self->queue), 0);
    rig_free(self);
}

void rig_restart(rig *self, bh_mode mode)
{
    rig_stop_worker(self);
    rig_make_worker(self);
    rig_set(self, mode, mode);
    rig_connect(self);
}

void rig_free(rig *self)
{
    rig_stop_worker(self);
    bh_message_free(self->message);
    bh_event_free(self->event);
    free(self->events);
    bh_topology_free(self->topology);
    bh_policy_free(self->back_off);
    bh_policy_free(self->policy);
    bh_delivery_free(self->delivery);
    bh_history_free(self->history);
    broker_close(self->broker);
    free(self);
}

const char *rig_name(const rig *self, const char *suffix)
{
    static char names[8][300];
    static size_t next;
    char *name = names[next++ % 8];
    snprintf(name, sizeof names[0], "%s.%s", self->ns, suffix);
    return name;
}

const char *rig_rung(const rig *self, int64_t ms)
{
    char suffix[32];
    snprintf(suffix, sizeof suffix, "wait.%lld", (long long)ms);
    return rig_name(self, suffix);
}

const char *rig_sibling(rig *self, const char *suffix, const char *key)
{
    const char *name = rig_name(self, suffix);
    broker_declare_classic(self->broker, name);
    broker_bind(self->broker, name, self->exchange, key);
    return name;
}

/* --------------------------------------------------------------------------------------- events */

/* Takes what there is. */
static void collect(rig *self)
{
    bh_event *event;
    while (self->worker && bh_worker_take_event(self->worker, &event) == BH_OK) {
        bh_event **events = realloc(self->events, (self->event_count + 1) * sizeof(bh_event *));
        ck_assert_ptr_nonnull(events);
        self->events = events;
        events[self->event_count++] = event;
    }
}

/* Returns the events that were not awaited, for a test that fails. */
static const char *told(rig *self)
{
    static char text[4096];
    size_t size = 0;
    collect(self);
    strcpy(text, "nothing");
    for (size_t i = 0; i < self->event_count && size < sizeof text; i++) {
        const bh_event *each = self->events[i];
        size += (size_t)snprintf(text + size, sizeof text - size, "%s%s (%s, \"%s\")", i > 0 ? ", " : "",
                                 bh_event_name(bh_event_what(each)).data,
                                 bh_status_name((bh_status)bh_event_int(each, BH_FIELD_STATUS)).data,
                                 bh_event_text(each).data);
    }
    return text;
}

static int is_one_of(const bh_event *event, unsigned kinds, bh_bytes id)
{
    bh_bytes own = bh_event_string(event, BH_FIELD_ID);
    return (kinds >> bh_event_what(event) & 1) &&
           (id.size == 0 || (own.size == id.size && memcmp(own.data, id.data, id.size) == 0));
}

/* Moves the oldest of these kinds to self->event; returns 0 if there is none. */
static int pick(rig *self, unsigned kinds, bh_bytes id)
{
    for (size_t i = 0; i < self->event_count; i++)
        if (is_one_of(self->events[i], kinds, id)) {
            bh_event_free(self->event);
            self->event = self->events[i];
            self->event_count--;
            memmove(&self->events[i], &self->events[i + 1], (self->event_count - i) * sizeof(bh_event *));
            return 1;
        }
    return 0;
}

/* An event of one of these kinds (bits), about this message if its id is known. */
static void await(rig *self, unsigned kinds, bh_bytes id, const char *what)
{
    int64_t limit = now_ms() + LIMIT_MS;
    for (collect(self); !pick(self, kinds, id); collect(self)) {
        ck_assert_msg(now_ms() < limit, "no event: %s; the worker told: %s", what, told(self));
        rig_wait_readable(self, limit - now_ms());
        pause_ms(1); /* it stays readable while there are messages to take */
    }
}

void rig_await(rig *self, bh_event_kind kind)
{
    await(self, 1U << kind, bh_str(""), bh_event_name(kind).data);
}

int rig_count_events(rig *self, bh_event_kind kind)
{
    int count = 0;
    collect(self);
    for (size_t i = 0; i < self->event_count; i++)
        count += bh_event_what(self->events[i]) == kind;
    return count;
}

void rig_forget_events(rig *self)
{
    collect(self);
    while (self->event_count > 0)
        bh_event_free(self->events[--self->event_count]);
}

static void replay_nothing(rig *self)
{
    expect_ok(self->worker, bh_worker_replay(self->worker, 1));
    rig_await(self, BH_EVENT_REPLAYED);
    ck_assert_msg(bh_event_int(self->event, BH_FIELD_COUNT) == 0, "%s is not empty", self->parked);
}

void rig_await_read(rig *self)
{
    replay_nothing(self); /* the worker has seen all settlements then */
    for (int64_t limit = now_ms() + LIMIT_MS; bh_worker_copies(self->worker) > 0; pause_ms(1))
        ck_assert_msg(now_ms() < limit, "a copy is not confirmed; the worker told: %s", told(self));
    replay_nothing(self);
}

const char *rig_await_health(rig *self, bh_health_state state)
{
    static bh_health health;
    int64_t limit = now_ms() + LIMIT_MS;
    for (bh_worker_state(self->worker, &health); health.state != state; bh_worker_state(self->worker, &health)) {
        ck_assert_msg(now_ms() < limit, "the state is %d (%s) instead of %d", (int)health.state, health.reason,
                      (int)state);
        pause_ms(1);
    }
    return health.reason;
}

int rig_wait_readable(const rig *self, int64_t ms)
{
    struct pollfd fd = {bh_worker_fd(self->worker), POLLIN, 0};
    return poll(&fd, 1, ms > 0 ? (int)ms : 0) > 0;
}

/* ------------------------------------------------------------------------------------- messages */

int rig_try_take(rig *self, int64_t ms)
{
    bh_message_free(self->message);
    self->message = NULL;
    bh_status status = bh_worker_take(self->worker, &self->message, ms);
    if (status == BH_ERR_TIMEOUT)
        return 0;
    expect_ok(self->worker, status);
    expect_ok(self->worker, bh_worker_read(self->worker, self->message, self->delivery, self->history));
    return 1;
}

void rig_take(rig *self, const char *body)
{
    int is_taken = rig_try_take(self, RESENT_MS);
    if (!is_taken)
        broker_show_queues();
    ck_assert_msg(is_taken, "no message came; the worker told: %s", told(self));
    if (body)
        expect_bytes(bh_message_body(self->message), body);
}

void rig_expect_silence(rig *self, int64_t ms)
{
    bh_message *unexpected = NULL;
    expect_status(self->worker, bh_worker_take(self->worker, &unexpected, ms), BH_ERR_TIMEOUT);
}

void rig_settle(rig *self, bh_outcome outcome, const char *error, int64_t retry_after_ms)
{
    expect_ok(self->worker, settle_as(self->worker, self->message, outcome, error, retry_after_ms));
}

bh_event_kind rig_await_end(rig *self)
{
    await(self, 1U << BH_EVENT_RETRIED | 1U << BH_EVENT_PARKED | 1U << BH_EVENT_STALE, bh_str(""),
          "retried, parked or stale");
    return bh_event_what(self->event);
}

void rig_await_settled(rig *self)
{
    await(self, 1U << BH_EVENT_RETRIED | 1U << BH_EVENT_PARKED, past_of(self->history).id, "retried or parked");
    ck_assert_int_eq(bh_event_int(self->event, BH_FIELD_ATTEMPTS), past_of(self->history).attempts + 1);
}

void rig_fail(rig *self, const char *error)
{
    rig_settle(self, BH_OUTCOME_FAILED, error, 0);
    rig_await_settled(self);
}

void rig_park(rig *self, const char *error)
{
    rig_settle(self, BH_OUTCOME_PERMANENT, error, 0);
    rig_await_settled(self);
    ck_assert_int_eq(bh_event_what(self->event), BH_EVENT_PARKED);
}

void rig_succeed(rig *self)
{
    rig_settle(self, BH_OUTCOME_OK, "", 0);
}

void rig_publish(rig *self, const char *routing_key, const char *body)
{
    broker_publish_text(self->broker, self->exchange, routing_key, body);
}

void rig_publish_and_take(rig *self)
{
    broker_publish_with_id(self->broker, self->exchange, "work.a", "first");
    rig_take(self, "first");
}

/* --------------------------------------------------------------------------------- expectations */

int holds(bh_bytes text, const char *part)
{
    size_t size = strlen(part);
    for (size_t i = 0; i + size <= text.size; i++)
        if (memcmp(text.data + i, part, size) == 0)
            return 1;
    return 0;
}

void expect_text_at(bh_bytes got, const char *want, const char *file, int line)
{
    ck_assert_msg(got.size == strlen(want) && memcmp(got.data, want, got.size) == 0,
                  "%s:%d: \"%.*s\" instead of \"%s\"", file, line, (int)got.size, got.data, want);
}

void expect_status_at(const bh_worker *worker, bh_status got, bh_status want, const char *call, const char *file,
                      int line)
{
    ck_assert_msg(got == want, "%s:%d: %s: %s instead of %s: %s", file, line, call, bh_status_name(got).data,
                  bh_status_name(want).data, bh_worker_error(worker).data);
}

void expect_part_at(bh_bytes text, const char *part, const char *file, int line)
{
    ck_assert_msg(holds(text, part), "%s:%d: \"%s\" is not in \"%.*s\"", file, line, part, (int)text.size, text.data);
}

void expect_event_at(rig *r, bh_event_kind kind, bh_status status, const char *part, const char *file, int line)
{
    rig_await(r, kind);
    bh_bytes text = bh_event_text(r->event);
    ck_assert_msg((bh_status)bh_event_int(r->event, BH_FIELD_STATUS) == status,
                  "%s:%d: %s with %s instead of %s: %s; the worker told besides: %s", file, line,
                  bh_event_name(kind).data, bh_status_name((bh_status)bh_event_int(r->event, BH_FIELD_STATUS)).data,
                  bh_status_name(status).data, text.data, told(r));
    expect_part_at(text, part, file, line);
}

void expect_no_event_at(rig *r, bh_event_kind kind, const char *file, int line)
{
    ck_assert_msg(rig_count_events(r, kind) == 0, "%s:%d: %s: %s", file, line, bh_event_name(kind).data, told(r));
}

void expect_retried_at(const rig *r, int64_t delay_ms, const char *file, int line)
{
    ck_assert_msg(bh_event_what(r->event) == BH_EVENT_RETRIED, "%s:%d: it was parked: %s", file, line,
                  bh_event_text(r->event).data);
    ck_assert_msg(bh_event_int(r->event, BH_FIELD_DELAY) == delay_ms, "%s:%d: a delay of %lld ms instead of %lld", file,
                  line, (long long)bh_event_int(r->event, BH_FIELD_DELAY), (long long)delay_ms);
}

void expect_parked_at(const rig *r, const char *reason, const char *file, int line)
{
    ck_assert_msg(bh_event_what(r->event) == BH_EVENT_PARKED, "%s:%d: it was retried", file, line);
    expect_text_at(bh_event_string(r->event, BH_FIELD_REASON), reason, file, line);
}

void expect_attempt_at(const rig *r, int64_t attempt, const char *file, int line)
{
    int64_t got = bh_worker_attempt(r->worker, r->message);
    ck_assert_msg(got == attempt, "%s:%d: attempt %lld instead of %lld", file, line, (long long)got,
                  (long long)attempt);
    ck_assert_int_eq(past_of(r->history).attempts, attempt - 1);
}

void expect_origin_at(const rig *r, const char *exchange, const char *routing_key, const char *file, int line)
{
    expect_text_at(past_of(r->history).exchange, exchange, file, line);
    expect_text_at(past_of(r->history).routing_key, routing_key, file, line);
}

void expect_waited(int64_t start, int64_t delay)
{
    int64_t waited = now_ms() - start;
    ck_assert_msg(waited + CLOCK_STEP_MS >= delay, "%lld ms instead of %lld: too early", (long long)waited,
                  (long long)delay);
}

void expect_history(const message *copy, const rig *r, int64_t attempts, const char *error)
{
    expect_bytes(message_string(copy, "backhop-queue"), r->queue);
    ck_assert_int_eq(message_int(copy, "backhop-attempts"), attempts);
    int64_t first = message_int(copy, "backhop-first-failure"), now = epoch_ms();
    ck_assert_msg(first <= now && first > now - LIMIT_MS, "the first failure is not just now: %lld", (long long)first);
    ck_assert_uint_gt(message_string(copy, "backhop-id").size, 0);
    if (error)
        expect_bytes(message_string(copy, "backhop-error"), error);
    else
        ck_assert_uint_eq(message_header(copy, "backhop-error").size, 0);
    const char *mode = copy->properties[BH_PROPERTY_DELIVERY_MODE].data;
    ck_assert_msg(mode && *mode == 2, "the copy is not persistent");
}

int is_added_header(bh_bytes name)
{
    static const char *const prefixes[] = {"backhop-",         "x-death",          "x-first-death-", "x-last-death-",
                                           "x-delivery-count", "x-acquired-count", "x-delay"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (name.size >= strlen(prefixes[i]) && memcmp(name.data, prefixes[i], strlen(prefixes[i])) == 0)
            return 1;
    return 0;
}

static size_t own_headers(const message *self)
{
    size_t position = 0, count = 0;
    bh_bytes name, value;
    while (message_next_header(self, &position, &name, &value))
        count += !is_added_header(name);
    return count;
}

void expect_same_headers(const message *copy, const message *original)
{
    size_t position = 0;
    bh_bytes name, value;
    while (message_next_header(original, &position, &name, &value)) {
        if (is_added_header(name))
            continue;
        char text[256] = "";
        memcpy(text, name.data, name.size);
        bh_bytes found = message_header(copy, text);
        ck_assert_msg(found.size > 0, "the copy has lost its header %s", text);
        ck_assert_msg(found.size == value.size && memcmp(found.data, value.data, value.size) == 0,
                      "the copy has changed its header %s", text);
    }
    ck_assert_uint_eq(own_headers(copy), own_headers(original));
}

void expect_same_properties(const message *copy, const message *original)
{
    for (int i = 0; i < BH_PROPERTY_LAST; i++) {
        if (i == BH_PROPERTY_HEADERS || i == BH_PROPERTY_DELIVERY_MODE || i == BH_PROPERTY_EXPIRATION ||
            i == BH_PROPERTY_USER_ID)
            continue;
        bh_bytes got = copy->properties[i], want = original->properties[i];
        ck_assert_msg((got.data == NULL) == (want.data == NULL), "property %d came or went", i);
        ck_assert_msg(got.size == want.size && (got.size == 0 || memcmp(got.data, want.data, got.size) == 0),
                      "property %d has changed", i);
    }
    ck_assert_msg(!copy->properties[BH_PROPERTY_EXPIRATION].data, "the copy expires");
    ck_assert_msg(!copy->properties[BH_PROPERTY_USER_ID].data, "the copy has a user-id");
}
