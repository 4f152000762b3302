/*
 * Reads the headers that Backhop or the application wrote. Headers are untrusted: each problem is
 * recorded, and the header is ignored.
 */
#include "delivery/internal.h"
#include "history/data.h"
#include "base/traceparent.h"

const bh_bytes bh__header_names[BH__HEADER_COUNT] = {
    [BH__HEADER_ATTEMPTS] = BH__LITERAL("backhop-attempts"),
    [BH__HEADER_FIRST_FAILURE] = BH__LITERAL("backhop-first-failure"),
    [BH__HEADER_DELAY] = BH__LITERAL("backhop-delay"),
    [BH__HEADER_DUE] = BH__LITERAL("backhop-due"),
    [BH__HEADER_ERROR] = BH__LITERAL("backhop-error"),
    [BH__HEADER_ID] = BH__LITERAL("backhop-id"),
    [BH__HEADER_EXCHANGE] = BH__LITERAL("backhop-exchange"),
    [BH__HEADER_ROUTING_KEY] = BH__LITERAL("backhop-routing-key"),
    [BH__HEADER_PARKED] = BH__LITERAL("backhop-parked"),
    [BH__HEADER_DEFERRALS] = BH__LITERAL("backhop-deferrals"),
    [BH__HEADER_CRASHES] = BH__LITERAL("backhop-crashes"),
    [BH__HEADER_REPLAYS] = BH__LITERAL("backhop-replays"),
    [BH__HEADER_TRACEPARENT] = BH__LITERAL("backhop-traceparent"),
    [BH__HEADER_X_DEATH] = BH__LITERAL("x-death"),
    [BH__HEADER_DELIVERY_COUNT] = BH__LITERAL("x-delivery-count"),
    [BH__HEADER_ACQUIRED_COUNT] = BH__LITERAL("x-acquired-count"),
    [BH__HEADER_FIRST_DEATH] = BH__LITERAL("x-first-death-queue"),
    [BH__HEADER_FIRST_DEATH + 1] = BH__LITERAL("x-first-death-reason"),
    [BH__HEADER_FIRST_DEATH + 2] = BH__LITERAL("x-first-death-exchange"),
    [BH__HEADER_LAST_DEATH] = BH__LITERAL("x-last-death-queue"),
    [BH__HEADER_LAST_DEATH + 1] = BH__LITERAL("x-last-death-reason"),
    [BH__HEADER_LAST_DEATH + 2] = BH__LITERAL("x-last-death-exchange"),
};

void bh__headers_find(bh__headers *self)
{
    const bh__tree *tree = &self->tree;
    for (size_t i = 0; i < tree->count; i = tree->nodes[i].end) {
        size_t at = bh__find_name(bh__header_names, BH__HEADER_COUNT, bh__store_get(tree->store, tree->nodes[i].name));
        if (at < BH__HEADER_COUNT && !self->found[at])
            self->found[at] = &tree->nodes[i];
    }
}

int64_t bh__headers_number(bh_history *self, const bh__headers *in, bh__header header, int64_t most)
{
    const bh__node *node = in->found[header];
    if (!node)
        return -1;
    if (!bh__is_integer(node->type))
        bh__history_add_problem(self, bh__header_names[header], "not an integer, ignored");
    else if (node->number < 0)
        bh__history_add_problem(self, bh__header_names[header], "negative, ignored");
    else if (node->number > most)
        bh__history_add_problem(self, bh__header_names[header], "absurdly high, ignored");
    else
        return node->number;
    return -1;
}

bh__text bh__headers_string(bh_history *self, const bh__headers *in, bh__header header, size_t most, bh__text other)
{
    const bh__node *node = in->found[header];
    if (!node)
        return other;
    if (node->type != BH_TYPE_STRING)
        bh__history_add_problem(self, bh__header_names[header], "not a string, ignored");
    else if (node->string.size > most)
        bh__history_add_problem(self, bh__header_names[header], "too long, ignored");
    else
        return node->string;
    return other;
}

bh__text bh__headers_short_string(bh_history *self, const bh__headers *in, bh__header header)
{
    return bh__headers_string(self, in, header, BH__SHORT_STRING_BYTES, BH__NO_TEXT);
}

bh__text bh__headers_error(bh_history *self, const bh__headers *in)
{
    bh__text text = bh__headers_string(self, in, BH__HEADER_ERROR, SIZE_MAX, BH__NO_TEXT);
    if (text.size <= BH_HISTORY_MOST_ERROR_BYTES)
        return text;
    bh_bytes cut = bh__cut(bh__store_get(in->tree.store, text), BH_HISTORY_MOST_ERROR_BYTES);
    if (!bh__store_add(&self->store, &text, cut))
        self->no_memory = 1;
    return text;
}

bh__text bh__headers_traceparent(bh_history *self, const bh__headers *in)
{
    bh__text text = bh__headers_string(self, in, BH__HEADER_TRACEPARENT, SIZE_MAX, BH__NO_TEXT);
    if (!text.size || bh__is_traceparent(bh__store_get(in->tree.store, text)))
        return text;
    bh__history_add_problem(self, bh__header_names[BH__HEADER_TRACEPARENT], "no traceparent of W3C, ignored");
    return BH__NO_TEXT;
}

int64_t bh__headers_legacy_counter(bh_history *self, const bh_delivery *delivery)
{
    bh_bytes name = bh__store_get(&self->settings, self->legacy_counter);
    const bh__node *node = name.size ? bh__delivery_header(delivery, name) : NULL;
    if (!node)
        return -1;
    int64_t count = -1;
    if (bh__is_integer(node->type)) {
        count = node->number;
    } else if (node->type == BH_TYPE_STRING && node->string.size > 0 && node->string.size <= 10) {
        bh_bytes digits = bh__store_get(bh__delivery_tree(delivery).store, node->string);
        count = 0;
        for (size_t i = 0; i < digits.size && count >= 0; i++)
            count = digits.data[i] >= '0' && digits.data[i] <= '9' ? count * 10 + (digits.data[i] - '0') : -1;
    }
    if (count >= 0 && count <= BH_HISTORY_MOST_ATTEMPTS)
        return count;
    bh__history_add_problem(self, name, "not a count of failures, ignored");
    return -1;
}
