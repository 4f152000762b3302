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

static inline bh_topology_view view_of(const bh_topology *topology)
{
    bh_topology_view view;
    bh_topology_read(topology, &view);
    return view;
}

/* Change one field of a topology. They fail as bh_topology_set. */
#define SETTER(field, type)                                                                                            \
    static inline bh_status topology_set_##field(bh_topology *topology, type value)                                    \
    {                                                                                                                  \
        bh_topology_settings settings = view_of(topology).settings;                                                    \
        settings.field = value;                                                                                        \
        return bh_topology_set(topology, &settings);                                                                   \
    }
SETTER(strategy, bh_strategy)
SETTER(queue_type, bh_queue_type)
SETTER(name_space, bh_bytes)
SETTER(series, bh_series)
SETTER(stripes, int64_t)
#undef SETTER

static inline bh_status topology_declare_work_queue(bh_topology *topology, bh_queue_type type)
{
    bh_topology_settings settings = view_of(topology).settings;
    settings.declares_work_queue = 1;
    settings.work_queue_type = type;
    return bh_topology_set(topology, &settings);
}

static inline size_t rung_count(const bh_topology *topology)
{
    return view_of(topology).rung_count;
}

/* Returns 0 if the index is out of range. */
static inline int64_t rung_ms(const bh_topology *topology, size_t index)
{
    bh_topology_view view = view_of(topology);
    return index < view.rung_count ? view.rungs_ms[index] : 0;
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
