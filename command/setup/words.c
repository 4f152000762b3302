#include "setup/words.h"

#include "common/options.h"

#include <backhop/adapter/duration.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- texts */

__attribute__((format(printf, 2, 3))) static int refuse(words_error *error, const char *format, ...)
{
    va_list arguments;
    error->is_of_core = 0;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return 0;
}

int words_find(const char *name, const char *text, const char *const *words, size_t count, words_error *error)
{
    char list[256] = "";
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0)
            return (int)i;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", words[i]);
    }
    refuse(error, "%s: '%s' is none of %s", name, text, list);
    return -1;
}

int words_duration(const char *name, const char *text, int64_t *out_ms, words_error *error)
{
    *out_ms = bh_duration_ms(bh_str(text));
    return *out_ms >= 0 || refuse(error, "%s: '%s' is no time span: " OPTIONS_SPAN, name, text);
}

int words_number(const char *name, const char *text, int64_t lowest, int64_t highest, int64_t *out, words_error *error)
{
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (end != text && !*end && !errno && *out >= lowest && *out <= highest)
        return 1;
    if (highest == INT64_MAX)
        return refuse(error, "%s: '%s' is no whole number from %lld on", name, text, (long long)lowest);
    return refuse(error, "%s: '%s' is no whole number from %lld to %lld", name, text, (long long)lowest,
                  (long long)highest);
}

int words_real(const char *name, const char *text, double *out, words_error *error)
{
    char *end;
    *out = strtod(text, &end);
    return (end != text && !*end) || refuse(error, "%s: '%s' is no number", name, text);
}

int words_times(const char *name, const char *text, int64_t *out_from_ms, int64_t *out_to_ms, words_error *error)
{
    char from[32], *to;
    snprintf(from, sizeof from, "%s", text);
    to = strstr(from, "..");
    if (to) {
        *to = '\0';
        *out_from_ms = bh_duration_ms(bh_str(from));
        *out_to_ms = bh_duration_ms(bh_str(to + 2));
    }
    return (to && *out_from_ms >= 0 && *out_to_ms >= *out_from_ms) ||
           refuse(error, "%s: '%s' is no part of time, as 1m..6m", name, text);
}

/* ----------------------------------------------------------------------------- the core's texts */

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

/* Prints the number at `at`, which is in ms, as a time span. Returns what follows it and its
 * unit. */
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

/* Writes a text of the core in the words of options: "initial is 1 h" of "initial_ms is
 * 3600000". */
static void write_option_words(FILE *out, const char *at)
{
    static const char whole[] = "a whole number from ";
    int is_in_ms = 0;
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
}

/* Refuses with a text of the core. */
static int refuse_core(words_error *error, bh_bytes text)
{
    FILE *out = fmemopen(error->text, sizeof error->text, "w");
    if (!out)
        return refuse(error, "%s", text.data);
    write_option_words(out, text.data);
    fclose(out);
    error->is_of_core = 1;
    return 0;
}

/* --------------------------------------------------------------------------------------- policy */

typedef struct policy_fields {
    bh_policy_settings set;
    int64_t steps_ms[BH_POLICY_MOST_STEPS + 1];
} policy_fields;

/* These functions return 0 if a text is wrong. */
static int set_jitter(policy_fields *fields, const char *text, words_error *error)
{
    static const char *const words[] = {"none", "spread", "equal", "full", "decorrelated"};
    double ratio = 0.2;
    char word[32];
    snprintf(word, sizeof word, "%s", text);
    char *colon = strchr(word, ':');
    if (colon) {
        *colon = '\0';
        if (!words_real("jitter", colon + 1, &ratio, error))
            return 0;
    }
    if (isdigit((unsigned char)*text))
        return refuse(error,
                      "jitter: '%s' is none of none, spread, equal, full, decorrelated; a share of 20 %% is spread:0.2",
                      text);
    int jitter = words_find("jitter", word, words, 5, error);
    fields->set.jitter = (bh_jitter)jitter;
    fields->set.ratio = ratio;
    return jitter >= 0;
}

static int set_kind(policy_fields *fields, const char *text, words_error *error)
{
    static const char *const words[] = {"exponential", "linear", "fixed", "steps"};
    int kind = words_find("kind", text, words, 4, error);
    fields->set.kind = (bh_kind)kind;
    return kind >= 0;
}

static int set_factor(policy_fields *fields, const char *text, words_error *error)
{
    return words_real("factor", text, &fields->set.factor, error);
}

/* Stops at one step too many, which the core refuses. */
static int set_steps(policy_fields *fields, const char *text, words_error *error)
{
    size_t count = 0;
    for (const char *at = text + strspn(text, ", "); *at && count <= BH_POLICY_MOST_STEPS; count++) {
        char step[64];
        size_t size = strcspn(at, ", ");
        snprintf(step, sizeof step, "%.*s", (int)size, at);
        if (!words_duration("steps", step, &fields->steps_ms[count], error))
            return 0;
        at += size;
        at += strspn(at, ", ");
    }
    fields->set.steps_ms = fields->steps_ms;
    fields->set.step_count = count;
    return 1;
}

typedef int set_words(policy_fields *fields, const char *text, words_error *error);
typedef enum field_unit { OF_WORDS, OF_MS, OF_COUNT } field_unit;

