/* Policies: matching, and the settings they result in. definition.c reads the JSON. */
#include "model/policies.h"

#include "model/definition.h"
#include "model/queue.h"
#include "model/table.h"

#include <regex.h>
#include <stdlib.h>

struct model_policy {
    char *name;
    regex_t pattern;
    int has_pattern;
    int for_queues;
    int for_exchanges;
    int priority;
    int is_operator;
    model_definition definition;
};

static void free_policy(model_policy *self)
{
    free(self->name);
    if (self->has_pattern)
        regfree(&self->pattern);
    model_definition_free(&self->definition);
}

void model_policies_free(model_vhost *vhost)
{
    for (size_t i = 0; i < vhost->policy_count; i++)
        free_policy(&vhost->policies[i]);
    free(vhost->policies);
    vhost->policies = NULL;
    vhost->policy_count = vhost->policy_capacity = 0;
}

/* Returns the policy of a kind for a name, by the highest priority. */
static const model_policy *find(const model_vhost *vhost, const char *name, int is_exchange, int is_operator)
{
    const model_policy *found = NULL;
    for (size_t i = 0; i < vhost->policy_count; i++) {
        const model_policy *each = &vhost->policies[i];
        if (each->is_operator == is_operator && (is_exchange ? each->for_exchanges : each->for_queues) &&
            regexec(&each->pattern, name, 0, NULL, 0) == 0 && (!found || each->priority > found->priority))
            found = each;
    }
    return found;
}

/* The sources of a queue's settings. */
typedef struct sources {
    bh_bytes arguments;
    const model_policy *policy;
    const model_policy *operator_policy;
} sources;

/* Finds a setting by its name in policies: in the arguments it begins with "x-". */
static int find_argument(const sources *from, const char *name, model_field *out)
{
    char key[64] = "x-";
    strncat(key, name, sizeof key - 3);
    return model_table_find(from->arguments, key, out);
}

static const model_setting *find_setting(const model_policy *policy, const char *name)
{
    return policy ? model_definition_find(&policy->definition, name) : NULL;
}

/* Joins two limits, -1 for none. */
static int64_t lower(int64_t one, int64_t other)
{
    return one < 0 ? other : other < 0 || one < other ? one : other;
}

static int64_t find_limit(const sources *from, const char *name)
{
    model_field field;
    int64_t limit = -1;
    if (find_argument(from, name, &field))
        model_field_integer(&field, &limit);
    const model_setting *setting = find_setting(from->policy, name);
    if (setting)
        limit = lower(limit, setting->number);
    setting = find_setting(from->operator_policy, name);
    return setting ? lower(limit, setting->number) : limit;
}

/* Finds a text: arguments come before policies. */
static int find_text(const sources *from, const char *name, bh_bytes *out)
{
    model_field field;
    if (find_argument(from, name, &field)) {
        *out = field.type == 'S' ? field.value : bh_str("");
        return field.type == 'S';
    }
    const model_setting *setting = find_setting(from->policy, name);
    if (!setting)
        setting = find_setting(from->operator_policy, name);
    if (!setting || !setting->text)
        return 0;
    *out = bh_str(setting->text);
    return 1;
}

static void set_overflow(model_queue *queue, const sources *from)
{
    bh_bytes how;
    queue->settings.overflow = MODEL_DROP_HEAD;
    if (!find_text(from, "overflow", &how))
        return;
    if (bh__same(how, bh_str("reject-publish")))
        queue->settings.overflow = MODEL_REJECT_PUBLISH;
    else if (bh__same(how, bh_str("reject-publish-dlx")))
        queue->settings.overflow = MODEL_REJECT_PUBLISH_DLX;
}

static void set_dead_letters(model_queue *queue, const sources *from)
{
    model_queue_settings *settings = &queue->settings;
    bh_bytes strategy;
    settings->has_exchange = find_text(from, "dead-letter-exchange", &settings->exchange);
    settings->has_key = find_text(from, "dead-letter-routing-key", &settings->key);
    settings->is_at_least_once =
        queue->is_quorum && settings->has_exchange && settings->overflow == MODEL_REJECT_PUBLISH &&
        find_text(from, "dead-letter-strategy", &strategy) && bh__same(strategy, bh_str("at-least-once"));
}

/* Argument and policy: the lower limit counts, or the higher one if one is negative. */
static void set_delivery_limit(model_queue *queue, const sources *from)
{
    model_field field;
    const model_setting *setting = find_setting(from->policy, "delivery-limit");
    int64_t argument = 0, limit = queue->vhost->broker->version->delivery_limit;
    if (!setting)
        setting = find_setting(from->operator_policy, "delivery-limit");
    int has_argument = find_argument(from, "delivery-limit", &field) && model_field_integer(&field, &argument);
    if (has_argument && setting) {
        int is_lower = argument < setting->number, is_negative = argument < 0 || setting->number < 0;
        limit = is_lower != is_negative ? argument : setting->number;
    } else if (has_argument || setting) {
        limit = has_argument ? argument : setting->number;
    }
    int is_none = limit < 0 && queue->vhost->broker->version->has_negative_limits;
    queue->settings.delivery_limit = is_none ? INT64_MAX : limit;
}

