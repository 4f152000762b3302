#include "common/policies.h"

#include "common/output.h"

#include <ctype.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

typedef enum match { NO_MATCH, MATCH, UNKNOWN_MATCH } match;

int policies_read(policies *self, management *api)
{
    *self = (policies){.users = NULL};
    int code = management_list(api, &self->users, "policies/%v");
    if (code == EX_OK)
        code = management_list(api, &self->operators, "operator-policies/%v");
    if (code != EX_OK)
        policies_free(self);
    return code;
}

void policies_free(policies *self)
{
    json_decref(self->users);
    json_decref(self->operators);
    *self = (policies){.users = NULL};
}

/* Returns 1 if PCRE, which RabbitMQ uses, reads the pattern as POSIX does. */
static int is_plain(const char *pattern)
{
    for (; *pattern; pattern++) {
        if (*pattern == '\\' && (pattern[1] == '\0' || isalnum((unsigned char)*++pattern)))
            return 0;
        if (strchr("(*+?}", *pattern) && strchr("?+", pattern[1]) && pattern[1])
            return 0;
    }
    return 1;
}

static match match_plain(const char *pattern, const char *name)
{
    regex_t compiled;
    if (!is_plain(pattern) || regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) != 0)
        return UNKNOWN_MATCH;
    int is_match = regexec(&compiled, name, 0, NULL, 0) == 0;
    regfree(&compiled);
    return is_match ? MATCH : NO_MATCH;
}

/* Returns the parenthesis that ends the group at `at`; NULL: none does. */
static const char *end_of_group(const char *at)
{
    int depth = 0;
    for (; *at; at++) {
        if (*at == '\\' && at[1])
            at++;
        else if (*at == '(')
            depth++;
        else if (*at == ')' && --depth == 0)
            return at;
    }
    return NULL;
}

/* Replaces the lookahead at *at: by nothing if the name passes, else by what never matches. Returns
 * 0 if it cannot decide. */
static int replace_lookahead(FILE *out, const char **at, const char *name)
{
    const char *end = end_of_group(*at);
    char *body = NULL;
    if (!end || asprintf(&body, "^(%.*s)", (int)(end - *at - 3), *at + 3) < 0)
        return 0;
    match found = match_plain(body, name);
    free(body);
    if (found == MATCH)
        fputs("(.^)", out);
    *at = end + 1;
    return found != UNKNOWN_MATCH;
}

/*
 * Matches a pattern that may have negative lookaheads at the beginning of the name, as `relay
 * --print-policy` prints them: ^(a|(?!b$)(c.*))$. The lookaheads are at the beginning of
 * alternatives of the one group.
 */
static match match_pattern(const char *pattern, const char *name)
{
    char *plain = NULL;
    size_t size = 0;
    int depth = 0, is_first = 0, is_known = 1;
    if (strncmp(pattern, "^(", 2) != 0 || !strstr(pattern, "(?!"))
        return match_plain(pattern, name);
    FILE *out = must(open_memstream(&plain, &size));
    while (*pattern && is_known) {
        if (depth == 1 && is_first && strncmp(pattern, "(?!", 3) == 0) {
            is_known = replace_lookahead(out, &pattern, name);
            continue; /* the next one is first too */
        }
        if (*pattern == '\\' && pattern[1])
            fputc(*pattern++, out);
        else
            depth += (*pattern == '(') - (*pattern == ')');
        is_first = depth == 1 && (*pattern == '|' || *pattern == '(');
        fputc(*pattern++, out);
    }
    fclose(out);
    match found = is_known ? match_plain(plain, name) : UNKNOWN_MATCH;
    free(plain);
    return found;
}

static int applies_to(const char *kinds, const char *type)
{
    return strcmp(kinds, "all") == 0 || strcmp(kinds, "queues") == 0 ||
           (strncmp(kinds, type, strlen(type)) == 0 && strcmp(kinds + strlen(type), "_queues") == 0);
}

/* Finds the policy of the highest priority that matches; *out is NULL if none does. Returns 0 if it
 * cannot be decided. */
static int find_policy(const json_t *list, const json_t *queue, const json_t **out)
{
    size_t i;
    const json_t *each;
    json_int_t highest = 0, unknown = 0;
    int has_unknown = 0;
    *out = NULL;
    json_array_foreach(list, i, each)
    {
        json_int_t priority = json_integer_value(json_object_get(each, "priority"));
        if (!applies_to(json_text_of(each, "apply-to"), json_text_of(queue, "type")))
            continue;
        match found = match_pattern(json_text_of(each, "pattern"), json_text_of(queue, "name"));
        if (found == MATCH && (!*out || priority > highest)) {
            *out = each;
            highest = priority;
        } else if (found == UNKNOWN_MATCH && (!has_unknown || priority > unknown)) {
            has_unknown = 1;
            unknown = priority;
        }
    }
    return !has_unknown || (*out && highest > unknown);
}

/* An operator policy goes before a policy; of two limits, the lower one holds. */
static json_t *merge(const json_t *policy, const json_t *operator_policy)
{
    const char *key;
    json_t *value, *out = json_object();
    json_object_update(out, json_object_get(policy, "definition"));
    json_object_foreach(json_object_get(operator_policy, "definition"), key, value)
    {
        const json_t *own = json_object_get(out, key);
        if (!json_is_integer(own) || !json_is_integer(value) || json_integer_value(value) < json_integer_value(own))
            json_object_set(out, key, value);
    }
    return out;
}

void policies_apply(const policies *self, json_t *queue)
{
    const json_t *policy, *operator_policy;
    if (!find_policy(self->users, queue, &policy) || !find_policy(self->operators, queue, &operator_policy))
        return;
    json_object_set_new(queue, "policy", json_string(json_text_of(policy, "name")));
    json_object_set_new(queue, "operator_policy", json_string(json_text_of(operator_policy, "name")));
    json_object_set_new(queue, "effective_policy_definition", merge(policy, operator_policy));
}
