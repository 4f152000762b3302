/* backhop parked list, show: looking, which changes nothing. */
#include "parked/archive.h"
#include "common/command.h"
#include "parked/groups.h"
#include "common/management.h"
#include "parked/parked.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

/* -------------------------------------------------------------------------------------------------------------- list */

/* The counts of a list. */
typedef struct listing {
    groups found;
    int64_t total;
    int64_t fitting;
} listing;

static int count_queue(parked *on, listing *counts)
{
    snapshot shot;
    int code = snapshot_begin(&shot, on->broker, on->queue);
    if (code != EX_OK)
        return code;
    for (bh_message *message; (message = snapshot_next(&shot)) != NULL;) {
        if (parked_reads(on, message)) {
            counts->fitting++;
            if (!groups_add(&counts->found, on->queue, on->history))
                must(NULL);
        }
        bh_message_free(message);
    }
    counts->total += shot.given;
    return snapshot_end(&shot);
}

static void print_group_json(const group *each)
{
    print_json(must(json_pack("{s:s, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o}", "queue", each->queue, "reason",
                              json_text(bh_str(each->reason)), "class", json_text(bh_str(each->class)), "error",
                              json_text(bh_str(each->kind)), "count", (json_int_t)each->count, "first_failure_ms",
                              (json_int_t)each->first_ms, "last_first_failure_ms", (json_int_t)each->last_ms,
                              "least_attempts", (json_int_t)each->least_attempts, "most_attempts",
                              (json_int_t)each->most_attempts, "id", json_text(bh_str(each->id)))));
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

static void print_groups(const groups *found, int is_wide)
{
    static const char *const narrow[] = {"count", "queue", "reason", "attempts", "first failure", "error"},
                             *const wide[] = {"count",         "queue",    "reason", "attempts",
                                              "first failure", "last one", "an id",  "error"};
    text_table out = {.columns = is_wide ? 8 : 6};
    for (size_t i = 0; i < out.columns; i++)
        table_add(&out, "%s", is_wide ? wide[i] : narrow[i]);
    for (size_t i = 0; i < found->count; i++) {
        const group *each = &found->items[i];
        table_add(&out, "%lld", (long long)each->count);
        add_shown(&out, each->queue, 255);
        add_shown(&out, each->reason, 32);
        if (each->least_attempts == each->most_attempts)
            table_add(&out, "%lld", (long long)each->most_attempts);
        else
            table_add(&out, "%lld to %lld", (long long)each->least_attempts, (long long)each->most_attempts);
        if (is_wide) {
            add_time(&out, each->first_ms);
            add_time(&out, each->last_ms);
            add_shown(&out, each->id, 36);
        } else {
            add_age(&out, each->first_ms);
        }
        add_shown(&out, each->kind, KIND_BYTES);
    }
    table_print(&out, "rlllllll");
}

static void print_listing(const parked *on, const listing *counts, int json, int is_wide)
{
    char text[64];
    for (size_t i = 0; json && i < counts->found.count; i++)
        print_group_json(&counts->found.items[i]);
    if (json)
        return;
    if (counts->found.count)
        print_groups(&counts->found, is_wide);
    printf("%s%s", count_messages(text, counts->total), on->selection.count ? "" : "\n");
    if (on->selection.count)
        printf(", %lld of them selected\n", (long long)counts->fitting);
    if (on->malformed)
        complain("%s cannot be read: malformed properties", count_messages(text, on->malformed));
}

int parked_list(int count, char **arguments)
{
    parked_options options = {.json = 0};
    const char *api = NULL;
    int is_wide = 0;
    const option_rule rules[] = {WHERE_OPTION(&options),
                                 LIKE_OPTION(&options),
                                 {"wide", 0, OPTION_FLAG, NULL, "an id of each group too, and dates", &is_wide},
                                 MANAGEMENT_OPTION(&api),
                                 PARKED_OPTIONS(&options)};
    int at = options_read(
        count, arguments, rules, sizeof rules / sizeof rules[0], "[QUEUE...]",
        "Groups the parked messages of work queues by error, numbers folded, and reason. They stay in their "
        "queue. Conditions: id, error, class, reason, exchange, routing-key, header.NAME by = != ~ !~; "
        "attempts, replays, age and numbers by = != < <= > >=. A message fits if all of them hold.\n");
    parked on;
    queue_names queues;
    listing counts = {.total = 0};
    int code = management_name_queues(&queues, management_url(api), &options.broker, count - at, arguments + at);
    if (code != EX_OK)
        return code;
    code = parked_open(&on, &options, "parked list");
    for (int i = 0; code == EX_OK && i < queues.count; i++) {
        code = parked_go_to(&on, queues.items[i]);
        if (code == EX_OK)
            code = count_queue(&on, &counts);
    }
    queue_names_free(&queues);
    groups_sort(&counts.found);
    if (code == EX_OK)
        print_listing(&on, &counts, options.json, is_wide);
    groups_free(&counts.found);
    parked_close(&on);
    texts_free(&options.where);
    return output_end(code);
}

/* -------------------------------------------------------------------------------------------------------------- show */

static void print_line(const char *name, const char *type, const char *value)
{
    say("  %-28s %s%s%s\n", name, type, *type ? " " : "", value);
}

/* Returns a header's value as text, shortened to 1,000 bytes. The caller frees it. */
static char *value_text(const bh_value *value)
{
    char *text;
    bh_type type = value->type;
    if (type == BH_TYPE_STRING || type == BH_TYPE_BYTES)
        return shown(value->string, 1000);
    if (type == BH_TYPE_FLOAT || type == BH_TYPE_DOUBLE) {
        if (asprintf(&text, "%.17g", value->number) < 0)
            must(NULL);
        return text;
    }
    if (type == BH_TYPE_BOOLEAN)
        return must(strdup(value->integer ? "true" : "false"));
    if (type == BH_TYPE_TABLE || type == BH_TYPE_ARRAY || type == BH_TYPE_VOID)
        return must(strdup(""));
    if (asprintf(&text, "%lld", (long long)value->integer) < 0)
        must(NULL);
    return text;
}

static const char *type_name(bh_type type)
{
    switch (type) {
    case BH_TYPE_BYTES:
        return "(bytes)";
    case BH_TYPE_ARRAY:
        return "(array)";
    case BH_TYPE_TABLE:
        return "(table)";
    case BH_TYPE_VOID:
        return "(void)";
    case BH_TYPE_DECIMAL:
        return "(decimal)";
    default:
        return "";
    }
}

static void print_headers(const bh_delivery *delivery)
{
    size_t ends[BH_DELIVERY_MAX_DEPTH + 1], depth = 0;
    for (size_t i = 0; i < bh_delivery_value_count(delivery); i++) {
        bh_value header;
        bh_delivery_value(delivery, i, &header);
        while (depth > 0 && ends[depth - 1] <= i)
            depth--;
        char *name = shown(header.name, 255), *value = value_text(&header), indented[600];
        snprintf(indented, sizeof indented, "%*s%s", (int)depth * 2, "", *name ? name : "-");
        print_line(indented, type_name(header.type), value);
        free(name);
        free(value);
        if (header.end > i + 1 && depth < BH_DELIVERY_MAX_DEPTH)
            ends[depth++] = header.end;
    }
}

static void print_properties(const bh_delivery *delivery)
{
    json_t *properties = archive_properties(delivery), *value;
    const char *name;
    json_object_foreach(properties, name, value)
    {
        char number[32];
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        char *text = shown(json_is_string(value) ? bh_str(json_string_value(value))
                                                 : bh_str(json_is_integer(value) ? number : "(bytes)"),
                           255);
        print_line(name, "", text);
        free(text);
    }
    json_decref(properties);
}

static void print_body(bh_bytes body)
{
    if (fwrite(body.data, 1, body.size, stdout) == body.size)
        putchar('\n');
}

static void print_message(parked *on, const bh_message *message, int64_t position, int with_body)
{
    char *exchange = shown(message->exchange, 255), *key = shown(message->routing_key, 255);
    fputs(paint(BOLD), stdout);
    say("Message %lld of \"%s\"", (long long)position, on->queue);
    printf("%s\n", paint(PLAIN));
    for (const char *line = bh_history_explanation(on->history).data; *line;
         line += strcspn(line, "\n"), line += *line == '\n') {
        char *safe = shown((bh_bytes){line, strcspn(line, "\n")}, 2000);
        printf("%s\n", safe);
        free(safe);
    }
    printf("\nDelivered by exchange \"%s\" with routing key \"%s\"; its body has %zu bytes%s.\n", exchange, key,
           message->body.size, with_body ? "" : " (--body shows it)");
    printf("\n%sProperties%s\n", paint(BOLD), paint(PLAIN));
    print_properties(on->delivery);
    printf("\n%sHeaders%s\n", paint(BOLD), paint(PLAIN));
    print_headers(on->delivery);
    if (with_body) {
        printf("\n%sBody%s\n", paint(BOLD), paint(PLAIN));
        print_body(message->body);
    }
    free(exchange);
    free(key);
}

static void print_message_json(parked *on, const bh_message *message, int with_body)
{
    char id[256];
    json_t *object = archive_object(on->queue, message, on->delivery, parked_id(on, id));
    json_object_set_new(object, "story", json_text(bh_history_explanation(on->history)));
    json_object_set_new(object, "body_bytes", json_integer((json_int_t)message->body.size));
    if (!with_body)
        json_object_del(object, "body");
    print_json(object);
}

int parked_show(int count, char **arguments)
{
    parked_options options = {.json = 0};
    int with_body = 0;
    const option_rule rules[] = {{"body", 0, OPTION_FLAG, NULL, "its body too, unchanged", &with_body},
                                 PARKED_OPTIONS(&options)};
    int at = options_read(count, arguments, rules, sizeof rules / sizeof rules[0], "QUEUE ID",
                          "Shows one parked message: its story, properties and headers. ID is its message-id or "
                          "backhop-id; or @3 for the third message of the queue. The message stays in its queue.\n");
    if (count - at != 2)
        options_refuse("one work queue and one id are wanted");
    parked on;
    snapshot shot;
    int is_found = 0, code = parked_open(&on, &options, "parked show");
    if (code == EX_OK)
        code = parked_go_to(&on, arguments[at]);
    if (code == EX_OK)
        code = snapshot_begin(&shot, on.broker, on.queue);
    if (code == EX_OK) {
        for (bh_message *message; (message = snapshot_next(&shot)) != NULL;) {
            int is_it = !is_found && parked_reads(&on, message) && parked_is(&on, arguments[at + 1], shot.given);
            is_found |= is_it;
            if (is_it && options.json)
                print_message_json(&on, message, with_body);
            else if (is_it)
                print_message(&on, message, shot.given, with_body);
            bh_message_free(message);
        }
        code = snapshot_end(&shot);
    }
    if (code == EX_OK && !is_found) {
        complain("there is no message with this id in \"%s\"", on.queue);
        code = EX_NOINPUT;
    }
    parked_close(&on);
    return output_end(code);
}
