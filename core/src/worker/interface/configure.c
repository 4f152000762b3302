#include "worker/interface/internal.h"

#include "breaker/internal.h"
#include "events/metrics.h"
#include "policy/internal.h"

#include <stdlib.h>

bh_status bh_worker_add_uri(bh_worker *self, bh_bytes uri)
{
    bh_status status = bh__worker_may_set(self);
    if (status != BH_OK)
        return status;
    if (!uri.data)
        return bh__worker_refuse(self, BH_ERR_ARGUMENT, "the URI is missing");
    void *uris = self->settings.uris;
    if (!bh__reserve(&uris, &self->settings.uri_capacity, sizeof *self->settings.uris, self->settings.uri_count + 1))
        return bh__worker_refuse(self, BH_ERR_NO_MEMORY, "no memory for the URI");
    self->settings.uris = uris;
    self->settings.uris[self->settings.uri_count] = (bh__uri){.text = NULL};
    status = bh__uri_parse(&self->settings.uris[self->settings.uri_count], uri, &self->report);
    self->settings.uri_count += status == BH_OK;
    return status;
}

bh_status bh_worker_set_credentials(bh_worker *self, bh_bytes user, bh_bytes password)
{
    if (!self || !user.data || user.size == 0 || !password.data || memchr(user.data, '\0', user.size) ||
        memchr(password.data, '\0', password.size))
        return BH_ERR_ARGUMENT;
    if (bh__mailbox_is_forked(&self->mailbox))
        return BH_ERR_FORKED;
    return bh__mailbox_set_credentials(&self->mailbox, user, password) ? BH_OK : BH_ERR_NO_MEMORY;
}

/* Copies a path; empty: *out is NULL. */
static bh_status copy_path(bh_worker *self, char **out, bh_bytes path)
{
    *out = NULL;
    if (!path.data || memchr(path.data, '\0', path.size))
        return bh__worker_refuse(self, BH_ERR_ARGUMENT, "the path of a PEM file is missing, or has a zero byte");
    if (path.size == 0)
        return BH_OK;
    *out = malloc(path.size + 1);
    if (!*out)
        return bh__worker_refuse(self, BH_ERR_NO_MEMORY, "no memory for a path");
    memcpy(*out, path.data, path.size);
    (*out)[path.size] = '\0';
    return BH_OK;
}

bh_status bh_worker_set_ca_file(bh_worker *self, bh_bytes path)
{
    char *copy = NULL;
    bh_status status = bh__worker_may_set(self);
    if (status == BH_OK)
        status = copy_path(self, &copy, path);
    if (status != BH_OK)
        return status;
    free(self->settings.ca_file);
    self->settings.ca_file = copy;
    return BH_OK;
}

bh_status bh_worker_set_client_certificate(bh_worker *self, bh_bytes cert, bh_bytes key)
{
    char *paths[2] = {NULL, NULL};
    bh_status status = bh__worker_may_set(self);
    if (status == BH_OK && cert.size == 0 && key.size > 0)
        status = bh__worker_refuse(self, BH_ERR_ARGUMENT,
                                   "a private key without a client certificate: give the certificate too");
    if (status == BH_OK)
        status = copy_path(self, &paths[0], cert);
    if (status == BH_OK)
        status = copy_path(self, &paths[1], key);
    if (status != BH_OK) {
        free(paths[0]);
        return status;
    }
    free(self->settings.cert);
    free(self->settings.key);
    self->settings.cert = paths[0];
    self->settings.key = paths[1];
    return BH_OK;
}

/* Sets *setting if it may change and the value is in the range. */
static bh_status set_number(bh_worker *self, int64_t *setting, int64_t value, int64_t lowest, int64_t highest)
{
    bh_status status = bh__worker_may_set(self);
    if (status != BH_OK)
        return status;
    if (value < lowest || value > highest)
        return bh__report_set(&self->report, BH_ERR_ARGUMENT, "%lld is not from %lld to %lld", (long long)value,
                              (long long)lowest, (long long)highest);
    *setting = value;
    return BH_OK;
}

bh_status bh_worker_set_mode(bh_worker *self, bh_mode mode)
{
    return self ? set_number(self, &self->settings.mode, (int64_t)mode, BH_MODE_CREATE, BH_MODE_NONE) : BH_ERR_ARGUMENT;
}

bh_status bh_worker_set_prefetch(bh_worker *self, int count)
{
    return self ? set_number(self, &self->settings.prefetch, count, 0, UINT16_MAX) : BH_ERR_ARGUMENT;
}

