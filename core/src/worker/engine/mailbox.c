#include "worker/engine/mailbox.h"

#include "worker/wire/clock.h"
#include "worker/wire/schedule.h"

#include <backhop/adapter/event.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---------------------------------------------------------------------------------------- forks */

static atomic_uint forks;
static pthread_once_t watched = PTHREAD_ONCE_INIT;

static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

int bh__mailbox_is_forked(const bh__mailbox *self)
{
    return atomic_load_explicit(&forks, memory_order_relaxed) != self->forks;
}

/* ---------------------------------------------------------------------------------------- pipes */

/* Opens a pipe that is not open yet. Returns 0 if the system gives no descriptors. */
static int open_pipe(int ends[2])
{
    if (ends[0] >= 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0)
        return 1;
    ends[0] = ends[1] = -1;
    return 0;
}

static void close_pipe(int ends[2])
{
    for (int i = 0; i < 2; i++) {
        int end = ends[i];
        ends[i] = -1; /* first: a fork's child closes the ends that are not -1 */
        if (end >= 0)
            close(end);
    }
}

static void write_byte(int end)
{
    int kept = errno;
    ssize_t written = write(end, "", 1);
    (void)written; /* a full pipe is readable too */
    errno = kept;
}

static void read_bytes(const int ends[2])
{
    char bytes[64];
    while (read(ends[0], bytes, sizeof bytes) == (ssize_t)sizeof bytes)
        continue;
}

static int make_locks(bh__mailbox *self)
{
    self->has_locks = pthread_mutex_init(&self->mutex, NULL) == 0 && pthread_mutex_init(&self->taking, NULL) == 0 &&
                      pthread_mutex_init(&self->reading, NULL) == 0 && pthread_mutex_init(&self->counting, NULL) == 0 &&
                      bh__condition_init(&self->arrived);
    return self->has_locks;
}

int bh__mailbox_init(bh__mailbox *self)
{
    pthread_once(&watched, watch_forks);
    self->forks = atomic_load(&forks);
    self->signal[0] = self->signal[1] = self->wake[0] = self->wake[1] = -1;
    atomic_init(&self->wake_end, -1);
    atomic_init(&self->wakers, 0);
    atomic_init(&self->life, BH__IDLE);
    atomic_init(&self->stop_ms, BH__NEVER);
    atomic_init(&self->sleep, BH__AWAKE);
    atomic_init(&self->settled, NULL);
    atomic_init(&self->settled_count, 0);
    atomic_init(&self->event_count, 0);
    atomic_init(&self->unconfirmed_count, 0);
    atomic_init(&self->progress_ms, 0);
    self->health.state = BH_HEALTH_STOPPED;
    self->replay_most = -1;
    return make_locks(self) && bh_delivery_new(&self->delivery) == BH_OK && bh_history_new(&self->history) == BH_OK;
}

static void free_events(bh__mailbox *self)
{
    while (self->first_event) {
        bh_event *event = self->first_event;
        self->first_event = event->next;
        bh_event_free(event);
    }
}

void bh__mailbox_free(bh__mailbox *self)
{
    bh__mailbox_collect(self, &self->ready);
    bh__message_list_append(&self->ready, &self->at_hand);
    bh__message_list_clear(&self->ready);
    free_events(self);
    bh_delivery_free(self->delivery);
    bh_history_free(self->history);
    bh_metrics_free(self->metrics);
    free(self->credentials);
    close_pipe(self->signal);
    close_pipe(self->wake);
    if (!self->has_locks)
        return;
    bh__condition_destroy(&self->arrived);
    pthread_mutex_destroy(&self->counting);
    pthread_mutex_destroy(&self->reading);
    pthread_mutex_destroy(&self->taking);
    pthread_mutex_destroy(&self->mutex);
}

int bh__mailbox_set_credentials(bh__mailbox *self, bh_bytes user, bh_bytes password)
{
    char *made = calloc(1, user.size + password.size + 2);
    if (!made)
        return 0;
    memcpy(made, user.data, user.size);
    memcpy(made + user.size + 1, password.data, password.size);
    pthread_mutex_lock(&self->mutex);
    char *old = self->credentials;
    self->credentials = made;
    self->credentials_size = user.size + password.size + 2;
    pthread_mutex_unlock(&self->mutex);
    free(old);
    return 1;
}

