/*
 * The playground of the site: the pure core and the simulation of `backhop simulate`, as
 * WebAssembly.
 *
 * The page writes its fields to playground_room as lines "initial=10s" and calls playground_answer.
 * Each time span of the answer is there in ms, for the plots, and as text.
 */
#include "setup/simulation.h"
#include "setup/words.h"

#include <backhop/adapter/duration.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * MOST_SHOWN: rows of the answer. UNLIMITED_FAILURES: rows of a policy without a limit of attempts.
 * MOST_CALLS: of a simulation, so that the page answers within a second.
 */
enum { MOST_SHOWN = 60, UNLIMITED_FAILURES = 20, MOST_CALLS = 400000 };

/* ----------------------------------------------------------------------------------------- json */

/* A text under construction. The page reads it before it calls again. */
static struct json {
    char *text;
    size_t size;
    size_t room;
} json;

/* Returns the place for `size` more bytes and a zero byte. */
static char *reserve(size_t size)
{
    if (json.room - json.size <= size) {
        json.room = 2 * json.room + size + 1;
        json.text = realloc(json.text, json.room);
        if (!json.text)
            abort();
    }
    return json.text + json.size;
}

__attribute__((format(printf, 1, 2))) static void add(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    va_start(arguments, format);
    vsnprintf(reserve((size_t)size), (size_t)size + 1, format, arguments);
    va_end(arguments);
    json.size += (size_t)size;
}

static void add_text(const char *text)
{
    add("\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\' || (unsigned char)*text < 0x20)
            add("\\u%04x", (unsigned)*text);
        else
            add("%c", *text);
    }
    add("\"");
}

/* Adds "lowest_ms": 800, "lowest": "0.8 s". */
static void add_span(const char *name, int64_t span_ms)
{
    char room[BH_DURATION_ROOM];
    add("\"%s_ms\": %lld, \"%s\": \"%s\"", name, (long long)span_ms, name, bh_duration_text(span_ms, room).data);
}

static const char *refuse(const char *field, const char *text)
{
    json.size = 0;
    add("{\"field\": ");
    add_text(field);
    add(", \"error\": ");
    add_text(text);
    add("}");
    return json.text;
}

/* --------------------------------------------------------------------------------------- delays */

/* Adds the rungs that messages can take after this failure, with their shares. */
static void add_rungs(const bh_topology *topology, const bh_policy *policy, int64_t failure)
{
    const char *between = "";
    bh_topology_view all;
    bh_topology_read(topology, &all);
    add(", \"rungs\": [");
    for (size_t i = 0; i < all.rung_count; i++) {
        double share = bh_topology_share(topology, policy, failure, i);
        if (share <= 0)
            continue;
        add("%s{", between);
        add_span("delay", all.rungs_ms[i]);
        add(", \"share\": %.6f, \"percent\": \"%s%.0f %%\"}", share, share < 0.005 ? "less than " : "",
            share < 0.005 ? 1.0 : share * 100);
        between = ", ";
    }
    add("]");
}

static void add_delays(const bh_topology *topology, const bh_policy *policy, int64_t failures)
{
    add("\"delays\": [");
    for (int64_t i = 1; i <= failures; i++) {
        bh_preview row;
        bh_topology_preview(topology, policy, i, &row);
        add("%s{\"failure\": %lld, ", i > 1 ? ", " : "", (long long)i);
        add_span("lowest", row.lowest_ms);
        add(", ");
        add_span("mean", row.mean_ms);
        add(", ");
        add_span("highest", row.highest_ms);
        add(", ");
        add_span("total", row.total_ms);
        add_rungs(topology, policy, i);
        add("}");
    }
    add("]");
}

static void add_end(const bh_topology *topology, const bh_policy *policy, const bh_limits *limits)
{
    char room[BH_DURATION_ROOM], text[512] = "No limit parks a message.", age[256] = "";
    bh_preview last;
    if (limits->max_age_ms > 0)
        snprintf(age, sizeof age, "if its next attempt would start more than %s after its first failure.",
                 bh_duration_text(limits->max_age_ms, room).data);
    if (limits->max_attempts == 1)
        snprintf(text, sizeof text, "A message is parked after its first failure.");
    else if (limits->max_attempts > 1) {
        bh_topology_preview(topology, policy, limits->max_attempts - 1, &last);
        snprintf(text, sizeof text, "A message that fails %lld times is parked, about %s after its first failure.%s%s",
                 (long long)limits->max_attempts, bh_duration_text(last.total_ms, room).data,
                 *age ? " It is parked earlier " : "", age);
    } else if (*age)
        snprintf(text, sizeof text, "A message is parked %s", age);
    add(", \"end\": ");
    add_text(text);
}

static void add_queues(const bh_topology *topology)
{
    char first[BH_DURATION_ROOM], last[BH_DURATION_ROOM], text[256];
    bh_topology_view all;
    bh_topology_read(topology, &all);
    snprintf(text, sizeof text, "This strategy has no ladder. The delays are those of the formula.");
    if (all.settings.strategy == BH_STRATEGY_LADDER && all.rung_count == 0)
        snprintf(text, sizeof text, "The policy has no retry, so it needs no wait queue.");
    if (all.rung_count == 1)
        snprintf(text, sizeof text, "The policy needs one rung, of %s.", bh_duration_text(all.rungs_ms[0], first).data);
    if (all.rung_count > 1)
        snprintf(text, sizeof text, "The policy needs %zu rungs, from %s to %s. Each is one wait queue.",
                 all.rung_count, bh_duration_text(all.rungs_ms[0], first).data,
                 bh_duration_text(all.rungs_ms[all.rung_count - 1], last).data);
    add(", \"queues\": ");
    add_text(text);
}

