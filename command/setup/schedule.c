/* backhop schedule: shows each failure's delay and wait queue. */
#include "common/command.h"
#include "common/output.h"
#include "setup/setup.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { MOST_ATTEMPTS = 1000, UNLIMITED_ATTEMPTS = 20 };

/* The share of messages on each rung that they can take, as "20 s 31 %, 25 s 69 %". */
static void add_rungs(text_table *out, const bh_topology *topology, const bh_policy *policy, int64_t attempt)
{
    char text[1024] = "", time[TIME_TEXT];
    bh_topology_view all;
    bh_topology_read(topology, &all);
    for (size_t i = 0; i < all.rung_count; i++) {
        double share = bh_topology_share(topology, policy, attempt, i);
        size_t used = strlen(text);
        if (share >= 0.005)
            snprintf(text + used, sizeof text - used, "%s%s %.0f %%", used ? ", " : "",
                     show_duration(time, all.rungs_ms[i]), share * 100);
    }
    table_add(out, "%s", text);
}

static json_t *rungs_json(const bh_topology *topology, const bh_policy *policy, int64_t attempt)
{
    json_t *rungs = must(json_array());
    bh_topology_view all;
    bh_topology_read(topology, &all);
    for (size_t i = 0; i < all.rung_count; i++) {
        double share = bh_topology_share(topology, policy, attempt, i);
        if (share > 0)
            json_array_append_new(rungs,
                                  json_pack("{s:I, s:f}", "delay_ms", (json_int_t)all.rungs_ms[i], "share", share));
    }
    return rungs;
}

static void print_all_json(const bh_topology *topology, const bh_policy *policy, int64_t failures)
{
    for (int64_t i = 1; i <= failures; i++) {
        bh_preview row;
        bh_topology_preview(topology, policy, i, &row);
        print_json(must(json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "failure", (json_int_t)i, "lowest_ms",
                                  (json_int_t)row.lowest_ms, "mean_ms", (json_int_t)row.mean_ms, "highest_ms",
                                  (json_int_t)row.highest_ms, "total_ms", (json_int_t)row.total_ms, "rungs",
                                  rungs_json(topology, policy, i))));
    }
}

static void print_table(const bh_topology *topology, const bh_policy *policy, int64_t failures)
{
    bh_topology_view all;
    bh_topology_read(topology, &all);
    int has_rungs = all.rung_count > 0;
    text_table out = {.columns = has_rungs ? 6 : 5};
    char time[TIME_TEXT];
    static const char *const titles[] = {"failure", "delay from", "mean", "to", "since the first", "wait queues"};
    for (size_t i = 0; i < out.columns; i++)
        table_add(&out, "%s", titles[i]);
    for (int64_t i = 1; i <= failures; i++) {
        bh_preview row;
        bh_topology_preview(topology, policy, i, &row);
        table_add(&out, "%lld", (long long)i);
        table_add(&out, "%s", show_duration(time, row.lowest_ms));
        table_add(&out, "%s", show_duration(time, row.mean_ms));
        table_add(&out, "%s", show_duration(time, row.highest_ms));
        table_add(&out, "%s", show_duration(time, row.total_ms));
        if (has_rungs)
            add_rungs(&out, topology, policy, i);
    }
    table_print(&out, "rrrrrl");
}

/* Prints what comes after the last row. `limit` is 0 if the policy has no limit of attempts. */
static void print_end(int64_t failures, int64_t limit)
{
    if (limit > 0 && failures >= limit - 1) {
        printf("Attempt %lld is the last; a message that fails then is parked.\n", (long long)limit);
        return;
    }
    printf("Only the first %lld failures are shown: ", (long long)failures);
    if (limit > 0)
        printf("the policy allows %lld attempts.", (long long)limit);
    else
        printf("the policy has no limit of attempts.");
    puts(failures < MOST_ATTEMPTS ? " --attempts COUNT shows more." : "");
}

static void print_max_age(int64_t max_age_ms)
{
    char time[TIME_TEXT];
    if (max_age_ms > 0)
        printf("A message is also parked if its next attempt would start more than %s after its first failure.\n",
               show_duration(time, max_age_ms));
}

int schedule_main(int count, char **arguments)
{
    policy_options with = {.file = NULL};
    topology_options on = {.strategy = NULL};
    int json = 0;
    int64_t shown_attempts = 0;
    const option_rule rules[] = {
        POLICY_OPTIONS(&with, EXPLAIN),
        TOPOLOGY_OPTIONS(&on),
        {"attempts", 'n', OPTION_NUMBER, "COUNT", "show so many attempts instead of all", &shown_attempts},
        JSON_OPTION(&json),
    };
    int at = options_read(count, arguments, rules, sizeof rules / sizeof rules[0], "",
                          "Shows what a policy does after each failure, and the wait queues: their shares are for "
                          "many messages that fail together. Needs no broker.\n");
    if (at < count)
        options_refuse("'%s': no operand is wanted", arguments[at]);
    bh_policy *policy = setup_policy(&with);
    bh_topology *topology = setup_topology(&on, "work", policy);
    bh_limits limits;
    bh_policy_limits(policy, &limits);
    int64_t limit = limits.max_attempts, attempts = shown_attempts ? shown_attempts : limit;
    if (attempts == 0)
        attempts = UNLIMITED_ATTEMPTS;
    int64_t failures = attempts > MOST_ATTEMPTS ? MOST_ATTEMPTS : attempts - 1;
    if (json) {
        print_all_json(topology, policy, failures);
    } else {
        print_table(topology, policy, failures);
        print_end(failures, limit);
        print_max_age(limits.max_age_ms);
    }
    bh_topology_free(topology);
    bh_policy_free(policy);
    return output_end(EX_OK);
}