int bh__mailbox_copy_credentials(bh__mailbox *self, char **out)
{
    pthread_mutex_lock(&self->mutex);
    *out = self->credentials ? malloc(self->credentials_size) : NULL;
    if (*out)
        memcpy(*out, self->credentials, self->credentials_size);
    int is_done = *out || !self->credentials;
    pthread_mutex_unlock(&self->mutex);
    return is_done;
}

void bh__mailbox_wake(bh__mailbox *self)
{
    atomic_fetch_add(&self->wakers, 1);
    int end = atomic_load(&self->wake_end);
    if (end >= 0)
        write_byte(end);
    atomic_fetch_sub(&self->wakers, 1);
}

/* -------------------------------------------------------------------------------------- callers */

static int has_message(const bh__mailbox *self)
{
    return (self->ready.first || self->has_at_hand) && !self->is_held;
}

static int has_event(const bh__mailbox *self)
{
    return atomic_load(&self->event_count) > 0;
}

/* Makes the descriptor readable exactly while a message or an event can be taken. */
static void update_signal(bh__mailbox *self)
{
    int has_some = has_message(self) || has_event(self);
    if (!self->is_watched || has_some == self->is_signalled)
        return;
    self->is_signalled = has_some;
    if (has_some)
        write_byte(self->signal[1]);
    else
        read_bytes(self->signal);
}

/* Moves ready messages to `at_hand`. Call it under `taking`. */
static void replenish(bh__mailbox *self)
{
    pthread_mutex_lock(&self->mutex);
    bh__message_list_append(&self->at_hand, &self->ready);
    self->has_at_hand = self->at_hand.first != NULL;
    update_signal(self);
    pthread_mutex_unlock(&self->mutex);
}

/* Holds the messages until the thread finds that the breaker may grant a permit. */
static void hold(bh__mailbox *self)
{
    pthread_mutex_lock(&self->mutex);
    int was_held = self->is_held;
    self->is_held = 1;
    update_signal(self);
    pthread_mutex_unlock(&self->mutex);
    if (!was_held)
        bh__mailbox_wake(self);
}

/* Requests the permit to handle a message. Returns 0 if there is none. */
static int get_permit(bh__mailbox *self, bh_message *message)
{
    if (!self->breaker || !message)
        return 1;
    message->permit_ms = bh__monotonic_ms();
    bh_breaker_permit(self->breaker, bh_str(""), message->permit_ms, &message->permit);
    if (message->permit.generation)
        return 1;
    hold(self);
    return 0;
}

void bh__mailbox_record(const bh__mailbox *self, const bh_message *message, bh_call call)
{
    if (!message->permit.generation)
        return;
    int64_t now_ms = bh__monotonic_ms();
    call.duration_ms = now_ms - message->permit_ms;
    bh_breaker_record(self->breaker, bh_str(""), &message->permit, &call, now_ms);
}

bh_message *bh__mailbox_take(bh__mailbox *self)
{
    pthread_mutex_lock(&self->taking);
    if (!self->at_hand.first)
        replenish(self);
    bh_message *message = NULL;
    if (get_permit(self, self->at_hand.first))
        message = bh__message_list_pop(&self->at_hand);
    if (message && self->handler_timeout_ms)
        atomic_store(&self->progress_ms, bh__monotonic_ms());
    if (message && !self->at_hand.first)
        replenish(self);
    pthread_mutex_unlock(&self->taking);
    return message;
}

int bh__mailbox_watch(bh__mailbox *self)
{
    pthread_mutex_lock(&self->mutex);
    self->is_watched = open_pipe(self->signal);
    update_signal(self);
    int descriptor = self->signal[0];
    pthread_mutex_unlock(&self->mutex);
    return descriptor;
}

void bh__mailbox_unwatch(bh__mailbox *self)
{
    pthread_mutex_lock(&self->mutex);
    if (atomic_load(&self->life) != BH__RUNNING) {
        self->is_watched = self->is_signalled = 0;
        close_pipe(self->signal);
    }
    pthread_mutex_unlock(&self->mutex);
}