/* A missing or negative minimum disables the retry; a missing maximum is the minimum. */
static void set_retrying(model_queue *queue, const sources *from)
{
    static const char *const types[] = {"disabled", "all", "failed", "returned"};
    model_queue_settings *settings = &queue->settings;
    bh_bytes type;
    settings->retrying = MODEL_RETRY_AT_ONCE;
    if (!queue->vhost->broker->version->has_delayed_retry || !find_text(from, "delayed-retry-type", &type))
        return;
    settings->retry_min_ms = find_limit(from, "delayed-retry-min");
    settings->retry_max_ms = find_limit(from, "delayed-retry-max");
    if (settings->retry_max_ms < 0)
        settings->retry_max_ms = settings->retry_min_ms;
    for (int i = 1; i < 4 && settings->retry_min_ms > 0; i++)
        if (bh__same(type, bh_str(types[i])))
            settings->retrying = (model_retrying)i;
}

void model_policies_apply_to_queue(model_queue *queue)
{
    model_field field;
    model_queue_settings *settings = &queue->settings;
    int64_t timeout_ms = queue->vhost->broker->settings.consumer_timeout_ms;
    sources from = {queue->arguments, find(queue->vhost, queue->text, 0, 0), find(queue->vhost, queue->text, 0, 1)};
    settings->ttl_ms = find_limit(&from, "message-ttl");
    settings->expires_ms = find_limit(&from, "expires");
    settings->max_length = find_limit(&from, "max-length");
    settings->max_bytes = find_limit(&from, "max-length-bytes");
    settings->consumer_timeout_ms = find_limit(&from, "consumer-timeout");
    if (settings->consumer_timeout_ms < 0)
        settings->consumer_timeout_ms = timeout_ms;
    settings->is_single_active =
        find_argument(&from, "single-active-consumer", &field) && field.type == 't' && field.value.data[0];
    set_overflow(queue, &from);
    set_dead_letters(queue, &from);
    set_retrying(queue, &from);
    settings->delivery_limit = INT64_MAX;
    if (queue->is_quorum)
        set_delivery_limit(queue, &from);
    model_queue_touch(queue);
}

void model_policies_apply_to_exchange(model_exchange *exchange)
{
    model_field field;
    exchange->alternate = bh_str("");
    if (model_table_find(exchange->arguments, "alternate-exchange", &field) && field.type == 'S') {
        exchange->alternate = field.value;
        return;
    }
    const model_setting *setting = find_setting(find(exchange->vhost, exchange->text, 1, 0), "alternate-exchange");
    if (setting && setting->text)
        exchange->alternate = bh_str(setting->text);
}

static void apply(model_vhost *vhost)
{
    for (size_t i = 0; i < vhost->queues.count; i++)
        model_policies_apply_to_queue(vhost->queues.items[i].object);
    for (size_t i = 0; i < vhost->exchanges.count; i++)
        model_policies_apply_to_exchange(vhost->exchanges.items[i].object);
}

static bh_status fill(model_policy *self, const model_policy_command *command)
{
    int is_all = strcmp(command->apply_to, "all") == 0;
    size_t size = strlen(command->apply_to);
    self->priority = command->priority;
    self->is_operator = command->is_operator;
    self->for_queues = is_all || (size >= 6 && strcmp(command->apply_to + size - 6, "queues") == 0);
    self->for_exchanges = is_all || strcmp(command->apply_to, "exchanges") == 0;
    self->name = bh__duplicate(command->name, strlen(command->name) + 1);
    if (!self->name)
        return BH_ERR_NO_MEMORY;
    if (!self->for_queues && !self->for_exchanges)
        return BH_ERR_ARGUMENT;
    self->has_pattern = regcomp(&self->pattern, command->pattern, REG_EXTENDED | REG_NOSUB) == 0;
    return self->has_pattern ? model_definition_read(&self->definition, command->definition) : BH_ERR_ARGUMENT;
}

static model_policy *find_by_name(const model_vhost *vhost, const char *name, int is_operator)
{
    for (size_t i = 0; i < vhost->policy_count; i++)
        if (strcmp(vhost->policies[i].name, name) == 0 &&
            (is_operator < 0 || vhost->policies[i].is_operator == is_operator))
            return &vhost->policies[i];
    return NULL;
}

bh_status model_policies_set(model_vhost *vhost, const model_policy_command *command)
{
    model_policy added = {.name = NULL};
    void *policies = vhost->policies;
    int is_there = bh__reserve(&policies, &vhost->policy_capacity, sizeof *vhost->policies, vhost->policy_count + 1);
    vhost->policies = policies;
    bh_status status = is_there ? fill(&added, command) : BH_ERR_NO_MEMORY;
    if (status != BH_OK) {
        free_policy(&added);
        return status;
    }
    model_policy *known = find_by_name(vhost, command->name, command->is_operator);
    if (known)
        free_policy(known);
    else
        known = &vhost->policies[vhost->policy_count++];
    *known = added;
    apply(vhost);
    return BH_OK;
}

bh_status model_policies_delete(model_vhost *vhost, const char *name)
{
    model_policy *gone = find_by_name(vhost, name, -1);
    if (!gone)
        return BH_ERR_MISSING;
    model_policy removed = *gone;
    size_t after = (size_t)(&vhost->policies[vhost->policy_count] - gone) - 1;
    memmove(gone, gone + 1, after * sizeof *gone);
    vhost->policy_count--;
    apply(vhost);
    free_policy(&removed);
    return BH_OK;
}
