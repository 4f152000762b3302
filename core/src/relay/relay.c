#include "relay/internal.h"

#include "policy/internal.h"
#include "topology/internal.h"

#include <stdlib.h>

enum { LONGEST_SHOWN = 255 };

/* --------------------------------------------------------------------------------- new and free */

static bh__relay *make(void)
{
    bh__relay *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    for (int i = 0; i <= BH__DEATH_OTHER; i++)
        self->outcomes[i] = BH_OUTCOME_PERMANENT;
    self->outcomes[BH__DEATH_REJECTED] = BH_OUTCOME_FAILED;
    return self;
}

bh_status bh__relay_new(bh__relay **out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = make();
    if (!*out || bh__topology_new_relays(&(*out)->topology) == BH_OK)
        return *out ? BH_OK : BH_ERR_NO_MEMORY;
    bh__relay_free(*out);
    *out = NULL;
    return BH_ERR_NO_MEMORY;
}

void bh__relay_free(bh__relay *self)
{
    if (!self)
        return;
    for (size_t i = 0; i < self->served_count; i++)
        bh_policy_free(self->served[i].policy);
    free(self->served);
    bh__store_free(&self->names);
    bh__store_free(&self->read);
    bh__report_free(&self->text);
    bh__store_free(&self->policy_line);
    bh__report_free(&self->problem);
    bh_topology_free(self->topology);
    free(self);
}

/* Appends a name or pattern. On success the relay owns the policy. */
static bh_status append(bh__relay *self, bh_bytes name, bh_policy *policy)
{
    void *served = self->served;
    if (!bh__reserve(&served, &self->served_capacity, sizeof *self->served, self->served_count + 1))
        return BH_ERR_NO_MEMORY;
    self->served = served;
    bh__served *added = &self->served[self->served_count];
    *added = (bh__served){.is_pattern = memchr(name.data, '*', name.size) != NULL, .policy = policy};
    if (!bh__store_add(&self->names, &added->name, name))
        return BH_ERR_NO_MEMORY;
    self->served_count++;
    return BH_OK;
}

static bh_status append_copy(bh__relay *self, bh_bytes name, const bh_policy *policy)
{
    bh_policy *copy;
    bh_status status = policy ? bh__policy_copy(&copy, policy) : bh_policy_new(&copy);
    if (status == BH_OK)
        status = append(self, name, copy);
    if (status != BH_OK)
        bh_policy_free(copy);
    return status;
}

bh_status bh__relay_copy(bh__relay **out, const bh__relay *from)
{
    *out = make();
    if (!*out)
        return BH_ERR_NO_MEMORY;
    bh__relay *copy = *out;
    bh_status status = bh__topology_copy(&copy->topology, from->topology);
    for (size_t i = 0; status == BH_OK && i < from->served_count; i++)
        status = append_copy(copy, bh__relay_name_of(from, &from->served[i]), from->served[i].policy);
    memcpy(copy->outcomes, from->outcomes, sizeof copy->outcomes);
    copy->is_built = from->is_built;
    if (status == BH_OK)
        return BH_OK;
    bh__relay_free(copy);
    *out = NULL;
    return status;
}

/* ------------------------------------------------------------------------------------- settings */

/* Sets the topology, and reports its error. */
static bh_status set_topology(bh__relay *self, const bh_topology_settings *settings)
{
    bh_status status = bh_topology_set(self->topology, settings);
    bh_bytes error = bh_topology_error(self->topology);
    self->is_built = self->is_read = 0;
    return bh__report_set(&self->problem, status, "%s", status == BH_OK || !error.size ? "" : error.data);
}

bh_status bh__relay_set_queue_type(bh__relay *self, bh_queue_type type)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    bh_topology_settings settings = bh__topology_settings(self->topology);
    settings.queue_type = type;
    return set_topology(self, &settings);
}

bh_status bh__relay_set_namespace(bh__relay *self, bh_bytes name)
{
    if (!self || !name.data)
        return BH_ERR_ARGUMENT;
    bh_topology_settings settings = bh__topology_settings(self->topology);
    settings.name_space = name;
    return set_topology(self, &settings);
}

bh_status bh__relay_set_stripes(bh__relay *self, int count)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    bh_topology_settings settings = bh__topology_settings(self->topology);
    settings.stripes = count;
    return set_topology(self, &settings);
}

