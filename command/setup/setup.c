#include "setup/setup.h"

#include "common/config.h"
#include "common/output.h"
#include "setup/words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

_Noreturn static void refuse(const char *where, const words_error *error)
{
    options_refuse("%s%s%s", where ? where : "", where ? ": " : "", error->text);
}

int setup_word(const char *name, const char *text, const char *const *words, size_t count)
{
    words_error error;
    int word = words_find(name, text, words, count, &error);
    if (word < 0)
        refuse(NULL, &error);
    return word;
}

int64_t setup_number(const char *name, const char *text, int64_t lowest, int64_t highest)
{
    words_error error;
    int64_t number;
    if (!words_number(name, text, lowest, highest, &number, &error))
        refuse(NULL, &error);
    return number;
}

/* --------------------------------------------------------------------------------------- policy */

static bh_policy *new_policy(void)
{
    bh_policy *policy = NULL;
    if (bh_policy_new(&policy) != BH_OK)
        must(NULL);
    return policy;
}

static void set_policy_or_end(bh_policy *policy, const char *name, const char *text)
{
    words_error error;
    if (text && words_set_policy(policy, name, text, &error) == WORDS_REFUSED)
        refuse(NULL, &error);
}

/* Returns a value as an option's text: "10s" and 8 as they are, ["1s", "5s"] with commas between.
 * NULL: it is another. The caller frees it. */
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
    words_error error;
    const char *place = NULL;
    char *text = option_text(value, &place);
    config_at(place);
    if (!text)
        options_refuse("%s: %s: a text, a number or a list of texts is wanted", where, key);
    if (json_is_array(value) && strcmp(key, "steps") != 0)
        options_refuse("%s: %s: one value is wanted, and not a list", where, key);
    words_result result = words_set_policy(policy, key, text, &error);
    if (result == WORDS_UNKNOWN)
        options_refuse("%s: there is no '%s' in a policy; the names are those of the options", where, key);
    if (result == WORDS_REFUSED)
        refuse(error.is_of_core ? where : NULL, &error);
    config_at(NULL);
    free(text);
}

/* Returns the kind of policy that the fields decide: their own, or steps if they have steps. NULL:
 * they decide none. */
static const char *kind_of(const json_t *fields)
{
    const json_t *kind = json_object_get(fields, "kind");
    if (kind)
        return json_is_string(kind) ? json_string_value(kind) : "";
    return json_object_get(fields, "steps") ? "steps" : NULL;
}

int setup_is_policy_field(const char *name)
{
    bh_policy *policy = new_policy();
    words_error error;
    int is_field = words_set_policy(policy, name, "", &error) != WORDS_UNKNOWN;
    bh_policy_free(policy);
    return is_field;
}

/* Returns 1 if the kind uses the field, or if it is no kind, which is refused later. */
static int uses(const char *kind, const char *field)
{
    words_error error;
    if (strcmp(field, "steps") == 0)
        return strcmp(kind, "steps") == 0;
    bh_policy *policy = new_policy();
    int is_used = words_set_policy(policy, "kind", kind, &error) != WORDS_SET ||
                  words_check_used(policy, strcmp(field, "initial") == 0, strcmp(field, "factor") == 0, &error);
    bh_policy_free(policy);
    return is_used;
}

/* Removes the kind, and the fields that `kind`, which replaces it, does not use. */
static void replace_kind(json_t *fields, const char *kind)
{
    static const char *const names[] = {"initial", "factor", "steps"};
    json_object_del(fields, "kind");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!uses(kind, names[i]))
            json_object_del(fields, names[i]);
}

void setup_merge_policy(json_t *fields, json_t *own)
{
    const char *kind = kind_of(own);
    if (kind)
        replace_kind(fields, kind);
    json_object_update(fields, own);
}

static json_t *read_file(const char *file)
{
    json_error_t error;
    json_t *fields = json_load_file(file, JSON_REJECT_DUPLICATES, &error);
    if (!fields && json_error_code(&error) == json_error_cannot_open_file) {
        complain("%s cannot be read: %s", file, strerror(errno));
        exit(EX_NOINPUT);
    }
    if (!fields) {
        complain("%s: %s (line %d)", file, error.text, error.line);
        exit(EX_DATAERR);
    }
    if (!json_is_object(fields))
        options_refuse("%s: a JSON object is wanted, as {\"initial\": \"10s\", \"max-attempts\": 8}", file);
    return fields;
}

bh_policy *setup_policy(const policy_options *o)
{
    json_t *fields = o->file ? read_file(o->file) : must(json_object());
    bh_policy *policy = setup_policy_over(o, fields, o->file);
    json_decref(fields);
    return policy;
}

bh_policy *setup_policy_over(const policy_options *o, json_t *fields, const char *where)
{
    bh_policy *policy = new_policy();
    const char *key;
    json_t *value;
    words_error error;
    if (o->kind || o->steps)
        replace_kind(fields, o->kind ? o->kind : "steps");
    if (o->steps)
        json_object_del(fields, "steps");
    int has_kind = o->kind || json_object_get(fields, "kind");
    if (!has_kind && (o->steps || json_object_get(fields, "steps")))
        set_policy_or_end(policy, "kind", "steps");
    json_object_foreach(fields, key, value)
    {
        set_policy_json(policy, key, value, where);
    }
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
    int has_initial = o->initial || json_object_get(fields, "initial");
    int has_factor = o->factor || json_object_get(fields, "factor");
    if (!words_check_used(policy, has_initial, has_factor, &error) || !words_check_policy(policy, &error))
        refuse(where, &error);
    return policy;
}

/* ------------------------------------------------------------------------------------- topology */

bh_queue_type setup_queue_type(const char *name, const char *text)
{
    static const char *const words[] = {"quorum", "classic"};
    return setup_word(name, text, words, 2) ? BH_QUEUE_CLASSIC : BH_QUEUE_QUORUM;
}

static void set_topology(bh_topology *topology, const char *name, const char *text)
{
    words_error error;
    if (text && words_set_topology(topology, name, text, &error) != WORDS_SET)
        refuse(NULL, &error);
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
    set_topology(topology, "strategy", options->strategy);
    set_topology(topology, "queue-type", options->queue_type);
    set_topology(topology, "namespace", options->ns);
    set_topology(topology, "series", options->series);
    set_topology(topology, "stripes", options->stripes);
    set_topology(topology, "work-queue", options->work_queue_type);
    words_error error;
    if (!words_build(topology, policy, &error))
        refuse(NULL, &error);
    return topology;
}
