/*
 * Arguments. A table says what each is checked for and which queues know it. An argument that only
 * other queues know is refused; one that none knows is ignored.
 */
#include "model/arguments.h"

#include "model/closing.h"
#include "model/table.h"

#include <inttypes.h>
#include <stdio.h>

#define SHOWN(bytes) (int)(bytes).size, (bytes).data
#define MOST_TTL_MS INT64_C(315360000000)

typedef enum checking {
    EXPIRES,
    TTL,
    EXCHANGE,
    KEY,
    STRATEGY,
    COUNT,
    PRIORITY,
    OVERFLOW,
    BOOLEAN,
    TYPE,
    SIZE,
    LOCATOR,
    NOTHING
} checking;
enum { CLASSIC = 1, QUORUM = 2, STREAM = 4, SINCE_4_0 = 8, SINCE_4_3 = 16 };

/* Those of newer versions are unknown before: no queue knows them. */
static const struct argument {
    const char *name;
    checking check;
    int queues;
} known[] = {
    {"x-expires", EXPIRES, CLASSIC | QUORUM},
    {"x-message-ttl", TTL, CLASSIC | QUORUM},
    {"x-dead-letter-exchange", EXCHANGE, CLASSIC | QUORUM},
    {"x-dead-letter-routing-key", KEY, CLASSIC | QUORUM},
    {"x-dead-letter-strategy", STRATEGY, QUORUM},
    {"x-max-length", COUNT, CLASSIC | QUORUM},
    {"x-max-length-bytes", COUNT, CLASSIC | QUORUM | STREAM},
    {"x-max-in-memory-length", COUNT, QUORUM},
    {"x-max-in-memory-bytes", COUNT, QUORUM},
    {"x-max-priority", PRIORITY, CLASSIC},
    {"x-overflow", OVERFLOW, CLASSIC | QUORUM},
    {"x-queue-mode", NOTHING, CLASSIC},
    {"x-queue-version", COUNT, CLASSIC},
    {"x-queue-master-locator", NOTHING, CLASSIC},
    {"x-single-active-consumer", BOOLEAN, CLASSIC | QUORUM},
    {"x-queue-type", TYPE, CLASSIC | QUORUM | STREAM},
    {"x-consumer-timeout", COUNT, QUORUM | SINCE_4_3},
    {"x-consumer-disconnected-timeout", COUNT, QUORUM | SINCE_4_3},
    {"x-quorum-initial-group-size", SIZE, QUORUM},
    {"x-delivery-limit", NOTHING, QUORUM},
    {"x-queue-leader-locator", LOCATOR, QUORUM | STREAM},
    {"x-queue-leader-locator", LOCATOR, CLASSIC | SINCE_4_0},
    {"x-delayed-retry-type", NOTHING, QUORUM | SINCE_4_3},
    {"x-delayed-retry-min", NOTHING, QUORUM | SINCE_4_3},
    {"x-delayed-retry-max", NOTHING, QUORUM | SINCE_4_3},
    {"x-max-age", NOTHING, STREAM},
    {"x-stream-max-segment-size-bytes", NOTHING, STREAM},
    {"x-stream-filter-size-bytes", NOTHING, STREAM | SINCE_4_0},
    {"x-initial-cluster-size", NOTHING, STREAM},
};
enum { KNOWN_COUNT = sizeof known / sizeof *known, SHOWN_BYTES = 384 };

static int is_in(const model_version *version, const struct argument *argument)
{
    return (!(argument->queues & SINCE_4_0) || !version->reads_death_header) &&
           (!(argument->queues & SINCE_4_3) || version->has_delayed_retry);
}

/* Returns which queues know an argument: 0 if none does. */
static int queues_of(const model_version *version, bh_bytes name)
{
    int queues = 0;
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        if (is_in(version, &known[i]) && bh__same(name, bh_str(known[i].name)))
            queues |= known[i].queues & (CLASSIC | QUORUM | STREAM);
    return queues;
}

