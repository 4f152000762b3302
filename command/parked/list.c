/* backhop parked list: groups of messages that failed alike. A look changes nothing. */
#include "common/command.h"
#include "common/management.h"
#include "parked/groups.h"
#include "parked/parked.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { SHOW_MS = 500, FIRST_SHOW_MS = 150 /* after the first message */ };

/* The counts of a list. */
typedef struct listing {
    groups found;
    int64_t total;
    int64_t remaining; /* messages that were not looked at */
    int64_t first;     /* of each queue so many are looked at; 0: all */
    int64_t fitting;
    int64_t due_ms;   /* monotonic: when the groups so far are printed next; 0: no message came yet */
    int done, queues; /* queues that were looked at to their end; all queues */
    int by_error;     /* the groups of all queues are one */
    int is_wide;
    int json;
} listing;

static json_t *group_json(const group *each)
{
    return must(json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o}", "queue", json_text(bh_str(each->queue)),
                          "reason", json_text(bh_str(each->reason)), "class", json_text(bh_str(each->class)), "error",
                          json_text(bh_str(each->kind)), "count", (json_int_t)each->count, "first_failure_ms",
                          (json_int_t)each->first_ms, "last_first_failure_ms", (json_int_t)each->last_ms,
                          "least_attempts", (json_int_t)each->least_attempts, "most_attempts",
                          (json_int_t)each->most_attempts, "id", json_text(bh_str(each->id))));
}

static void add_over_time(json_t *object, const groups *found, const group *each)
{
    json_t *counts = must(json_array());
    for (size_t i = 0; i < GROUPS_BUCKETS; i++)
        json_array_append_new(counts, json_integer(each->over_time[i]));
    json_object_set_new(object, "over_time",
                        must(json_pack("{s:I, s:I, s:o}", "from_ms", (json_int_t)found->from_ms, "bucket_ms",
                                       (json_int_t)found->bucket_ms, "parked", counts)));
}

/* Returns the groups from `begin` to `end`, which have one error and reason, as one. */
static group join(const groups *found, size_t begin, size_t end)
{
    group all = found->items[begin];
    for (size_t i = begin + 1; i < end; i++) {
        const group *each = &found->items[i];
        all.count += each->count;
        all.first_ms =
            each->first_ms >= 0 && (all.first_ms < 0 || each->first_ms < all.first_ms) ? each->first_ms : all.first_ms;
        all.last_ms = each->last_ms > all.last_ms ? each->last_ms : all.last_ms;
        all.least_attempts = each->least_attempts < all.least_attempts ? each->least_attempts : all.least_attempts;
        all.most_attempts = each->most_attempts > all.most_attempts ? each->most_attempts : all.most_attempts;
        for (size_t j = 0; j < GROUPS_BUCKETS; j++)
            all.over_time[j] += each->over_time[j];
    }
    if (end - begin > 1)
        snprintf(all.queue, sizeof all.queue, "%zu queues", end - begin);
    return all;
}

static json_t *queues_json(const groups *found, size_t begin, size_t end)
{
    json_t *queues = must(json_array());
    for (size_t i = begin; i < end; i++) {
        const group *each = &found->items[i];
        json_array_append_new(queues,
                              must(json_pack("{s:o, s:I, s:o}", "queue", json_text(bh_str(each->queue)), "count",
                                             (json_int_t)each->count, "id", json_text(bh_str(each->id)))));
    }
    return queues;
}

/* Returns all groups, in their order. */
static json_t *groups_json(const listing *counts)
{
    json_t *list = must(json_array());
    const groups *found = &counts->found;
    for (size_t begin = 0, end; begin < found->count; begin = end) {
        end = counts->by_error ? groups_end_of_error(found, begin) : begin + 1;
        group all = join(found, begin, end);
        json_t *object = group_json(&all);
        if (counts->by_error) {
            json_object_del(object, "queue");
            json_object_del(object, "id");
            json_object_set_new(object, "queues", queues_json(found, begin, end));
        }
        if (all.is_rest)
            json_object_set_new(object, "rest", json_true());
        if (found->bucket_ms)
            add_over_time(object, found, &all);
        json_array_append_new(list, object);
    }
    return list;
}

static void print_groups_json(const listing *counts)
{
    size_t i;
    json_t *list = groups_json(counts), *each;
    json_array_foreach(list, i, each)
    {
        print_json(json_incref(each));
    }
    json_decref(list);
}

static void add_shown(text_table *out, const char *text, size_t most)
{
    char *safe = shown(bh_str(text), most);
    table_add(out, "%s", *safe ? safe : "-");
    free(safe);
}

