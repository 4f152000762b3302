/* Route: the queues that a message goes to, over exchanges of exchanges and alternate exchanges. */
#include "model/exchange.h"

#include "model/queue.h"
#include "model/table.h"

#include <stdlib.h>

void model_route_free(model_route *self)
{
    free(self->queues);
    free(self->exchanges);
    *self = (model_route){.queues = NULL};
}

static int add_queue(model_route *self, model_queue *queue, unsigned number)
{
    if (queue->route == number)
        return 1;
    void *queues = self->queues;
    int is_there = bh__reserve(&queues, &self->capacity, sizeof *self->queues, self->count + 1);
    self->queues = queues;
    if (!is_there)
        return 0;
    queue->route = number;
    self->queues[self->count++] = queue;
    return 1;
}

static int add_exchange(model_route *self, model_exchange *exchange, unsigned number)
{
    if (exchange->route == number)
        return 1;
    void *exchanges = self->exchanges;
    int is_there = bh__reserve(&exchanges, &self->exchange_capacity, sizeof *self->exchanges, self->exchange_count + 1);
    self->exchanges = exchanges;
    if (!is_there)
        return 0;
    exchange->route = number;
    self->exchanges[self->exchange_count++] = exchange;
    return 1;
}

/* Splits the first word off a text. Returns 0 if there is none. */
static int next_word(bh_bytes *rest, int *is_at_end, bh_bytes *word)
{
    if (*is_at_end)
        return 0;
    const char *dot = rest->size ? memchr(rest->data, '.', rest->size) : NULL;
    word->data = rest->data;
    word->size = dot ? (size_t)(dot - rest->data) : rest->size;
    *is_at_end = !dot;
    size_t skipped = word->size + (dot != NULL);
    rest->data += skipped;
    rest->size -= skipped;
    return 1;
}

/* A place in a text of words. */
typedef struct words {
    bh_bytes rest;
    int is_at_end;
} words;

static words words_of(bh_bytes text)
{
    return (words){text, text.size == 0};
}

/* Matches a topic: * is one word, # any number of words. After a mismatch the last # takes one word
 * more. */
static int is_topic(bh_bytes pattern, bh_bytes key)
{
    words of_pattern = words_of(pattern), of_key = words_of(key), back_pattern = of_pattern, back_key = of_key;
    int has_hash = 0;
    for (;;) {
        words key_before = of_key;
        bh_bytes wanted, word;
        int has_wanted = next_word(&of_pattern.rest, &of_pattern.is_at_end, &wanted);
        if (has_wanted && bh__same(wanted, bh_str("#"))) {
            has_hash = 1;
            back_pattern = of_pattern;
            back_key = key_before;
            continue;
        }
        int has_word = next_word(&of_key.rest, &of_key.is_at_end, &word);
        if (!has_wanted && !has_word)
            return 1;
        if (has_wanted && has_word && (bh__same(wanted, bh_str("*")) || bh__same(wanted, word)))
            continue;
        if (!has_hash || !next_word(&back_key.rest, &back_key.is_at_end, &word))
            return 0;
        of_pattern = back_pattern;
        of_key = back_key;
    }
}

static int is_same_value(const model_field *wanted, bh_bytes headers)
{
    model_field field;
    char name[256];
    if (wanted->name.size >= sizeof name)
        return 0;
    memcpy(name, wanted->name.data, wanted->name.size);
    name[wanted->name.size] = '\0';
    if (strlen(name) != wanted->name.size || !model_table_find(headers, name, &field))
        return 0;
    if (wanted->type == 'V')
        return 1;
    int64_t one, other;
    if (model_field_integer(wanted, &one) && model_field_integer(&field, &other))
        return one == other;
    return wanted->type == field.type && bh__same(wanted->value, field.value);
}

/* Matches the arguments of a binding to a headers exchange. */
static int is_match(bh_bytes arguments, bh_bytes headers)
{
    model_field field;
    bh_bytes how = bh_str("all");
    if (model_table_find(arguments, "x-match", &field) && field.type == 'S')
        how = field.value;
    int is_any = bh__begins(how, "any"), with_x = bh__find(how, "-with-x") != NULL, is_one = 0;
    for (bh_bytes rest = arguments; model_table_next(&rest, &field) > 0;) {
        if (bh__same(field.name, bh_str("x-match")) || (!with_x && bh__begins(field.name, "x-")))
            continue;
        int is_same = is_same_value(&field, headers);
        if (!is_same && !is_any)
            return 0;
        is_one = is_one || is_same;
    }
    return !is_any || is_one;
}

static int is_matched(const model_exchange *exchange, const model_binding *binding, const model_message *message,
                      bh_bytes headers)
{
    if (exchange->type[0] == 'f')
        return 1;
    if (exchange->type[0] == 'h')
        return is_match(binding->arguments, headers);
    for (size_t i = 0; i < message->key_count; i++) {
        bh_bytes key = model_message_key(message, i);
        if (exchange->type[0] == 't' ? is_topic(binding->key, key) : bh__same(binding->key, key))
            return 1;
    }
    return 0;
}

/* Adds the queues that the default exchange routes to. */
static int visit_default(model_exchange *exchange, const model_message *message, model_route *out, unsigned number)
{
    for (size_t i = 0; i < message->key_count; i++) {
        model_queue *queue = model_names_find(&exchange->vhost->queues, model_message_key(message, i));
        if (queue && !add_queue(out, queue, number))
            return 0;
    }
    return 1;
}

static int visit(model_exchange *exchange, const model_message *message, bh_bytes headers, model_route *out,
                 unsigned number)
{
    int is_one = 0;
    for (size_t i = 0; i < exchange->binding_count; i++) {
        const model_binding *binding = &exchange->bindings[i];
        if (!is_matched(exchange, binding, message, headers))
            continue;
        is_one = 1;
        if (!(binding->queue ? add_queue(out, binding->queue, number) : add_exchange(out, binding->exchange, number)))
            return 0;
    }
    model_exchange *alternate =
        !is_one && exchange->alternate.size ? model_exchange_find(exchange->vhost, exchange->alternate) : NULL;
    return !alternate || add_exchange(out, alternate, number);
}

int model_exchange_route(model_exchange *self, const model_message *message, model_route *out)
{
    int is_there;
    unsigned number = ++self->vhost->broker->routes;
    bh_bytes headers = model_message_headers(message, &is_there);
    *out = (model_route){.queues = NULL};
    int is_routed = add_exchange(out, self, number);
    for (size_t i = 0; i < out->exchange_count && is_routed; i++) {
        model_exchange *exchange = out->exchanges[i];
        is_routed = exchange->name.size ? visit(exchange, message, headers, out, number)
                                        : visit_default(exchange, message, out, number);
    }
    return is_routed;
}