int model_arguments_are_quorum(bh_bytes arguments)
{
    model_field field;
    if (!model_table_find(arguments, "x-queue-type", &field))
        return 0;
    if (field.type == 'S' && bh__same(field.value, bh_str("quorum")))
        return 1;
    return field.type == 'S' && (bh__same(field.value, bh_str("classic")) || field.value.size == 0) ? 0 : -1;
}

/* A fault of an argument, as Erlang writes it. */
typedef struct fault {
    char text[256];
} fault;

static int check_integer(const model_field *field, int64_t least, int64_t most, const char *zero, fault *out)
{
    int64_t number = 0;
    if (!model_field_integer(field, &number))
        snprintf(out->text, sizeof out->text, "\"expected integer, got %s\"", model_field_type(field));
    else if (number == 0 && least > 0)
        snprintf(out->text, sizeof out->text, "{value_zero,0}");
    else if (number < least)
        snprintf(out->text, sizeof out->text, "{value_negative,%" PRId64 "}", number);
    else if (number > most)
        snprintf(out->text, sizeof out->text, "{%s,%" PRId64 "}", zero, number);
    else
        return 1;
    return 0;
}

static int check_word(const model_field *field, const char *const *words, const char *name, fault *out)
{
    if (field->type != 'S') {
        snprintf(out->text, sizeof out->text, "{unacceptable_type,%s}", model_field_type(field));
        return 0;
    }
    for (; *words; words++)
        if (bh__same(field->value, bh_str(*words)))
            return 1;
    snprintf(out->text, sizeof out->text, "%s", name);
    return 0;
}

static int check_type(const model_field *field, fault *out)
{
    static const char *const types[] = {"classic", "quorum", "stream", NULL};
    int is_known = check_word(field, types, "", out);
    if (!is_known && field->type == 'S')
        snprintf(out->text, sizeof out->text, "\"unsupported queue type '%.*s'\"", SHOWN(field->value));
    return is_known;
}

static int check_value(checking check, const model_field *field, bh_bytes arguments, fault *out)
{
    static const char *const strategies[] = {"at-most-once", "at-least-once", NULL};
    static const char *const overflows[] = {"drop-head", "reject-publish", "reject-publish-dlx", NULL};
    static const char *const locators[] = {"client-local", "balanced", "random", "least-leaders", NULL};
    model_field other;
    switch (check) {
    case EXPIRES:
        return check_integer(field, 1, MOST_TTL_MS, "value_too_large", out);
    case TTL:
        return check_integer(field, 0, MOST_TTL_MS, "value_too_large", out);
    case SIZE:
        return check_integer(field, 1, INT64_MAX, "", out);
    case COUNT:
        return check_integer(field, 0, INT64_MAX, "", out);
    case PRIORITY:
        return check_integer(field, 0, 255, "max_value_exceeded", out);
    case STRATEGY:
        return check_word(field, strategies, "invalid_dlx_strategy", out);
    case OVERFLOW:
        return check_word(field, overflows, "invalid_overflow", out);
    case LOCATOR:
        return check_word(field, locators, "invalid_queue_locator_arg", out);
    case TYPE:
        return check_type(field, out);
    case KEY:
        if (field->type == 'S' && !model_table_find(arguments, "x-dead-letter-exchange", &other)) {
            snprintf(out->text, sizeof out->text, "routing_key_but_no_dlx_defined");
            return 0;
        }
        break;
    case BOOLEAN:
        if (field->type == 't')
            return 1;
        break;
    case EXCHANGE:
    case NOTHING:
        break;
    }
    if (check == NOTHING || (field->type == 'S' && check != BOOLEAN))
        return 1;
    snprintf(out->text, sizeof out->text, "{unacceptable_type,%s}", model_field_type(field));
    return 0;
}

