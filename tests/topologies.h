/* Topologies: reads policies and topologies in one expression, for tests. */
#ifndef BACKHOP_TESTS_TOPOLOGIES_H
#define BACKHOP_TESTS_TOPOLOGIES_H

#include "policies.h"

#include <backhop/topology.h>

static inline bh_declaration declaration_at(const bh_topology *topology, size_t index)
{
    bh_declaration it;
    bh_topology_declaration(topology, index, &it);
    return it;
}

static inline size_t rung_count(const bh_topology *topology)
{
    bh_rungs rungs;
    bh_topology_rungs(topology, &rungs);
    return rungs.count;
}

/* Returns 0 if the index is out of range. */
static inline int64_t rung_ms(const bh_topology *topology, size_t index)
{
    bh_rungs rungs;
    bh_topology_rungs(topology, &rungs);
    return index < rungs.count ? rungs.ms[index] : 0;
}

static inline bh_preview preview_at(const bh_topology *topology, const bh_policy *policy, int64_t attempt)
{
    bh_preview row;
    bh_topology_preview(topology, policy, attempt, &row);
    return row;
}

static inline bh_preview preview_of(const bh_policy *policy, int64_t attempt)
{
    bh_preview row;
    bh_policy_preview(policy, attempt, &row);
    return row;
}

static inline bh_limits limits_of(const bh_policy *policy)
{
    bh_limits limits;
    bh_policy_limits(policy, &limits);
    return limits;
}

static inline bh_status add_int_argument(bh_topology *topology, bh_bytes name, int64_t value)
{
    const bh_argument argument = {.name = name, .type = BH_TYPE_INT64, .integer = value};
    return bh_topology_add_work_queue_argument(topology, &argument);
}

static inline bh_status add_string_argument(bh_topology *topology, bh_bytes name, bh_bytes value)
{
    const bh_argument argument = {.name = name, .type = BH_TYPE_STRING, .string = value};
    return bh_topology_add_work_queue_argument(topology, &argument);
}

#endif
