#include "setup/setup.h"

#include "common/config.h"
#include "common/output.h"

#include <backhop/adapter/duration.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

int setup_word(const char *name, const char *text, const char *const *words, size_t count)
{
    char list[256] = "";
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0)
            return (int)i;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", words[i]);
    }
    options_refuse("%s: '%s' is none of %s", name, text, list);
}

static int64_t duration_of(const char *name, const char *text)
{
    int64_t ms;
    if (!options_duration(text, &ms))
        options_refuse("%s: '%s' is no time span: write 250ms, 1.5s, 5m, 2h or 3d", name, text);
    return ms;
}

int64_t setup_number(const char *name, const char *text, int64_t lowest, int64_t highest)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno || number < lowest || number > highest) {
        if (highest == INT64_MAX)
            options_refuse("%s: '%s' is no whole number from %lld on", name, text, (long long)lowest);
        options_refuse("%s: '%s' is no whole number from %lld to %lld", name, text, (long long)lowest,
                       (long long)highest);
    }
    return number;
}

static double real_of(const char *name, const char *text)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end)
        options_refuse("%s: '%s' is no number", name, text);
    return number;
}

/* ------------------------------------------------------------------------------------------------------------ policy */

static int is_word(char character)
{
    return character == '_' || isalnum((unsigned char)character);
}

/* Prints a time span that options take, and loses no ms: "1 min 1.001 s". */
static void print_exact_span(FILE *out, long long ms)
{
    static const struct {
        long long ms;
        const char *unit;
    } units[] = {{86400000, "d"}, {3600000, "h"}, {60000, "min"}};
    const char *between = "";
    for (size_t i = 0; i < sizeof units / sizeof units[0]; ms %= units[i++].ms)
        if (ms >= units[i].ms) {
            fprintf(out, "%s%lld %s", between, ms / units[i].ms, units[i].unit);
            between = " ";
        }
    if (ms)
        fprintf(out, "%s%g s", between, (double)ms / 1000);
}

/* Prints the number at `at`, which is in ms, as a time span. Returns what follows it and its unit. */
static const char *print_span(FILE *out, const char *at)
{
    char *end, room[BH_DURATION_ROOM];
    long long ms = strtoll(at, &end, 10);
    if (bh_duration_ms(bh_duration_text(ms, room)) == ms)
        fputs(room, out);
    else
        print_exact_span(out, ms);
    return strncmp(end, " ms", 3) == 0 && !is_word(end[3]) ? end + 3 : end;
}

/* Returns a text of the core in the words of options: "initial is 1 h" of "initial_ms is 3600000". The caller frees it. */
static char *option_words(const char *at)
{
    char *text = NULL;
    size_t size = 0;
    static const char whole[] = "a whole number from ";
    int is_in_ms = 0;
    FILE *out = must(open_memstream(&text, &size));
    for (int in_word = 0; *at; in_word = is_word(at[-1])) {
        size_t digits = strspn(at, "0123456789");
        if (strncmp(at, "_ms", 3) == 0 && !is_word(at[3])) {
            is_in_ms = 1;
            int verb = strncmp(at += 3, " is ", 4) == 0 ? 4 : *at == ' ';
            if (isdigit((unsigned char)at[verb])) {
                fprintf(out, "%.*s", verb, at);
                at = print_span(out, at + verb);
            }
        } else if (is_in_ms && strncmp(at, whole, strlen(whole)) == 0) {
            fputs("a time span from ", out);
            at = print_span(out, at + strlen(whole));
            while (*at && !isdigit((unsigned char)*at))
                fputc(*at++, out);
            at = print_span(out, at);
        } else if (!in_word && digits && strncmp(at + digits, " ms", 3) == 0) {
            at = print_span(out, at);
        } else if (!in_word && strncmp(at, "max_", 4) == 0 && strncmp(at, "max_ms", 6) != 0) {
            fputs("max-", out);
            at += 4;
        } else {
            fputc(*at == '_' && strncmp(at, "_after", 6) == 0 ? '-' : *at, out);
            at++;
        }
    }
    fclose(out);
    return text;
}

_Noreturn static void refuse_in_words(const char *where, bh_bytes text)
{
    char *words = option_words(text.data);
    options_refuse("%s%s%s", where ? where : "", where ? ": " : "", words);
}