/* ----------------------------------------------------------------------------------------- load */

static void add_run(const simulation *run, const char *name)
{
    add("{\"name\": \"%s\", \"messages\": %lld, \"calls\": %lld, \"failed_calls\": %lld, \"parked\": %lld, "
        "\"most_calls_per_s\": %.4g, \"over_time\": [",
        name, (long long)run->messages, (long long)run->calls, (long long)run->failed_calls, (long long)run->parked,
        run->most_calls);
    for (size_t i = 0; i < run->count; i++)
        add("%s[%lld, %.4g]", i ? ", " : "", (long long)i * run->bucket_ms, run->buckets[i].calls);
    add("]}");
}

/* Returns the reason of a failure; NULL: none. */
static const char *add_load(const scenario *of, const bh_policy *policy, const bh_topology *topology)
{
    static simulation run;
    static const struct {
        const char *name;
        int has_breaker, at_once;
    } ways[] = {{"back-off", 0, 0}, {"at-once", 0, 1}, {"breaker", 1, 0}};
    double down_s = (double)(of->down_to_ms - of->down_from_ms) / 1000, until_s = (double)of->until_ms / 1000;
    if (of->capacity * down_s + of->rate * until_s > MOST_CALLS)
        return "the simulation is too large for a page: give a lower rate or capacity, or a shorter time of failure; "
               "backhop simulate has no such limit";
    add(", \"down\": [%lld, %lld], \"runs\": [", (long long)of->down_from_ms, (long long)of->down_to_ms);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        scenario way = *of;
        way.has_breaker = ways[i].has_breaker;
        way.at_once = ways[i].at_once;
        bh_status status = simulation_run(&run, &way, policy, topology);
        if (status != BH_OK)
            return bh_status_text(status).data;
        add("%s", i ? ", " : "");
        add_run(&run, ways[i].name);
    }
    add("]");
    return NULL;
}

/* --------------------------------------------------------------------------------------- fields */

static words_result set_rate(const char *name, const char *text, double *out, words_error *error)
{
    if (!words_real(name, text, out, error))
        return WORDS_REFUSED;
    if (*out > 0 && *out < 1e9)
        return WORDS_SET;
    snprintf(error->text, sizeof error->text, "%s is %s: give a number above 0 and below 1000000000", name, text);
    return WORDS_REFUSED;
}

static words_result set_scenario(scenario *of, const char *name, const char *text, words_error *error)
{
    if (strcmp(name, "rate") == 0)
        return set_rate(name, text, &of->rate, error);
    if (strcmp(name, "capacity") == 0)
        return set_rate(name, text, &of->capacity, error);
    if (strcmp(name, "down") == 0)
        return words_times(name, text, &of->down_from_ms, &of->down_to_ms, error) ? WORDS_SET : WORDS_REFUSED;
    return WORDS_UNKNOWN;
}

/* Sets each line "name=value". Returns the name of the field that is refused; NULL: none. */
static const char *set_fields(char *lines, bh_policy *policy, bh_topology *topology, scenario *of, words_error *error)
{
    for (char *rest = lines, *name; (name = strtok_r(rest, "\n", &rest));) {
        char *text = strchr(name, '=');
        words_result result = WORDS_UNKNOWN;
        if (text) {
            *text++ = '\0';
            result = words_set_policy(policy, name, text, error);
            if (result == WORDS_UNKNOWN)
                result = words_set_topology(topology, name, text, error);
            if (result == WORDS_UNKNOWN)
                result = set_scenario(of, name, text, error);
        }
        if (result == WORDS_UNKNOWN)
            snprintf(error->text, sizeof error->text, "there is no field '%s'", name);
        if (result != WORDS_SET)
            return name;
    }
    return NULL;
}

static const char *answer(char *lines, bh_policy *policy, bh_topology *topology)
{
    words_error error;
    scenario of = {.rate = 20, .capacity = 500, .down_from_ms = 60000, .down_to_ms = 360000, .seed = 1};
    const char *field = set_fields(lines, policy, topology, &of, &error), *wrong;
    if (field)
        return refuse(field, error.text);
    if (!words_check_policy(policy, &error) || !words_build(topology, policy, &error))
        return refuse("", error.text);
    simulation_set_ends(&of);
    bh_limits limits;
    bh_policy_limits(policy, &limits);
    int64_t failures = limits.max_attempts > 0 ? limits.max_attempts - 1 : UNLIMITED_FAILURES;
    json.size = 0;
    add("{");
    add_delays(topology, policy, failures < MOST_SHOWN ? failures : MOST_SHOWN);
    add(", \"failures\": %lld", (long long)failures);
    add_end(topology, policy, &limits);
    add_queues(topology);
    if ((wrong = add_load(&of, policy, topology)))
        return refuse("", wrong);
    add("}");
    return json.text;
}

/* ------------------------------------------------------------------------------------ interface */

/* Returns the place for a request of `size` bytes, its zero byte included. The next call frees
 * it. */
BH_API char *playground_room(size_t size);
/* Computes the fields in `lines`. Returns JSON, valid until the next call: `error` and its `field`,
 * or all rows. */
BH_API const char *playground_answer(char *lines);

char *playground_room(size_t size)
{
    static char *room;
    free(room);
    room = malloc(size);
    if (!room)
        abort();
    return room;
}

const char *playground_answer(char *lines)
{
    bh_policy *policy = NULL;
    bh_topology *topology = NULL;
    const char *text = bh_policy_new(&policy) == BH_OK && bh_topology_new(&topology, bh_str("work")) == BH_OK
                           ? answer(lines, policy, topology)
                           : refuse("", bh_status_text(BH_ERR_NO_MEMORY).data);
    bh_topology_free(topology);
    bh_policy_free(policy);
    return text;
}