static int refuse_value(model_channel *channel, bh_bytes queue, const char *name, const fault *problem)
{
    model_refuse(channel, 406, "invalid arg '%s' for queue '%.*s' in vhost '%s': %s", name, SHOWN(queue),
                 channel->link->vhost->text, problem->text);
    return 0;
}

/* Refuses an argument that another type of queue knows. */
static int check_keys(model_channel *channel, bh_bytes queue, bh_bytes arguments, int own)
{
    model_field field;
    const model_version *version = channel->link->broker->version;
    static const char *const modules[] = {"", "rabbit_classic_queue", "rabbit_quorum_queue"};
    for (bh_bytes rest = arguments; model_table_next(&rest, &field) > 0;) {
        int queues = queues_of(version, field.name);
        if (queues == 0 || (queues & own))
            continue;
        model_refuse(channel, 406, "invalid arg '%.*s' for queue '%.*s' in vhost '%s' of queue type %s",
                     SHOWN(field.name), SHOWN(queue), channel->link->vhost->text, modules[own]);
        return 0;
    }
    return 1;
}

int model_arguments_check(model_channel *channel, bh_bytes queue, bh_bytes arguments)
{
    model_field field;
    fault problem;
    if (model_table_find(arguments, "x-queue-type", &field) && field.value.size > 0 && !check_type(&field, &problem))
        return refuse_value(channel, queue, "x-queue-type", &problem);
    int is_quorum = model_arguments_are_quorum(arguments), own = is_quorum ? QUORUM : CLASSIC;
    if (is_quorum < 0) {
        model_refuse(channel, 540, "queues of type stream are not in this model of RabbitMQ");
        return 0;
    }
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        if ((known[i].queues & own) && is_in(channel->link->broker->version, &known[i]) && known[i].check != TYPE &&
            model_table_find(arguments, known[i].name, &field) &&
            !check_value(known[i].check, &field, arguments, &problem))
            return refuse_value(channel, queue, known[i].name, &problem);
    return check_keys(channel, queue, arguments, own);
}

int model_arguments_check_consumer(model_channel *channel, const model_queue *queue, bh_bytes arguments)
{
    model_field field;
    fault problem;
    if (model_table_find(arguments, "x-priority", &field) && !check_integer(&field, INT64_MIN, INT64_MAX, "", &problem))
        return refuse_value(channel, queue->name, "x-priority", &problem);
    if (!channel->link->broker->version->cancels_on_timeout ||
        !model_table_find(arguments, "x-consumer-timeout", &field))
        return 1;
    if (!queue->is_quorum) {
        model_refuse(channel, 406, "invalid arg 'x-consumer-timeout' for queue '%.*s' in vhost '%s' of queue type %s",
                     SHOWN(queue->name), queue->vhost->text, "rabbit_classic_queue");
        return 0;
    }
    return check_integer(&field, 0, INT64_MAX, "", &problem) ||
           refuse_value(channel, queue->name, "x-consumer-timeout", &problem);
}

/* Writes a value as RabbitMQ does; with its type if only one of two is there. */
static void show_value(char out[SHOWN_BYTES], const model_field *field, int with_type)
{
    int64_t number = 0;
    char value[SHOWN_BYTES - 64];
    if (!field) {
        snprintf(out, SHOWN_BYTES, "none");
        return;
    }
    if (model_field_integer(field, &number))
        snprintf(value, sizeof value, "%" PRId64, number);
    else if (field->type == 't')
        snprintf(value, sizeof value, "%s", field->value.data[0] ? "true" : "false");
    else
        snprintf(value, sizeof value, "%.*s", SHOWN(field->value));
    if (with_type)
        snprintf(out, SHOWN_BYTES, "the value '%s' of type '%s'", value, model_field_type(field));
    else
        snprintf(out, SHOWN_BYTES, "'%s'", value);
}

