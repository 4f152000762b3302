/*
 * bench-declare: the cost of declaring many work queues on one connection, with the default policy.
 *
 *     bench-declare QUEUES known|each   in one namespace, which is known after the first one, or declared for each
 *
 * Writes a JSON object with the declarations and milliseconds of the first work queue, and of each
 * further one. Deletes everything that it declared.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

static bh_topology *topology_of(int number)
{
    char queue[64];
    bh_policy *policy;
    bh_topology *topology;
    snprintf(queue, sizeof queue, "%s.%d", BENCH_QUEUE, number);
    bench_need(bh_policy_new(&policy));
    bench_need(bh_topology_new(&topology, bh_str(queue)));
    bh_topology_settings settings;
    bh_topology_defaults(&settings);
    settings.name_space = bh_str(BENCH_NAMESPACE);
    settings.declares_work_queue = 1;
    bench_need(bh_topology_set(topology, &settings));
    bench_need(bh_topology_build(topology, policy));
    bh_policy_free(policy);
    return topology;
}

/* How many declarations it took. */
static int declare(amqp_connection_state_t connection, int number, bh_declared *declared)
{
    bh_topology *topology = topology_of(number);
    bh_declaring *declaring;
    int steps = 0;
    bench_need(bh_declaring_new(&declaring, topology, BH_DIALECT_C));
    bench_need(bh_declaring_set_declared(declaring, declared));
    bench_need(bh_declaring_begin(declaring, BH_MODE_CREATE, 0));
    bh_declaration step;
    for (; bh_declaring_next(declaring, &step); steps++)
        bench_declare_one(connection, &step);
    bh_declaring_free(declaring);
    bh_topology_free(topology);
    return steps;
}

static void delete_all(amqp_connection_state_t connection, int count)
{
    for (int i = 0; i < count; i++) {
        bh_topology *topology = topology_of(i);
        bh_declaration each;
        for (size_t at = 0; bh_topology_declaration(topology, at, &each) == BH_OK; at++)
            if (i == 0 || strncmp(each.name.data, BENCH_QUEUE, strlen(BENCH_QUEUE)) == 0)
                bench_delete_one(connection, &each); /* the namespace's once */
        bh_topology_free(topology);
    }
}

int main(int count, char **words)
{
    if (count != 3 || (strcmp(words[2], "known") != 0 && strcmp(words[2], "each") != 0))
        bench_fail("usage: bench-declare QUEUES known|each");
    int queues = bench_count_of(words[1]);
    bh_declared *declared = NULL;
    if (strcmp(words[2], "known") == 0)
        bench_need(bh_declared_new(&declared));
    amqp_connection_state_t connection = bench_connect();
    delete_all(connection, queues); /* queues of a run that was killed */
    double start = bench_now_ms();
    int steps = declare(connection, 0, declared);
    double first_ms = bench_now_ms() - start;
    int further_steps = 0;
    for (int i = 1; i < queues; i++)
        further_steps += declare(connection, i, declared);
    double further_ms = bench_now_ms() - start - first_ms;
    int further = queues > 1 ? queues - 1 : 1;
    printf("{\"queues\": %d, \"first_declarations\": %d, \"first_ms\": %.3f, \"declarations_a_further_queue\": %.1f, "
           "\"ms_a_further_queue\": %.3f}\n",
           queues, steps, first_ms, (double)further_steps / further, further_ms / further);
    delete_all(connection, queues);
    bh_declared_free(declared);
    bench_disconnect(connection);
    return EXIT_SUCCESS;
}