/* "2 h ago" */
static void add_age(text_table *out, int64_t epoch_ms)
{
    char age[TIME_TEXT];
    int64_t span_ms = bh__epoch_ms() - epoch_ms;
    show_duration(age, span_ms > 0 ? span_ms - span_ms % 1000 : 0);
    char *second = strchr(age, ' ') ? strchr(strchr(age, ' ') + 1, ' ') : NULL; /* of "2 h 5 min" */
    if (second)
        *second = '\0';
    if (epoch_ms < 0)
        table_add(out, "-");
    else
        table_add(out, "%s ago", age);
}

static void add_time(text_table *out, int64_t epoch_ms)
{
    char time[TIME_TEXT];
    table_add(out, "%.16s", epoch_ms < 0 ? "-" : show_time(time, epoch_ms));
}

static void add_group(text_table *out, const group *each, int is_wide)
{
    table_add(out, "%lld", (long long)each->count);
    add_shown(out, each->queue, 255);
    add_shown(out, each->reason, 32);
    if (each->least_attempts == each->most_attempts)
        table_add(out, "%lld", (long long)each->most_attempts);
    else
        table_add(out, "%lld to %lld", (long long)each->least_attempts, (long long)each->most_attempts);
    if (is_wide) {
        add_time(out, each->first_ms);
        add_time(out, each->last_ms);
        add_shown(out, each->id, 36);
    } else {
        add_age(out, each->first_ms);
    }
    add_shown(out, each->kind, KIND_BYTES);
}

static void print_groups(const listing *counts)
{
    static const char *const narrow[] = {"count", "queue", "reason", "attempts", "first failure", "error"},
                             *const wide[] = {"count",         "queue",    "reason", "attempts",
                                              "first failure", "last one", "an id",  "error"};
    const groups *found = &counts->found;
    text_table out = {.columns = counts->is_wide ? 8 : 6};
    for (size_t i = 0; i < out.columns; i++)
        table_add(&out, "%s", counts->is_wide ? wide[i] : narrow[i]);
    for (size_t begin = 0, end; begin < found->count; begin = end) {
        end = counts->by_error ? groups_end_of_error(found, begin) : begin + 1;
        group all = join(found, begin, end);
        add_group(&out, &all, counts->is_wide);
    }
    table_print(&out, "rlllllll");
}

static void print_listing(const parked *on, const listing *counts)
{
    char text[64];
    int64_t all = counts->total + counts->remaining;
    if (counts->json) {
        print_groups_json(counts);
        return;
    }
    if (counts->found.count)
        print_groups(counts);
    printf("%s", count_messages(text, counts->total));
    if (counts->remaining)
        printf(" of %lld, the first of each queue", (long long)all);
    if (!on->selection.count)
        putchar('\n');
    if (on->selection.count)
        printf(", %lld of them selected\n", (long long)counts->fitting);
    if (groups_cut(&counts->found) > 0)
        printf("At most %d kinds of errors are shown of each queue; \"(other errors)\" has the others.\n",
               GROUPS_OF_QUEUE);
    if (on->malformed)
        complain("%s cannot be read: malformed properties", count_messages(text, on->malformed));
}

static void put_in_order(listing *counts)
{
    if (counts->by_error)
        groups_join(&counts->found);
    else
        groups_sort(&counts->found);
}

/* Prints the groups so far as progress, if they are due or must be printed. Does nothing without
 * --progress. */
static void show_groups(parked *on, const snapshot *shot, listing *counts, int must_show)
{
    int64_t now_ms = bh__monotonic_ms();
    if (!counts->due_ms)
        counts->due_ms = now_ms + FIRST_SHOW_MS;
    if (!on->options->progress || (!must_show && now_ms < counts->due_ms))
        return;
    counts->due_ms = now_ms + SHOW_MS;
    parked_show_progress(on, shot, 1); /* the figures that these groups are of */
    listing sorted = *counts;
    if (!groups_copy(&sorted.found, &counts->found))
        must(NULL);
    put_in_order(&sorted);
    print_json(
        must(json_pack("{s:b, s:i, s:i, s:I, s:o}", "progress", 1, "queues_done", counts->done, "queues",
                       counts->queues, "cut", (json_int_t)groups_cut(&sorted.found), "groups", groups_json(&sorted))));
    fflush(stdout);
    groups_free(&sorted.found);
}