static bh_status set_jitter(bh_policy *policy, const char *text)
{
    static const char *const words[] = {"none", "spread", "equal", "full", "decorrelated"};
    double ratio = 0.2;
    char word[32];
    snprintf(word, sizeof word, "%s", text);
    char *colon = strchr(word, ':');
    if (colon) {
        *colon = '\0';
        ratio = real_of("jitter", colon + 1);
    }
    if (isdigit((unsigned char)*text))
        options_refuse(
            "jitter: '%s' is none of none, spread, equal, full, decorrelated; a share of 20 %% is spread:0.2", text);
    return bh_policy_set_jitter(policy, (bh_jitter)setup_word("jitter", word, words, 5), ratio);
}

static bh_status set_steps(bh_policy *policy, const char *text)
{
    char *copy = copy_text(bh_str(text));
    bh_status status = bh_policy_set_kind(policy, BH_KIND_STEPS);
    for (char *rest = copy, *step; status == BH_OK && (step = strtok_r(rest, ", ", &rest));)
        status = bh_policy_add_step_ms(policy, duration_of("steps", step));
    free(copy);
    return status;
}

/* Sets one thing by the name that options and files have for it; false: there is none of this name. */
static int set_policy(bh_policy *policy, const char *name, const char *text, bh_status *status)
{
    static const char *const kinds[] = {"exponential", "linear", "fixed", "steps"};
    if (strcmp(name, "kind") == 0)
        *status = bh_policy_set_kind(policy, (bh_kind)setup_word(name, text, kinds, 4));
    else if (strcmp(name, "initial") == 0)
        *status = bh_policy_set_initial_ms(policy, duration_of(name, text));
    else if (strcmp(name, "factor") == 0)
        *status = bh_policy_set_factor(policy, real_of(name, text));
    else if (strcmp(name, "max") == 0)
        *status = bh_policy_set_max_ms(policy, duration_of(name, text));
    else if (strcmp(name, "steps") == 0)
        *status = set_steps(policy, text);
    else if (strcmp(name, "jitter") == 0)
        *status = set_jitter(policy, text);
    else if (strcmp(name, "max-attempts") == 0)
        *status = bh_policy_set_max_attempts(policy, setup_number(name, text, 0, INT64_MAX));
    else if (strcmp(name, "max-age") == 0)
        *status = bh_policy_set_max_age_ms(policy, duration_of(name, text));
    else if (strcmp(name, "max-retry-after") == 0)
        *status = bh_policy_set_max_retry_after_ms(policy, duration_of(name, text));
    else if (strcmp(name, "max-crashes") == 0)
        *status = bh_policy_set_max_crashes(policy, setup_number(name, text, 0, INT64_MAX));
    else
        return 0;
    return 1;
}

static void set_policy_or_end(bh_policy *policy, const char *name, const char *text)
{
    bh_status status = BH_OK;
    if (text && set_policy(policy, name, text, &status) && status != BH_OK)
        refuse_in_words(NULL, status == BH_ERR_POLICY ? bh_policy_error(policy) : bh_status_text(status));
}

/* Returns a value as an option's text: "10s" and 8 as they are, ["1s", "5s"] with commas between. NULL: it is another. The caller frees it. */
static char *option_text(const json_t *value, const char **first)
{
    char *text = NULL;
    size_t i, size = 0;
    const json_t *item;
    if (json_is_string(value)) {
        *first = json_string_value(value);
        return copy_text(bh_str(*first));
    }
    if (json_is_number(value))
        return must(json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT));
    FILE *out = must(open_memstream(&text, &size));
    json_array_foreach(value, i, item)
    {
        if (!json_is_string(item))
            break;
        *first = *first ? *first : json_string_value(item);
        fprintf(out, "%s%s", i ? "," : "", json_string_value(item));
    }
    fclose(out);
    if (json_is_array(value) && i > 0 && i == json_array_size(value))
        return text;
    free(text);
    return NULL;
}

static void set_policy_json(bh_policy *policy, const char *key, const json_t *value, const char *where)
{
    bh_status status = BH_OK;
    const char *place = NULL;
    char *text = option_text(value, &place);
    config_at(place);
    if (!text)
        options_refuse("%s: %s: a text, a number or a list of texts is wanted", where, key);
    if (json_is_array(value) && strcmp(key, "steps") != 0)
        options_refuse("%s: %s: one value is wanted, and not a list", where, key);
    if (!set_policy(policy, key, text, &status))
        options_refuse("%s: there is no '%s' in a policy; the names are those of the options", where, key);
    if (status != BH_OK)
        refuse_in_words(where, bh_policy_error(policy));
    config_at(NULL);
    free(text);
}

