#include "web/arguments.h"

#include "common/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXTS = 64, LONGEST_TEXT = 2000 };

typedef enum shape { TEXT, NUMBER, FLAG, LIST_OF_TEXTS, OPERAND, OPERANDS } shape;

typedef struct field {
    const char *name;   /* in JSON */
    const char *option; /* NULL: an operand */
    shape shape;
} field;

#define SELECTION                                                                                                      \
    {"where", "where", LIST_OF_TEXTS},                                                                                 \
    {                                                                                                                  \
        "like", "like", TEXT                                                                                           \
    }
#define POLICY                                                                                                         \
    {"kind", "kind", TEXT}, {"initial", "initial", TEXT}, {"factor", "factor", TEXT}, {"max", "max", TEXT},            \
        {"steps", "steps", TEXT}, {"jitter", "jitter", TEXT}, {"max_attempts", "max-attempts", TEXT},                  \
    {                                                                                                                  \
        "max_age", "max-age", TEXT                                                                                     \
    }

static const struct {
    const char *words[3];
    field fields[20];
} verbs[VERB_COUNT] = {
    [LIST] = {{"parked", "list"},
              {SELECTION,
               {"by", "by", TEXT},
               {"first", "first", NUMBER},
               {"over_time", "over-time", TEXT},
               {"queues", NULL, OPERANDS}}},
    [SAMPLES] = {{"parked", "show"}, {SELECTION, {"limit", "limit", NUMBER}, {"queue", NULL, OPERAND}}},
    [SHOW] = {{"parked", "show"},
              {{"body_bytes", "body-bytes", NUMBER}, {"queue", NULL, OPERAND}, {"id", NULL, OPERAND}}},
    [DOCTOR] = {{"doctor"}, {{"patience", "patience", TEXT}, {"queues", NULL, OPERANDS}}},
    [SCHEDULE] = {{"schedule"}, {POLICY, {"attempts", "attempts", NUMBER}}},
    [SIMULATE] = {{"simulate"},
                  {POLICY,
                   {"rate", "rate", NUMBER},
                   {"capacity", "capacity", NUMBER},
                   {"down", "down", TEXT},
                   {"failures", "failures", NUMBER},
                   {"seed", "seed", NUMBER},
                   {"breaker", "breaker", FLAG}}},
    [REPLAY] = {{"parked", "replay"},
                {SELECTION,
                 {"to", "to", TEXT},
                 {"limit", "limit", NUMBER},
                 {"rate", "rate", NUMBER},
                 {"ramp", "ramp", TEXT},
                 {"ramp_step", "ramp-step", TEXT},
                 {"stop_after", "stop-after", NUMBER},
                 {"max_replays", "max-replays", NUMBER},
                 {"expect", "expect", NUMBER},
                 {"dry_run", "dry-run", FLAG},
                 {"queue", NULL, OPERAND}}},
    [DROP] = {{"parked", "drop"},
              {SELECTION,
               {"expect", "expect", NUMBER},
               {"dry_run", "dry-run", FLAG},
               {"queue", NULL, OPERAND},
               {"file", NULL, OPERAND}}},
    /* No "to": with --allow drop alone, a load must not publish to a queue that the request
     * chooses. */
    [LOAD] = {{"parked", "load"},
              {{"skip", "skip", NUMBER},
               {"expect", "expect", NUMBER},
               {"dry_run", "dry-run", FLAG},
               {"file", NULL, OPERAND}}},
};

const char *verb_name(verb self)
{
    return verbs[self].words[1] ? verbs[self].words[1] : verbs[self].words[0];
}

void arguments_add(texts *out, const char *text)
{
    texts_add(out, copy_text(bh_str(text)));
}

void arguments_add_option(texts *out, const char *option, const char *value)
{
    char *text = NULL;
    if (!value)
        return;
    if (asprintf(&text, "--%s=%s", option, value) < 0)
        must(NULL);
    texts_add(out, text);
}