bh_status bh_worker_set_timeouts_ms(bh_worker *self, int64_t connect_ms, int64_t confirm_ms)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    int64_t connect = self->settings.connect_timeout_ms;
    bh_status status = set_number(self, &connect, connect_ms, 1, BH__LONGEST_TIMEOUT_MS);
    if (status == BH_OK)
        status = set_number(self, &self->settings.confirm_timeout_ms, confirm_ms, 1, BH__LONGEST_TIMEOUT_MS);
    if (status == BH_OK)
        self->settings.connect_timeout_ms = connect;
    return status;
}

bh_status bh_worker_set_handler_timeout_ms(bh_worker *self, int64_t limit_ms)
{
    enum { LONGEST_MS = 86400000 };
    return self ? set_number(self, &self->settings.handler_timeout_ms, limit_ms, 0, LONGEST_MS) : BH_ERR_ARGUMENT;
}

bh_status bh_worker_set_breaker(bh_worker *self, bh_breaker *breaker)
{
    bh_status status = bh__worker_may_set(self);
    if (status == BH_OK && self->settings.relay)
        status = bh__worker_refuse(self, BH_ERR_STATE, "a relay calls no handler, so it has no breaker");
    if (status == BH_OK && bh__breaker_is_by_key(breaker))
        status = bh__worker_refuse(self, BH_ERR_ARGUMENT,
                                   "the breaker is by key: call bh_breaker_permit for each message that you take");
    if (status != BH_OK)
        return status;
    bh__breaker_keep(breaker);
    bh_breaker_free(self->settings.breaker);
    self->settings.breaker = breaker;
    return BH_OK;
}

bh_status bh_worker_set_fail_fast(bh_worker *self, int on)
{
    return self ? set_number(self, &self->fail_fast, on, 0, 1) : BH_ERR_ARGUMENT;
}

bh_status bh_worker_set_event(bh_worker *self, bh_event_kind kind, int on)
{
    int64_t bit = on;
    if (!self || (int)kind < 0 || kind >= BH_EVENT_LAST)
        return BH_ERR_ARGUMENT;
    bh_status status = set_number(self, &bit, on, 0, 1);
    if (status == BH_OK)
        self->settings.emitted = (self->settings.emitted & ~(1U << kind)) | (uint32_t)bit << kind;
    return status;
}

bh_status bh_worker_set_metrics(bh_worker *self, const bh_metrics *metrics)
{
    bh_metrics *copy = NULL;
    bh_status status = bh__worker_may_set(self);
    if (status == BH_OK && metrics)
        status = bh__metrics_copy(&copy, metrics);
    if (status != BH_OK)
        return status;
    bh_metrics **counted = &self->mailbox.metrics, *unused = copy;
    pthread_mutex_lock(&self->mailbox.counting); /* as another thread may read them */
    int are_alike = !copy || !*counted || bh__metrics_tell_the_same(*counted, copy);
    if (are_alike) {
        unused = *counted;
        *counted = copy;
    }
    pthread_mutex_unlock(&self->mailbox.counting);
    bh_metrics_free(unused);
    return are_alike ? BH_OK
                     : bh__worker_refuse(self, BH_ERR_ARGUMENT,
                                         "the metrics have different error types, and a worker counts once for all of "
                                         "them: give each the same error types");
}

bh_status bh_worker_set_back_off(bh_worker *self, const bh_policy *policy)
{
    bh_policy *copy;
    bh_status status = bh__worker_may_set(self);
    if (status == BH_OK && !policy)
        status = bh__worker_refuse(self, BH_ERR_ARGUMENT, "the policy is missing");
    if (status == BH_OK)
        status = bh__policy_copy(&copy, policy);
    if (status != BH_OK)
        return status;
    bh_policy_free(self->settings.back_off);
    self->settings.back_off = copy;
    return BH_OK;
}

/* Keeps the reason why the history refused a name. Returns the status. */
static bh_status note_refused_name(bh_worker *self, bh_status status, const char *argument)
{
    switch (status) {
    case BH_ERR_ARGUMENT:
        return self ? bh__worker_refuse(self, status, argument) : status;
    case BH_ERR_NO_MEMORY:
        return bh__worker_refuse(self, status, "no memory for a name");
    default:
        return status;
    }
}

bh_status bh_worker_set_legacy_counter(bh_worker *self, bh_bytes header)
{
    bh_status status = bh__worker_may_set(self);
    if (status == BH_OK)
        status = bh_history_set_legacy_counter(self->settings.reading, header);
    return note_refused_name(self, status, "the header's name is missing");
}

bh_status bh_worker_add_wait_queue(bh_worker *self, bh_bytes queue)
{
    bh_status status = bh__worker_may_set(self);
    if (status == BH_OK)
        status = bh_history_add_wait_queue(self->settings.reading, queue);
    return note_refused_name(self, status, "the name of the wait queue is empty: give the name of a queue");
}
