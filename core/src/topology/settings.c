/* Settings of a topology, and its copies. */
#include "policy/internal.h"
#include "topology/data.h"

#include <stdio.h>
#include <stdlib.h>

enum { LONGEST_NAMESPACE = 200 };

static bh_status check_name(bh_bytes name, size_t longest)
{
    if (!name.data)
        return BH_ERR_ARGUMENT;
    if (name.size == 0 || name.size > longest || bh__begins(name, "amq.") || !bh__is_utf8(name) ||
        memchr(name.data, '\0', name.size))
        return BH_ERR_NAME;
    return BH_OK;
}

bh_status bh_topology_new(bh_topology **out, bh_bytes queue)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    bh_status status = check_name(queue, BH_TOPOLOGY_LONGEST_NAME);
    if (status != BH_OK)
        return status;
    bh_topology *self = calloc(1, sizeof *self);
    if (!self || !bh__store_add(&self->settings, &self->queue, queue)) {
        free(self);
        return BH_ERR_NO_MEMORY;
    }
    self->series = BH_SERIES_R10;
    self->stripes = 1;
    *out = self;
    return BH_OK;
}

bh_status bh__topology_new_relays(bh_topology **out)
{
    /* bh_topology_build replaces the name */
    bh_status status = bh_topology_new(out, bh_str("relay"));
    if (status == BH_OK)
        (*out)->is_relays = 1;
    return status;
}

void bh_topology_free(bh_topology *self)
{
    if (!self)
        return;
    bh__store_free(&self->settings);
    bh__store_free(&self->work_queue.store);
    free(self->work_queue.items);
    for (size_t i = 0; i < self->further_count; i++)
        bh_policy_free(self->further[i]);
    free(self->further);
    bh__store_free(&self->selected);
    bh_policy_free(self->policy);
    bh__store_free(&self->store);
    free(self->declarations);
    free(self->arguments);
    free(self->sealed);
    bh__store_free(&self->definitions);
    bh__report_free(&self->permission);
    free(self);
}

/* Copies the policies of `from`. Returns 0 if memory runs out. */
static int copy_policies(bh_topology *self, const bh_topology *from)
{
    self->further_capacity = from->further_count;
    self->further = bh__duplicate(from->further, from->further_count * sizeof(bh_policy *));
    if (!self->further)
        return 0;
    for (; self->further_count < from->further_count; self->further_count++)
        if (bh__policy_copy(&self->further[self->further_count], from->further[self->further_count]) != BH_OK)
            return 0;
    return !from->policy || bh__policy_copy(&self->policy, from->policy) == BH_OK;
}

bh_status bh__topology_copy(bh_topology **out, const bh_topology *from)
{
    *out = NULL;
    bh_topology *copy = bh__duplicate(from, sizeof *from);
    if (!copy)
        return BH_ERR_NO_MEMORY;
    copy->further = NULL;
    copy->further_count = 0;
    copy->policy = NULL;
    copy->sealed = NULL;
    copy->permission = (bh__report){.status = BH_OK};
    copy->settings = copy->work_queue.store = copy->store = copy->definitions = copy->selected =
        (bh__store){NULL, 0, 0};
    copy->work_queue.items =
        bh__duplicate(from->work_queue.items, from->work_queue.count * sizeof *from->work_queue.items);
    copy->work_queue.capacity = from->work_queue.count;
    copy->declarations = bh__duplicate(from->declarations, from->count * sizeof *from->declarations);
    copy->capacity = from->count;
    copy->arguments = bh__duplicate(from->arguments, from->argument_count * sizeof *from->arguments);
    copy->argument_capacity = from->argument_count;
    bh__store definitions = from->definitions;
    definitions.size += definitions.size > 0; /* its terminating zero byte */
    if (!copy->work_queue.items || !copy->declarations || !copy->arguments ||
        !bh__store_copy(&copy->settings, &from->settings) ||
        !bh__store_copy(&copy->work_queue.store, &from->work_queue.store) ||
        !bh__store_copy(&copy->store, &from->store) || !bh__store_copy(&copy->definitions, &definitions) ||
        !copy_policies(copy, from) || !bh__topology_seal_arguments(copy)) {
        bh_topology_free(copy);
        return BH_ERR_NO_MEMORY;
    }
    copy->definitions.size = from->definitions.size;
    *out = copy;
    return BH_OK;
}

void bh_topology_defaults(bh_topology_settings *out)
{
    if (!out)
        return;
    *out = (bh_topology_settings){.strategy = BH_STRATEGY_LADDER,
                                  .queue_type = BH_QUEUE_QUORUM,
                                  .series = BH_SERIES_R10,
                                  .stripes = 1,
                                  .work_queue_type = BH_QUEUE_QUORUM};
}