void arguments_free(texts *self)
{
    for (size_t i = 0; i < self->count; i++)
        free((void *)(uintptr_t)self->items[i]);
    texts_free(self);
}

static const field *find_field(verb wanted, const char *name)
{
    for (const field *each = verbs[wanted].fields; each->name; each++)
        if (strcmp(each->name, name) == 0)
            return each;
    return NULL;
}

/* Returns 1 for a text that no argument of a program can have. */
static int has_nul(const json_t *value)
{
    return json_is_string(value) && strlen(json_string_value(value)) != json_string_length(value);
}

static int is_text(const json_t *value)
{
    return json_is_string(value) && json_string_length(value) <= LONGEST_TEXT && !has_nul(value);
}

static int is_of(const json_t *value, shape wanted)
{
    size_t i;
    const json_t *item;
    switch (wanted) {
    case NUMBER:
        return json_is_number(value) && json_number_value(value) >= 0 && json_number_value(value) < 9e15;
    case FLAG:
        return json_is_boolean(value);
    case LIST_OF_TEXTS:
    case OPERANDS:
        if (!json_is_array(value) || json_array_size(value) > (wanted == OPERANDS ? 1000 : MOST_TEXTS))
            return 0;
        json_array_foreach(value, i, item)
        {
            if (!is_text(item))
                return 0;
        }
        return 1;
    default:
        return is_text(value);
    }
}

static void add_value(texts *out, const field *it, const json_t *value)
{
    char text[64];
    size_t i;
    const json_t *item;
    if (it->shape == NUMBER) {
        if (json_is_integer(value))
            snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        else
            snprintf(text, sizeof text, "%.17g", json_real_value(value));
        arguments_add_option(out, it->option, text);
    } else if (it->shape == FLAG) {
        snprintf(text, sizeof text, "--%s", it->option);
        if (json_is_true(value))
            arguments_add(out, text);
    } else if (it->shape == TEXT) {
        arguments_add_option(out, it->option, json_string_value(value));
    } else {
        json_array_foreach(value, i, item)
        {
            arguments_add_option(out, it->option, json_string_value(item));
        }
    }
}

/* Returns 1 if the verb connects to the broker. */
static int connects(verb it)
{
    return it != SCHEDULE && it != SIMULATE;
}

static void add_operands(texts *out, verb wanted, const json_t *body)
{
    size_t i;
    const json_t *item;
    arguments_add(out, "--");
    for (const field *each = verbs[wanted].fields; each->name; each++) {
        const json_t *value = each->option ? NULL : json_object_get(body, each->name);
        if (json_is_string(value))
            arguments_add(out, json_string_value(value));
        json_array_foreach(value, i, item)
        {
            arguments_add(out, json_string_value(item));
        }
    }
}

int arguments_read(texts *out, verb wanted, const json_t *body, const texts *more, char problem[256])
{
    const char *name;
    json_t *value;
    snprintf(problem, 256, "a JSON object is wanted");
    if (!json_is_object(body))
        return 0;
    for (const char *const *word = verbs[wanted].words; *word; word++)
        arguments_add(out, *word);
    arguments_add(out, "--json");
    json_object_foreach((json_t *)(uintptr_t)body, name, value)
    {
        const field *it = find_field(wanted, name);
        if (!it || !is_of(value, it->shape)) {
            snprintf(problem, 256,
                     !it              ? "there is no field \"%.60s\""
                     : has_nul(value) ? "\"%.60s\" has a NUL character: name a message by its position, as @3"
                                      : "\"%.60s\" has a value of another kind",
                     name);
            return 0;
        }
        if (it->option)
            add_value(out, it, value);
    }
    for (const field *each = verbs[wanted].fields; each->name; each++)
        if (each->shape == OPERAND && !json_object_get(body, each->name)) {
            snprintf(problem, 256, "\"%s\" is missing", each->name);
            return 0;
        }
    for (size_t i = 0; connects(wanted) && i < more->count; i++)
        arguments_add(out, more->items[i]);
    add_operands(out, wanted, body);
    problem[0] = '\0';
    return 1;
}
