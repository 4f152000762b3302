#include "observe/depths.h"

#include "common/output.h"
#include "topology/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { MISSING_MS = 60000, LISTED_MS = 60000 };

const char *depth_word(depth_kind kind)
{
    static const char *const words[] = {"work", "parked", "unroutable", "waiting"};
    return words[kind];
}

int depth_is_not_made(const depth *self)
{
    return self->kind == DEPTH_WAITING && self->ready < 0 && !self->is_refused;
}

int depths_show_refused(const depths *self, char out[REFUSED_TEXT])
{
    int count = 0;
    for (size_t i = 0; i < self->count; i++)
        count += self->items[i].is_refused;
    snprintf(out, REFUSED_TEXT, "Access to %d %s is refused: this user needs the permission to read %s", count,
             count == 1 ? "queue" : "queues", count == 1 ? "it" : "them");
    return count > 0;
}

int64_t depth_due_by_ms(const depth *self, int64_t now_ms)
{
    return now_ms - (self->looked_ms - self->watch.since_ms) + self->wait_ms;
}

/* Adds a queue unless it is there. Returns it; NULL: it was there. */
static depth *add(depths *self, depth_kind kind, const char *name, const char *work_queue, int64_t wait_ms)
{
    for (size_t i = 0; i < self->count; i++)
        if (strcmp(self->items[i].name, name) == 0)
            return NULL;
    self->items = must(realloc(self->items, (self->count + 1) * sizeof *self->items));
    depth *made = &self->items[self->count++];
    *made = (depth){.kind = kind, .wait_ms = wait_ms, .ready = -1, .consumers = -1, .looked_ms = INT64_MIN};
    snprintf(made->name, sizeof made->name, "%s", name);
    snprintf(made->work_queue, sizeof made->work_queue, "%s", work_queue);
    for (int i = 0; i < DEPTH_PAST; i++)
        made->past[i] = -1;
    return made;
}

/* All of a topology but its work queue: a queue that has a wait is a wait queue. */
static void add_topology(depths *self, const bh_topology *topology)
{
    const char *unroutable = bh__topology_unroutable_queue(topology).data;
    bh_declaration each;
    for (size_t i = 0; bh_topology_declaration(topology, i, &each) == BH_OK; i++)
        if (each.kind == BH_DECLARE_QUEUE && each.rung_ms > 0)
            add(self, DEPTH_WAITING, each.name.data, "", each.rung_ms);
    if (*unroutable)
        add(self, DEPTH_UNROUTABLE, unroutable, "", 0);
}

static int order(const void *a, const void *b)
{
    const depth *one = a, *other = b;
    if (one->kind != other->kind)
        return one->kind < other->kind ? -1 : 1;
    if (one->wait_ms != other->wait_ms)
        return one->wait_ms < other->wait_ms ? -1 : 1;
    return strcmp(one->name, other->name);
}

void depths_plan(depths *self, const topology_options *topology, const policy_options *policy, char **queues, int count)
{
    *self = (depths){.listed_ms = INT64_MIN};
    for (int i = 0; i < count; i++) {
        bh_policy *with = setup_policy(policy);
        bh_topology *made = setup_topology(topology, queues[i], with);
        add(self, DEPTH_WORK, queues[i], queues[i], 0);
        add(self, DEPTH_PARKED, bh__topology_parked_queue(made).data, queues[i], 0);
        add_topology(self, made);
        bh_bytes exchange = bh__topology_return_exchange(made); /* the default exchange has no bindings */
        snprintf(self->exchange, sizeof self->exchange, "%s", exchange.size ? exchange.data : "amq.direct");
        if (bh__topology_strategy(made) == BH_STRATEGY_LADDER)
            snprintf(self->wait_prefix, sizeof self->wait_prefix, "%s", bh__topology_wait_exchange(made).data);
        bh_topology_free(made);
        bh_policy_free(with);
    }
    qsort(self->items, self->count, sizeof *self->items, order);
}

const char *depths_wanted(const depths *self)
{
    int is_due = self->listed_ms == INT64_MIN || bh__monotonic_ms() - self->listed_ms >= LISTED_MS;
    return is_due ? self->wait_prefix : "";
}

void depths_add_waiting(depths *self, const queue_names *found)
{
    size_t size = strlen(self->wait_prefix);
    self->listed_ms = bh__monotonic_ms();
    for (int i = 0; size > 0 && i < found->count; i++) {
        const char *name = found->items[i];
        int64_t wait_ms = strncmp(name, self->wait_prefix, size) == 0 ? bh__rung_of_name(name + size) : 0;
        depth *made = wait_ms > 0 ? add(self, DEPTH_WAITING, name, "", wait_ms) : NULL;
        if (made)
            made->is_found = 1;
    }
    qsort(self->items, self->count, sizeof *self->items, order);
}

void depths_find(depths *self, management *api)
{
    queue_names found;
    const char *prefix = depths_wanted(self);
    if (!api || !*prefix)
        return;
    management_list_queues(api, prefix, &found); /* none if it fails */
    depths_add_waiting(self, &found);
    queue_names_free(&found);
}

void depths_free(depths *self)
{
    free(self->items);
    *self = (depths){.items = NULL};
}

bh_status depths_read(depths *self, connection *broker)
{
    bh_status status = connection_open_channel(broker, CHANNEL_CALL);
    for (size_t i = 0; status == BH_OK && i < self->count; i++) {
        depth *each = &self->items[i];
        int64_t now_ms = bh__monotonic_ms();
        if (each->ready < 0 && each->looked_ms != INT64_MIN && now_ms - each->looked_ms < MISSING_MS)
            continue;
        each->looked_ms = now_ms;
        each->ready = each->consumers = -1;
        status = connection_read_depth(broker, CHANNEL_CALL, each->name, &each->ready, &each->consumers);
        each->is_refused = status == BH_ERR_ACCESS;
        if (status != BH_OK && !bh__link_is_broken(&broker->link))
            status = connection_open_channel(broker, CHANNEL_CALL);
        if (each->kind == DEPTH_WAITING)
            each->late = overdue_record(&each->watch, each->ready, each->wait_ms, now_ms);
    }
    return status == BH_OK ? connection_close_channel(broker, CHANNEL_CALL) : status;
}
