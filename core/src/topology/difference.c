#include "topology/difference.h"

#include "base/memory.h"

#include <stdio.h>

enum { LONGEST_TEXT = 255 };

static bh_bytes between(const char *begin, const char *end)
{
    return (bh_bytes){begin, (size_t)(end - begin)};
}

bh__difference bh__read_difference(bh_bytes text)
{
    static const char before_argument[] = "inequivalent arg '", before_received[] = ": received ",
                      before_current[] = " but current is ", cut[] = "...";
    bh__difference found = {.argument = bh_str(""), .received = bh_str(""), .current = bh_str("")};
    const char *end = text.data + text.size;
    found.is_cut = text.size >= LONGEST_TEXT && bh__same(between(end - strlen(cut), end), bh_str(cut));
    const char *argument = bh__find(text, before_argument);
    const char *begin = argument ? argument + strlen(before_argument) : end;
    const char *argument_end = bh__find(between(begin, end), "'");
    if (!argument_end)
        return found;
    found.argument = between(begin, argument_end);
    const char *received = NULL; /* the last one, because a name can contain the text */
    for (const char *at = argument_end; (at = bh__find(between(at, end), before_received));)
        received = at += strlen(before_received);
    end -= found.is_cut ? strlen(cut) : 0;
    const char *current = received && received <= end ? bh__find(between(received, end), before_current) : NULL;
    if (current) {
        found.received = between(received, current);
        found.current = between(current + strlen(before_current), end);
    }
    return found;
}

bh_bytes bh__bare_value(bh_bytes text)
{
    const char *end = text.data + text.size;
    const char *quote = bh__find(text, "'");
    const char *second = quote ? bh__find(between(quote + 1, end), "'") : NULL;
    return second ? between(quote + 1, second) : text;
}

int bh__is_current(const bh__difference *found, const char *before, bh_bytes value, const char *after)
{
    char text[512];
    int size = snprintf(text, sizeof text, "%s%.*s%s", before, (int)value.size, value.data, after);
    bh_bytes all = {text, size < (int)sizeof text ? (size_t)size : sizeof text - 1};
    if (found->is_cut && found->current.size < all.size)
        all.size = found->current.size;
    return bh__same(found->current, all);
}

/*
 * A comparing step must not create anything, even if the queue or exchange is deleted just before
 * it. Therefore it has one argument that the broker reads only to create, and then refuses with
 * 406.
 *
 * Queues: an argument that the type does not support. If the queue exists, the broker compares only
 * supported arguments. Exchanges: an alternate-exchange that is not a string. The broker always
 * finds it different and reports the current one. Seen on RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
 */
bh_bytes bh__blocking_argument(const bh_declaration *step)
{
    if (step->kind == BH_DECLARE_EXCHANGE)
        return bh_str("alternate-exchange");
    return bh_str(bh__same(step->type, bh_str("quorum")) ? "x-max-priority" : "x-delivery-limit");
}