void setup_policy_json(bh_policy *policy, json_t *object, const char *where)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        options_refuse("%s: a JSON object is wanted, as {\"initial\": \"10s\", \"max-attempts\": 8}", where);
    json_object_foreach(object, key, value)
    {
        set_policy_json(policy, key, value, where);
    }
}

static void read_file(bh_policy *policy, const char *file)
{
    json_error_t error;
    json_t *object = json_load_file(file, JSON_REJECT_DUPLICATES, &error);
    if (!object) {
        complain("%s: %s (line %d)", file, error.text, error.line);
        exit(json_error_code(&error) == json_error_cannot_open_file ? EX_NOINPUT : EX_DATAERR);
    }
    setup_policy_json(policy, object, file);
    json_decref(object);
}

bh_policy *setup_policy(const policy_options *o)
{
    return setup_policy_over(o, NULL, NULL);
}

bh_policy *setup_policy_over(const policy_options *o, json_t *object, const char *where)
{
    bh_policy *policy = NULL;
    if (bh_policy_new(&policy) != BH_OK)
        must(NULL);
    if (object)
        setup_policy_json(policy, object, where);
    if (o->file)
        read_file(policy, o->file);
    set_policy_or_end(policy, "kind", o->kind);
    set_policy_or_end(policy, "max", o->max);
    set_policy_or_end(policy, "initial", o->initial);
    set_policy_or_end(policy, "factor", o->factor);
    set_policy_or_end(policy, "steps", o->steps);
    set_policy_or_end(policy, "jitter", o->jitter);
    set_policy_or_end(policy, "max-attempts", o->max_attempts);
    set_policy_or_end(policy, "max-age", o->max_age);
    set_policy_or_end(policy, "max-retry-after", o->max_retry_after);
    set_policy_or_end(policy, "max-crashes", o->max_crashes);
    if (bh_policy_check(policy) != BH_OK)
        refuse_in_words(where, bh_policy_error(policy));
    return policy;
}

/* ---------------------------------------------------------------------------------------------------------- topology */

bh_queue_type setup_queue_type(const char *name, const char *text)
{
    static const char *const words[] = {"quorum", "classic"};
    return setup_word(name, text, words, 2) ? BH_QUEUE_CLASSIC : BH_QUEUE_QUORUM;
}

static void set_topology(bh_topology *topology, const topology_options *o)
{
    static const char *const strategies[] = {"ladder", "message-ttl", "reject", "delayed-exchange", "native"};
    static const char *const series[] = {"R5", "R10", "R20", "R40"};
    static const bh_series numbers[] = {BH_SERIES_R5, BH_SERIES_R10, BH_SERIES_R20, BH_SERIES_R40};
    bh_status status = BH_OK;
    if (o->strategy)
        status = bh_topology_set_strategy(topology, (bh_strategy)setup_word("strategy", o->strategy, strategies, 5));
    if (status == BH_OK && o->queue_type)
        status = bh_topology_set_queue_type(topology, setup_queue_type("queue-type", o->queue_type));
    if (status == BH_OK && o->ns)
        status = bh_topology_set_namespace(topology, bh_str(o->ns));
    if (status == BH_OK && o->series)
        status = bh_topology_set_series(topology, numbers[setup_word("series", o->series, series, 4)]);
    if (status == BH_OK && o->stripes)
        status =
            bh_topology_set_stripes(topology, (int)setup_number("stripes", o->stripes, 1, BH_TOPOLOGY_MOST_STRIPES));
    if (status == BH_OK && o->work_queue_type)
        status = bh_topology_set_work_queue_type(topology, setup_queue_type("work-queue", o->work_queue_type));
    if (status == BH_ERR_NAME)
        options_refuse("namespace: '%s' is empty, too long, no UTF-8 or begins with amq.", o->ns);
    if (status != BH_OK)
        options_refuse("%s", bh_status_text(status).data);
}

bh_topology *setup_topology(const topology_options *options, const char *queue, bh_policy *policy)
{
    bh_topology *topology = NULL;
    bh_status status = bh_topology_new(&topology, bh_str(queue));
    if (status == BH_ERR_NAME)
        options_refuse("'%s' is no work queue's name: empty, longer than %d bytes, no UTF-8, or beginning with amq.",
                       queue, BH_TOPOLOGY_LONGEST_NAME);
    if (status != BH_OK)
        must(NULL);
    set_topology(topology, options);
    status = bh_topology_build(topology, policy);
    if (status == BH_ERR_NO_MEMORY)
        must(NULL);
    if (status != BH_OK)
        refuse_in_words(NULL, status == BH_ERR_POLICY ? bh_policy_error(policy) : bh_topology_error(topology));
    return topology;
}