bh_topology_settings bh__topology_settings(const bh_topology *self)
{
    bh_topology_settings settings;
    bh_topology_defaults(&settings);
    if (!self)
        return settings;
    settings.strategy = self->strategy;
    settings.queue_type = self->queue_type;
    if (self->name_space.size > 0)
        settings.name_space = bh__store_get(&self->settings, self->name_space);
    settings.series = self->series;
    settings.stripes = self->stripes;
    settings.declares_work_queue = self->declares_work_queue;
    settings.work_queue_type = self->work_queue_type;
    return settings;
}

static int is_queue_type(bh_queue_type type)
{
    return type == BH_QUEUE_QUORUM || type == BH_QUEUE_CLASSIC;
}

/* Returns the first field that is out of range, its range and what to do; NULL if there is none. */
static const char *error_of(const bh_topology_settings *given)
{
    if ((int)given->strategy < BH_STRATEGY_LADDER || (int)given->strategy > BH_STRATEGY_NATIVE)
        return "strategy is none of ladder, message-ttl, reject, delayed-exchange, native: give one of these";
    if (!is_queue_type(given->queue_type))
        return "queue_type is neither quorum nor classic: give one of these";
    if (given->series != BH_SERIES_R5 && given->series != BH_SERIES_R10 && given->series != BH_SERIES_R20 &&
        given->series != BH_SERIES_R40)
        return "series is none of 5, 10, 20, 40: give one of these";
    if (given->stripes < 1 || given->stripes > BH_TOPOLOGY_MOST_STRIPES)
        return "stripes is not from 1 to 64: give such a number";
    if (given->declares_work_queue != 0 && given->declares_work_queue != 1)
        return "declares_work_queue is neither 0 nor 1: give one of these";
    if (!is_queue_type(given->work_queue_type))
        return "work_queue_type is neither quorum nor classic: give one of these";
    return NULL;
}

bh_status bh_topology_set(bh_topology *self, const bh_topology_settings *settings)
{
    if (!self || !settings)
        return BH_ERR_ARGUMENT;
    const char *error = error_of(settings);
    if (error)
        return bh__topology_fail(self, BH_ERR_ARGUMENT, error);
    bh__text name = {0, 0};
    if (settings->name_space.data) {
        if (check_name(settings->name_space, LONGEST_NAMESPACE) != BH_OK)
            return bh__topology_fail(self, BH_ERR_NAME,
                                     "the namespace is empty, longer than 200 bytes, begins with amq., or is not "
                                     "UTF-8: give another");
        if (!bh__store_add(&self->settings, &name, settings->name_space))
            return BH_ERR_NO_MEMORY;
    }
    self->strategy = settings->strategy;
    self->queue_type = settings->queue_type;
    self->name_space = name;
    self->series = settings->series;
    self->stripes = (int)settings->stripes;
    self->declares_work_queue = settings->declares_work_queue;
    self->work_queue_type = settings->work_queue_type;
    self->is_built = 0;
    return BH_OK;
}

bh_status bh_topology_add_policy(bh_topology *self, bh_policy *policy)
{
    if (!self || !policy)
        return BH_ERR_ARGUMENT;
    bh_status status = bh_policy_check(policy);
    if (status != BH_OK)
        return bh__topology_fail(self, status, bh_policy_error(policy).data);
    void *further = self->further;
    if (!bh__reserve(&further, &self->further_capacity, sizeof(bh_policy *), self->further_count + 1))
        return BH_ERR_NO_MEMORY;
    self->further = further;
    status = bh__policy_copy(&self->further[self->further_count], policy);
    if (status != BH_OK)
        return status;
    self->further_count++;
    self->is_built = 0;
    return BH_OK;
}

bh_status bh_topology_add_work_queue_argument(bh_topology *self, const bh_argument *argument)
{
    if (!self || !argument || !argument->name.data || argument->name.size == 0 || argument->name.size > 255 ||
        !bh__is_utf8(argument->name))
        return BH_ERR_ARGUMENT;
    int is_string = argument->type == BH_TYPE_STRING;
    if (!is_string && argument->type != BH_TYPE_INT64)
        return BH_ERR_ARGUMENT;
    if (is_string && (!argument->string.data || !bh__is_utf8(argument->string)))
        return BH_ERR_ARGUMENT;
    bh__draft_arguments *list = &self->work_queue;
    void *items = list->items;
    if (!bh__reserve(&items, &list->capacity, sizeof *list->items, list->count + 1))
        return BH_ERR_NO_MEMORY;
    list->items = items;
    bh__draft_argument added = {.type = argument->type, .number = is_string ? 0 : argument->integer};
    if (!bh__store_add(&list->store, &added.name, argument->name) ||
        !bh__store_add(&list->store, &added.string, is_string ? argument->string : bh_str("")))
        return BH_ERR_NO_MEMORY;
    list->items[list->count++] = added;
    self->is_built = 0;
    return BH_OK;
}

bh_status bh__topology_check_queue_name(bh_bytes name)
{
    return check_name(name, BH_TOPOLOGY_LONGEST_NAME);
}
