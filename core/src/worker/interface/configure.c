#include "worker/interface/internal.h"

#include "breaker/internal.h"
#include "events/metrics.h"
#include "history/internal.h"
#include "policy/internal.h"

#include <backhop/adapter/event.h>
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

void bh_worker_defaults(bh_worker_settings *out)
{
    if (!out)
        return;
    *out = (bh_worker_settings){
        .mode = BH_MODE_CREATE,
        .prefetch = 100,
        .connect_timeout_ms = 10000,
        .confirm_timeout_ms = 30000,
        .ca_file = bh_str(""),
        .cert = bh_str(""),
        .key = bh_str(""),
        .fail_fast = -1,
    };
    for (int kind = 0; kind < BH_EVENT_LAST; kind++)
        out->emits[kind] = !bh_event_is_of_each(kind);
}

static bh_status check_number(bh_worker *self, const char *name, int64_t value, int64_t lowest, int64_t highest)
{
    if (value >= lowest && value <= highest)
        return BH_OK;
    return bh__report_set(&self->report, BH_ERR_ARGUMENT, "%s is %lld: give a whole number from %lld to %lld", name,
                          (long long)value, (long long)lowest, (long long)highest);
}

static bh_status check_path(bh_worker *self, const char *name, bh_bytes path)
{
    if (path.data && (path.size == 0 || !memchr(path.data, '\0', path.size)))
        return BH_OK;
    return bh__report_set(&self->report, BH_ERR_ARGUMENT,
                          "%s is missing, or has a zero byte: give the path of a PEM file, or \"\"", name);
}

static bh_status check_files(bh_worker *self, const bh_worker_settings *given)
{
    bh_status status = check_path(self, "ca_file", given->ca_file);
    if (status == BH_OK)
        status = check_path(self, "cert", given->cert);
    if (status == BH_OK)
        status = check_path(self, "key", given->key);
    if (status == BH_OK && given->cert.size == 0 && given->key.size > 0)
        status = bh__worker_refuse(self, BH_ERR_ARGUMENT,
                                   "a private key without a client certificate: give the certificate too");
    return status;
}

static bh_status check_breaker(bh_worker *self, const bh_breaker *breaker)
{
    if (breaker && self->settings.relay)
        return bh__worker_refuse(self, BH_ERR_STATE, "a relay calls no handler, so it has no breaker");
    if (bh__breaker_is_by_key(breaker))
        return bh__worker_refuse(self, BH_ERR_ARGUMENT,
                                 "the breaker is by key: call bh_breaker_permit for each message that you take");
    return BH_OK;
}

static bh_status check(bh_worker *self, const bh_worker_settings *given)
{
    enum { LONGEST_HANDLER_MS = 86400000 };
    const struct {
        const char *name;
        int64_t value, lowest, highest;
    } numbers[] = {
        {"mode", (int64_t)given->mode, BH_MODE_CREATE, BH_MODE_NONE},
        {"prefetch", given->prefetch, 0, UINT16_MAX},
        {"connect_timeout_ms", given->connect_timeout_ms, 1, BH__LONGEST_TIMEOUT_MS},
        {"confirm_timeout_ms", given->confirm_timeout_ms, 1, BH__LONGEST_TIMEOUT_MS},
        {"handler_timeout_ms", given->handler_timeout_ms, 0, LONGEST_HANDLER_MS},
        {"fail_fast", given->fail_fast, -1, 1},
    };
    bh_status status = BH_OK;
    for (size_t i = 0; status == BH_OK && i < sizeof numbers / sizeof numbers[0]; i++)
        status = check_number(self, numbers[i].name, numbers[i].value, numbers[i].lowest, numbers[i].highest);
    for (int kind = 0; status == BH_OK && kind < BH_EVENT_LAST; kind++)
        status = check_number(self, "a value of emits", given->emits[kind], 0, 1);
    if (status == BH_OK)
        status = check_files(self, given);
    return status == BH_OK ? check_breaker(self, given->breaker) : status;
}

/* The parts of its settings that a worker owns. */
typedef struct copies {
    bh_policy *back_off;
    bh_history *history;
    char *ca_file, *cert, *key;
} copies;

static void free_copies(copies *self)
{
    bh_policy_free(self->back_off);
    bh_history_free(self->history);
    free(self->ca_file);
    free(self->cert);
    free(self->key);
}

/* Copies a path; empty: *out is NULL. */
static bh_status copy_path(char **out, bh_bytes path)
{
    if (path.size == 0)
        return BH_OK;
    *out = malloc(path.size + 1);
    if (!*out)
        return BH_ERR_NO_MEMORY;
    memcpy(*out, path.data, path.size);
    (*out)[path.size] = '\0';
    return BH_OK;
}

static bh_status copy(copies *out, const bh_worker_settings *given)
{
    bh_status status =
        given->back_off ? bh__policy_copy(&out->back_off, given->back_off) : bh_back_off_new(&out->back_off);
    if (status == BH_OK)
        status = bh_history_new(&out->history);
    if (status == BH_OK && given->history)
        status = bh__history_copy_settings(out->history, given->history);
    if (status == BH_OK)
        status = copy_path(&out->ca_file, given->ca_file);
    if (status == BH_OK)
        status = copy_path(&out->cert, given->cert);
    if (status == BH_OK)
        status = copy_path(&out->key, given->key);
    return status;
}

/* Cannot fail. Leaves the settings before in *new. */
static void keep(bh__settings *self, const bh_worker_settings *given, copies *new)
{
    const copies before = {self->back_off, self->reading, self->ca_file, self->cert, self->key};
    self->back_off = new->back_off;
    self->reading = new->history;
    self->ca_file = new->ca_file;
    self->cert = new->cert;
    self->key = new->key;
    *new = before;
    bh__breaker_keep(given->breaker);
    bh_breaker_free(self->breaker);
    self->breaker = given->breaker;
    self->mode = given->mode;
    self->prefetch = given->prefetch;
    self->connect_timeout_ms = given->connect_timeout_ms;
    self->confirm_timeout_ms = given->confirm_timeout_ms;
    self->handler_timeout_ms = given->handler_timeout_ms;
    self->emitted = 0;
    for (int kind = 0; kind < BH_EVENT_LAST; kind++)
        self->emitted |= (uint32_t)given->emits[kind] << kind;
}

bh_status bh_worker_set(bh_worker *self, const bh_worker_settings *settings)
{
    copies new = {0};
    bh_status status = bh__worker_may_set(self);
    if (status == BH_OK && !settings)
        status = bh__worker_refuse(self, BH_ERR_ARGUMENT, "the settings are missing");
    if (status == BH_OK)
        status = check(self, settings);
    if (status != BH_OK)
        return status;
    status = copy(&new, settings);
    if (status == BH_ERR_NO_MEMORY)
        bh__worker_refuse(self, status, "no memory for the settings");
    if (status == BH_OK) {
        keep(&self->settings, settings, &new);
        self->fail_fast = settings->fail_fast;
    }
    free_copies(&new);
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