/* Looks at the messages of a queue. Prints the groups so far now and then, and if interrupted. */
static int count_queue(parked *on, listing *counts)
{
    snapshot shot;
    int code = snapshot_begin(&shot, on->broker, on->queue);
    if (code != EX_OK)
        return code;
    shot.most = counts->first;
    for (bh_message *message; (message = snapshot_next(&shot)) != NULL;) {
        if (parked_reads(on, message)) {
            counts->fitting++;
            if (!groups_add(&counts->found, on->queue, on->history, parked_time_ms(on)))
                must(NULL);
        }
        bh_message_free(message);
        parked_show_progress(on, &shot, 0);
        show_groups(on, &shot, counts, 0);
    }
    parked_show_progress(on, &shot, 1);
    if (is_interrupted())
        show_groups(on, &shot, counts, 1);
    counts->total += shot.given;
    counts->remaining += shot.total - shot.given;
    return snapshot_end(&shot);
}

/* Returns 1 if this queue is in the list, and adds it otherwise. */
static int is_listed(queue_names *list, const char *queue)
{
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->items[i], queue) == 0)
            return 1;
    queue_names_add(list, bh_str(queue));
    return 0;
}

/*
 * Groups the messages of all these queues, of each once: "orders" and "orders.parked" name one.
 * Complains of queues that cannot be looked at, and goes on with the others. EX_OK; EX_UNAVAILABLE
 * if there were such queues; or the exit code of a failure that ended it.
 */
static int count_queues(parked *on, const queue_names *queues, listing *counts)
{
    int code = EX_OK, skipped = 0;
    queue_names looked_at = {.items = NULL};
    counts->queues = queues->count;
    for (int i = 0; code == EX_OK && i < queues->count; i++) {
        code = parked_go_to(on, queues->items[i]);
        if (code == EX_OK && !is_listed(&looked_at, on->queue))
            code = count_queue(on, counts);
        int is_skipped = code == EX_UNAVAILABLE && !bh__link_is_broken(&on->broker->link);
        skipped += is_skipped;
        code = is_skipped ? EX_OK : code;
        counts->done++;
    }
    queue_names_free(&looked_at);
    put_in_order(counts);
    return code == EX_OK && skipped > 0 ? EX_UNAVAILABLE : code;
}

/* Sets how the groups are counted over time: the last `span_ms`. */
static void set_span(listing *counts, int64_t span_ms)
{
    if (span_ms == 0)
        return;
    if (span_ms < GROUPS_BUCKETS)
        options_refuse("--over-time: at least 60ms");
    counts->found.bucket_ms = span_ms / GROUPS_BUCKETS;
    counts->found.from_ms = bh__epoch_ms() - span_ms;
}

int parked_list(int count, char **arguments)
{
    parked_options options = {.json = 0};
    const char *api = NULL;
    const char *by = "queue";
    int64_t span_ms = 0;
    listing counts = {.total = 0};
    const option_rule rules[] = {
        WHERE_OPTION(&options),
        LIKE_OPTION(&options),
        {"wide", 0, OPTION_FLAG, NULL, "an id of each group too, and dates", &counts.is_wide},
        {"by", 0, OPTION_TEXT, "queue|error", "error: groups of all queues as one [queue]", &by},
        {"over-time", 0, OPTION_DURATION, "TIME", NULL, &span_ms},
        {"first", 0, OPTION_NUMBER, "COUNT", NULL, &counts.first},
        PROGRESS_OPTION(&options),
        MANAGEMENT_OPTION(&api),
        PARKED_OPTIONS(&options)};
    int at = options_read(
        count, arguments, rules, sizeof rules / sizeof rules[0], "[QUEUE...]",
        "Groups the parked messages of work queues by error, numbers folded, and reason. They stay where they are.\n"
        "Conditions: id, error, kind, class, reason, exchange, routing-key, header.NAME by = != ~ !~; attempts,\n"
        "replays, age and numbers by = != < <= > >=. A message fits where all of them hold.\n");
    parked on;
    queue_names queues;
    static const char *const ways[] = {"queue", "error"};
    counts.by_error = setup_word("by", by, ways, 2);
    counts.json = options.json;
    options.progress &= options.json;
    set_span(&counts, span_ms);
    int code = management_name_queues(&queues, management_url(api), &options.broker, count - at, arguments + at);
    if (code != EX_OK)
        return code;
    code = parked_open(&on, &options, "parked list");
    if (code == EX_OK)
        code = count_queues(&on, &queues, &counts);
    queue_names_free(&queues);
    if (code == EX_OK || (code == EX_UNAVAILABLE && counts.total > 0))
        print_listing(&on, &counts);
    groups_free(&counts.found);
    parked_close(&on);
    texts_free(&options.where);
    return output_end(code);
}
