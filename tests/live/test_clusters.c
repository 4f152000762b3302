/* Tests on a cluster of three nodes, as `tests/broker/broker cluster 3 VERSION` gives. Its nodes
 * keep their clients when they lose the cluster, as they do from 4.3 on. */
#include "suites.h"
#include "trouble.h"

#include <stdio.h>
#include <string.h>

/* A worker for the nodes in this order, which is connected to the first one. */
static void connect_by_nodes(rig *r, const int nodes[3])
{
    rig_in_a_hurry(r);
    for (int i = 0; i < 3; i++)
        expect_ok(r->worker, bh_worker_add_uri(r->worker, bh_str(broker_node_url(nodes[i]))));
    expect_ok(r->worker, bh_worker_start(r->worker));
    rig_await(r, BH_EVENT_CONNECTED);
    expect_part(bh_str(broker_node_url(nodes[0])), bh_event_string(r->event, BH_FIELD_HOST).data);
}

/* The node's consumer is one of the queue's, and has its share of the messages; of ten some come to
 * the other node. */
START_TEST(a_worker_with_nothing_in_hand_leaves_a_node_that_lost_its_cluster)
{
    static const int nodes[] = {1, 2, 3};
    rig *r = setup_rig(setup_first());
    connect_by_nodes(r, nodes);
    broker *other = broker_open_url(broker_node_url(2));
    broker_ctl("partition 1 2,3");
    expect_event(r, BH_EVENT_DISCONNECTED, BH_ERR_CONNECTION, "may have lost its cluster");
    rig_await(r, BH_EVENT_CONNECTED);
    ck_assert(!holds(bh_str(broker_node_url(1)), bh_event_string(r->event, BH_FIELD_HOST).data));
    broker_publish_numbers(other, r->queue, 10);
    rig_take(r, NULL);
    rig_park(r, "no");
    expect_parked(r, "permanent"); /* its copy went by that node too */
    broker_ctl("heal");
    broker_close(other);
    rig_stop_worker(r);
    broker_reopen(r->broker);
    rig_free(r);
}
END_TEST

static void heal(void)
{
    broker_ctl("heal");
}

static void start_the_third(void)
{
    broker_ctl("3 start");
}

Suite *suite_clusters(void)
{
    Suite *suite = suite_create("clusters");
    if (!broker_is_at_least(4, 3) || !broker_can_be_controlled() || !broker_node_url(3)[0])
        return suite;
    long_case(
        add_test_with_end(suite, "cut off", a_worker_with_nothing_in_hand_leaves_a_node_that_lost_its_cluster, heal));
    long_case(add_test_with_end(suite, "a relay is cut off", test_of_a_relay_on_a_cluster(), heal));
    long_case(
        add_test_with_end(suite, "a relay's node is killed", test_of_a_relay_whose_node_is_killed(), start_the_third));
    return suite;
}