bh_status bh__relay_set_outcome(bh__relay *self, bh__death_reason reason, bh_outcome outcome)
{
    if (!self || (int)reason < BH__DEATH_REJECTED || (int)reason >= BH__DEATH_OTHER ||
        (outcome != BH_OUTCOME_FAILED && outcome != BH_OUTCOME_PERMANENT && outcome != BH_OUTCOME_DROPPED))
        return BH_ERR_ARGUMENT;
    self->outcomes[reason] = outcome;
    return BH_OK;
}

static int is_added(const bh__relay *self, bh_bytes name)
{
    for (size_t i = 0; i < self->served_count; i++)
        if (bh__same(bh__relay_name_of(self, &self->served[i]), name))
            return 1;
    return 0;
}

static bh_status check_policy(bh__relay *self, bh_bytes name, const bh_policy *policy)
{
    bh_policy *copy;
    bh_status status = policy ? bh__policy_copy(&copy, policy) : BH_OK;
    if (status != BH_OK || !policy)
        return status;
    status = bh_policy_check(copy);
    if (status != BH_OK)
        bh__report_set(&self->problem, status, "the policy of \"%.*s\": %s", (int)name.size, name.data,
                       bh_policy_error(copy).data);
    bh_policy_free(copy);
    return status;
}

bh_status bh__relay_add_queue(bh__relay *self, bh_bytes name, const bh_policy *policy)
{
    if (!self || !name.data)
        return BH_ERR_ARGUMENT;
    bh__report_clear(&self->problem);
    bh_status status = bh__topology_check_queue_name(name); /* also for a pattern, which matches no longer names */
    int shown = name.size < LONGEST_SHOWN ? (int)name.size : LONGEST_SHOWN;
    if (status == BH_ERR_NAME)
        return bh__report_set(&self->problem, status,
                              "\"%.*s\" can be no work queue: its name is empty, longer than 247 bytes, not UTF-8, or "
                              "begins with amq.: give another",
                              shown, name.data);
    if (status != BH_OK)
        return status;
    if (is_added(self, name))
        return bh__report_set(&self->problem, BH_ERR_ARGUMENT, "\"%.*s\" is given twice: leave one out", shown,
                              name.data);
    if (self->served_count == BH__RELAY_MOST_QUEUES)
        return bh__report_set(&self->problem, BH_ERR_ARGUMENT,
                              "a relay has at most %d names and patterns: take a pattern for several queues",
                              BH__RELAY_MOST_QUEUES);
    status = check_policy(self, name, policy);
    if (status == BH_OK)
        status = append_copy(self, name, policy);
    if (status == BH_OK)
        self->is_built = self->is_read = 0;
    return status;
}

/* ---------------------------------------------------------------------------------------- build */

static bh_status build_topology(bh__relay *self)
{
    bh_status status = BH_OK;
    for (size_t i = 1; status == BH_OK && i < self->served_count; i++)
        status = bh__topology_has_policy(self->topology, self->served[i].policy)
                     ? BH_OK
                     : bh_topology_add_policy(self->topology, self->served[i].policy);
    return status == BH_OK ? bh_topology_build(self->topology, self->served[0].policy) : status;
}

bh_status bh__relay_build(bh__relay *self)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    self->is_built = self->is_read = 0;
    if (self->served_count == 0)
        return bh__report_set(&self->problem, BH_ERR_STATE, "the relay serves no queue: add one, or a pattern");
    for (size_t i = 0; i < self->served_count; i++) {
        bh_bytes name = bh__relay_name_of(self, &self->served[i]);
        if (!self->served[i].is_pattern && bh__relay_is_own(self, name))
            return bh__report_set(&self->problem, BH_ERR_NAME,
                                  "\"%s\" is a queue of the relay itself: leave it out, or give another namespace",
                                  name.data);
    }
    bh_status status = build_topology(self);
    self->is_built = status == BH_OK;
    return bh__report_set(&self->problem, status, "%s", status == BH_OK ? "" : bh_topology_error(self->topology).data);
}

bh_bytes bh__relay_error(const bh__relay *self)
{
    return self ? bh__report_text(&self->problem) : bh_str("");
}

bh_status bh__relay_topology_of(bh_topology **out, const bh__relay *self, bh_bytes queue)
{
    const bh__served *served = bh__relay_find(self, queue);
    *out = NULL;
    return served ? bh__topology_new_part(out, self->topology, queue, served->policy) : BH_ERR_ARGUMENT;
}