static const struct {
    const char *name;
    field_unit unit;
    set_words *of_words;
    size_t offset; /* of the int64_t in bh_policy_settings */
} fields[] = {
    {"kind", OF_WORDS, set_kind, 0},
    {"initial", OF_MS, NULL, offsetof(bh_policy_settings, initial_ms)},
    {"factor", OF_WORDS, set_factor, 0},
    {"max", OF_MS, NULL, offsetof(bh_policy_settings, max_ms)},
    {"steps", OF_WORDS, set_steps, 0},
    {"jitter", OF_WORDS, set_jitter, 0},
    {"max-attempts", OF_COUNT, NULL, offsetof(bh_policy_settings, max_attempts)},
    {"max-age", OF_MS, NULL, offsetof(bh_policy_settings, max_age_ms)},
    {"max-retry-after", OF_MS, NULL, offsetof(bh_policy_settings, max_retry_after_ms)},
    {"max-crashes", OF_COUNT, NULL, offsetof(bh_policy_settings, max_crashes)},
};

static int set_field(policy_fields *of, size_t at, const char *text, words_error *error)
{
    int64_t value;
    if (fields[at].unit == OF_WORDS)
        return fields[at].of_words(of, text, error);
    int is_read = fields[at].unit == OF_MS ? words_duration(fields[at].name, text, &value, error)
                                           : words_number(fields[at].name, text, 0, INT64_MAX, &value, error);
    if (is_read)
        memcpy((char *)&of->set + fields[at].offset, &value, sizeof value);
    return is_read;
}

static int set_policy(bh_policy *policy, const bh_policy_settings *settings, words_error *error)
{
    bh_status status = bh_policy_set(policy, settings);
    return status == BH_OK ||
           refuse_core(error, status == BH_ERR_POLICY ? bh_policy_error(policy) : bh_status_text(status));
}

words_result words_set_policy(bh_policy *policy, const char *name, const char *text, words_error *error)
{
    size_t at = 0, count = sizeof fields / sizeof fields[0];
    policy_fields of;
    while (at < count && strcmp(name, fields[at].name) != 0)
        at++;
    if (at == count)
        return WORDS_UNKNOWN;
    bh_policy_read(policy, &of.set);
    return set_field(&of, at, text, error) && set_policy(policy, &of.set, error) ? WORDS_SET : WORDS_REFUSED;
}

int words_check_used(bh_policy *policy, int has_initial, int has_factor, words_error *error)
{
    bh_policy_settings settings;
    bh_policy_read(policy, &settings);
    settings.gives_initial = has_initial;
    settings.gives_factor = has_factor;
    return set_policy(policy, &settings, error);
}

int words_check_policy(bh_policy *policy, words_error *error)
{
    return bh_policy_check(policy) == BH_OK || refuse_core(error, bh_policy_error(policy));
}

/* ------------------------------------------------------------------------------------- topology */

words_result words_set_topology(bh_topology *topology, const char *name, const char *text, words_error *error)
{
    static const char *const strategies[] = {"ladder", "message-ttl", "reject", "delayed-exchange", "native"};
    static const char *const types[] = {"quorum", "classic"};
    static const char *const series[] = {"R5", "R10", "R20", "R40"};
    static const bh_series numbers[] = {BH_SERIES_R5, BH_SERIES_R10, BH_SERIES_R20, BH_SERIES_R40};
    bh_topology_view made;
    bh_topology_read(topology, &made);
    bh_topology_settings *settings = &made.settings;
    int64_t value = 0;
    if (strcmp(name, "strategy") == 0) {
        settings->strategy = (bh_strategy)(value = words_find(name, text, strategies, 5, error));
    } else if (strcmp(name, "queue-type") == 0) {
        settings->queue_type = (bh_queue_type)(value = words_find(name, text, types, 2, error));
    } else if (strcmp(name, "work-queue") == 0) {
        settings->declares_work_queue = 1;
        settings->work_queue_type = (bh_queue_type)(value = words_find(name, text, types, 2, error));
    } else if (strcmp(name, "series") == 0) {
        value = words_find(name, text, series, 4, error);
        settings->series = numbers[value < 0 ? 0 : value];
    } else if (strcmp(name, "stripes") == 0) {
        value = words_number(name, text, 1, BH_TOPOLOGY_MOST_STRIPES, &value, error) ? value : -1;
        settings->stripes = value;
    } else if (strcmp(name, "namespace") == 0) {
        settings->name_space = bh_str(text);
    } else {
        return WORDS_UNKNOWN;
    }
    bh_status status = value < 0 ? BH_OK : bh_topology_set(topology, settings); /* else the word is refused */
    if (status == BH_ERR_NAME)
        refuse(error, "namespace: '%s' is empty, too long, no UTF-8 or begins with amq.", text);
    else if (status != BH_OK)
        refuse(error, "%s", bh_status_text(status).data);
    return value >= 0 && status == BH_OK ? WORDS_SET : WORDS_REFUSED;
}

int words_build(bh_topology *topology, bh_policy *policy, words_error *error)
{
    bh_status status = bh_topology_build(topology, policy);
    if (status == BH_OK)
        return 1;
    if (status == BH_ERR_NO_MEMORY)
        return refuse(error, "%s", bh_status_text(status).data);
    return refuse_core(error, status == BH_ERR_POLICY ? bh_policy_error(policy) : bh_topology_error(topology));
}