void bh__mailbox_wait(bh__mailbox *self, int64_t timeout_ms, int for_events)
{
    int64_t end_us = bh__monotonic_us() + timeout_ms * 1000;
    pthread_mutex_lock(&self->mutex);
    int is_in_time = 1;
    while (is_in_time && !(has_message(self) && bh__mailbox_is_delivering(self)) && !(for_events && has_event(self)) &&
           (for_events ? atomic_load(&self->life) == BH__RUNNING : bh__mailbox_is_delivering(self)))
        is_in_time = bh__condition_wait(&self->arrived, &self->mutex, end_us);
    pthread_mutex_unlock(&self->mutex);
}

int bh__mailbox_request_replay(bh__mailbox *self, int64_t most)
{
    pthread_mutex_lock(&self->mutex);
    int is_free = !self->is_replaying && self->replay_most < 0;
    if (is_free)
        self->replay_most = most;
    pthread_mutex_unlock(&self->mutex);
    return is_free;
}

int64_t bh__mailbox_begin_replay(bh__mailbox *self)
{
    pthread_mutex_lock(&self->mutex);
    int64_t most = self->replay_most;
    self->replay_most = -1;
    self->is_replaying = most >= 0;
    pthread_mutex_unlock(&self->mutex);
    return most;
}

void bh__mailbox_end_replay(bh__mailbox *self)
{
    pthread_mutex_lock(&self->mutex);
    self->is_replaying = 0;
    pthread_mutex_unlock(&self->mutex);
}

static bh_event *pop_event(bh__mailbox *self)
{
    bh_event *event = self->first_event;
    if (self->missed_count) {
        if (bh_event_new(&event, BH_EVENT_MISSED) == BH_OK)
            bh_event_set_int(event, BH_FIELD_COUNT, self->missed_count);
        self->missed_count = 0;
        atomic_fetch_sub(&self->event_count, 1);
    } else if (event) {
        self->first_event = event->next;
        if (!self->first_event)
            self->last_event = NULL;
        atomic_fetch_sub(&self->event_count, 1);
    }
    return event;
}

bh_event *bh__mailbox_take_event(bh__mailbox *self)
{
    if (!has_event(self))
        return NULL;
    pthread_mutex_lock(&self->mutex);
    bh_event *event = pop_event(self);
    update_signal(self);
    pthread_mutex_unlock(&self->mutex);
    return event;
}

/* Stands for the last settled message when the mailbox is closed. It is no message's address. */
#define CLOSED ((bh_message *)(uintptr_t)1)

int bh__mailbox_settle(bh__mailbox *self, bh_message *message)
{
    bh_message *before = atomic_load(&self->settled);
    do {
        if (before == CLOSED)
            return 0;
        message->next = before;
    } while (!atomic_compare_exchange_weak(&self->settled, &before, message));
    size_t count = atomic_fetch_add(&self->settled_count, 1) + 1;
    int sleep = atomic_load(&self->sleep);
    if ((sleep == BH__ASLEEP || (sleep == BH__NAPPING && count >= self->wake_count)) &&
        atomic_exchange(&self->sleep, BH__AWAKE) != BH__AWAKE)
        bh__mailbox_wake(self);
    return 1;
}

/* ----------------------------------------------------------------------------------- the thread */

void bh__mailbox_offer(bh__mailbox *self, bh__message_list *messages)
{
    if (!messages->first)
        return;
    pthread_mutex_lock(&self->mutex);
    if (self->handler_timeout_ms && !has_message(self))
        atomic_store(&self->progress_ms, bh__monotonic_ms());
    bh__message_list_append(&self->ready, messages);
    update_signal(self);
    pthread_mutex_unlock(&self->mutex);
    bh__condition_wake(&self->arrived);
}

void bh__mailbox_resume(bh__mailbox *self)
{
    pthread_mutex_lock(&self->mutex);
    int was_held = self->is_held;
    self->is_held = 0;
    update_signal(self);
    pthread_mutex_unlock(&self->mutex);
    if (was_held)
        bh__condition_wake(&self->arrived);
}

void bh__mailbox_withdraw(bh__mailbox *self, bh__message_list *out)
{
    pthread_mutex_lock(&self->taking);
    replenish(self);
    bh__message_list_append(out, &self->at_hand);
    replenish(self);
    pthread_mutex_unlock(&self->taking);
    bh__condition_wake(&self->arrived); /* the worker may be stopping */
}