static int is_same_value(const model_field *one, const model_field *other)
{
    int64_t first, second;
    if (model_field_integer(one, &first) && model_field_integer(other, &second))
        return first == second;
    return one->type == other->type && bh__same(one->value, other->value);
}

static int is_classic(const model_field *field)
{
    return field->type == 'S' && bh__same(field->value, bh_str("classic"));
}

int model_arguments_compare_one(model_channel *channel, const char *kind, bh_bytes name, bh_bytes current,
                                bh_bytes received, const char *key)
{
    model_field old, new;
    char old_text[SHOWN_BYTES], new_text[SHOWN_BYTES];
    int has_old = model_table_find(current, key, &old), has_new = model_table_find(received, key, &new);
    if ((!has_old && !has_new) || (has_old && has_new && is_same_value(&old, &new)))
        return 1;
    if (has_old != has_new && strcmp(key, "x-queue-type") == 0) {
        model_field *missing = has_old ? &new : &old;
        if (is_classic(has_old ? &old : &new))
            return 1;
        if (channel->link->broker->version->adds_queue_type) {
            *missing = (model_field){.type = 'S', .value = bh_str("classic")};
            has_old = has_new = 1;
        }
    }
    int with_type = !has_old || !has_new;
    show_value(old_text, has_old ? &old : NULL, with_type);
    show_value(new_text, has_new ? &new : NULL, with_type);
    model_refuse(channel, 406, "inequivalent arg '%s' for %s '%.*s' in vhost '%s': received %s but current is %s", key,
                 kind, SHOWN(name), channel->link->vhost->text, new_text, old_text);
    return 0;
}

int model_arguments_compare_text(model_channel *channel, const char *kind, bh_bytes name, const char *key,
                                 const char *current, const char *received)
{
    if (strcmp(current, received) == 0)
        return 1;
    model_refuse(channel, 406, "inequivalent arg '%s' for %s '%.*s' in vhost '%s': received '%s' but current is '%s'",
                 key, kind, SHOWN(name), channel->link->vhost->text, received, current);
    return 0;
}

/* RabbitMQ compares in this order. */
static const char *const classic_order[] = {"x-expires",
                                            "x-message-ttl",
                                            "x-dead-letter-exchange",
                                            "x-dead-letter-routing-key",
                                            "x-max-length",
                                            "x-max-length-bytes",
                                            "x-max-priority",
                                            "x-overflow",
                                            "x-queue-mode",
                                            "x-queue-version",
                                            "x-single-active-consumer",
                                            "x-queue-type",
                                            "x-queue-master-locator",
                                            "x-queue-leader-locator",
                                            NULL};
static const char *const quorum_order[] = {"x-dead-letter-exchange",
                                           "x-dead-letter-routing-key",
                                           "x-dead-letter-strategy",
                                           "x-expires",
                                           "x-max-length",
                                           "x-max-length-bytes",
                                           "x-max-in-memory-length",
                                           "x-max-in-memory-bytes",
                                           "x-overflow",
                                           "x-single-active-consumer",
                                           "x-queue-type",
                                           "x-quorum-initial-group-size",
                                           "x-delivery-limit",
                                           "x-message-ttl",
                                           "x-queue-leader-locator",
                                           "x-consumer-disconnected-timeout",
                                           "x-consumer-timeout",
                                           "x-delayed-retry-type",
                                           "x-delayed-retry-min",
                                           "x-delayed-retry-max",
                                           NULL};

int model_arguments_compare(model_channel *channel, const model_queue *queue, bh_bytes arguments)
{
    const model_version *version = channel->link->broker->version;
    const char *const *order = queue->is_quorum ? quorum_order : classic_order;
    for (; *order; order++)
        if ((queues_of(version, bh_str(*order)) & (queue->is_quorum ? QUORUM : CLASSIC)) &&
            !model_arguments_compare_one(channel, "queue", queue->name, queue->arguments, arguments, *order))
            return 0;
    return 1;
}