/* Moves settled messages to the list, in the order of their settlement. */
static void append_settled(bh__mailbox *self, bh_message *last, bh__message_list *out)
{
    bh_message *first = NULL;
    size_t count = 0;
    for (bh_message *message = last; message; count++) {
        bh_message *before = message->next;
        message->next = first;
        first = message;
        message = before;
    }
    atomic_fetch_sub(&self->settled_count, count);
    bh__message_list settled = {first, last, count};
    bh__message_list_append(out, &settled);
}

void bh__mailbox_collect(bh__mailbox *self, bh__message_list *out)
{
    if (atomic_load(&self->settled) != CLOSED)
        append_settled(self, atomic_exchange(&self->settled, NULL), out);
}

void bh__mailbox_close(bh__mailbox *self, bh__message_list *out)
{
    bh_message *last = atomic_exchange(&self->settled, CLOSED);
    append_settled(self, last == CLOSED ? NULL : last, out);
}

int bh__mailbox_open(bh__mailbox *self)
{
    pthread_mutex_lock(&self->mutex);
    int is_open = open_pipe(self->wake) && open_pipe(self->signal);
    if (is_open) {
        self->health = (bh_health){.state = BH_HEALTH_STARTING};
        self->is_held = 0;
    }
    pthread_mutex_unlock(&self->mutex);
    if (!is_open)
        return 0;
    atomic_store(&self->settled, NULL);
    atomic_store(&self->wake_end, self->wake[1]);
    return 1;
}

void bh__mailbox_end(bh__mailbox *self)
{
    atomic_store(&self->wake_end, -1);
    while (atomic_load(&self->wakers) > 0) /* each writes one byte without blocking */
        bh__schedule_yield();
    close_pipe(self->wake);
}

static void push_event(bh__mailbox *self, bh_event *event)
{
    if (self->last_event)
        self->last_event->next = event;
    else
        self->first_event = event;
    self->last_event = event;
    atomic_fetch_add(&self->event_count, 1);
}

/* Counts a missed event. MISSED is taken before the other events. */
static void miss_event(bh__mailbox *self)
{
    if (self->missed_count++ == 0)
        atomic_fetch_add(&self->event_count, 1);
}

void bh__mailbox_count(bh__mailbox *self, const bh_event *event)
{
    if (!self->metrics || !event)
        return;
    pthread_mutex_lock(&self->counting);
    bh_metrics_observe(self->metrics, event); /* without memory it is not counted */
    pthread_mutex_unlock(&self->counting);
}

void bh__mailbox_observe(bh__mailbox *self, const bh_event *event)
{
    pthread_mutex_lock(&self->mutex);
    bh_health_observe(&self->health, event);
    pthread_mutex_unlock(&self->mutex);
}

size_t bh__mailbox_waiting(bh__mailbox *self)
{
    pthread_mutex_lock(&self->taking);
    size_t count = self->at_hand.count;
    pthread_mutex_lock(&self->mutex);
    count += self->ready.count;
    pthread_mutex_unlock(&self->mutex);
    pthread_mutex_unlock(&self->taking);
    return count;
}

void bh__mailbox_push_event(bh__mailbox *self, bh_event *event, int is_last)
{
    bh_event *oldest = NULL;
    pthread_mutex_lock(&self->mutex);
    if (event)
        push_event(self, event);
    if (atomic_load(&self->event_count) > BH_WORKER_MOST_EVENTS) {
        oldest = self->first_event;
        self->first_event = oldest->next;
        atomic_fetch_sub(&self->event_count, 1);
    }
    if (!event || oldest)
        miss_event(self);
    if (is_last)
        atomic_store(&self->life, BH__DRAINED);
    update_signal(self);
    pthread_mutex_unlock(&self->mutex);
    bh__condition_wake(&self->arrived);
    bh_event_free(oldest);
}

int bh__mailbox_begin_wait(bh__mailbox *self, bh__sleep sleep)
{
    atomic_store(&self->sleep, (int)sleep);
    return atomic_load(&self->settled_count) < (sleep == BH__NAPPING ? self->wake_count : 1);
}

void bh__mailbox_end_wait(bh__mailbox *self, int was_woken)
{
    atomic_store(&self->sleep, BH__AWAKE);
    if (was_woken)
        read_bytes(self->wake);
}
