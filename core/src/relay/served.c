#include "relay/internal.h"

#include "topology/internal.h"

bh_bytes bh__relay_name_of(const bh__relay *self, const bh__served *served)
{
    return bh__store_get(&self->names, served->name);
}

/* Each "*" takes as little as possible; the last one takes more if the rest does not fit. */
int bh__relay_matches(bh_bytes pattern, bh_bytes text)
{
    size_t p = 0, t = 0;
    size_t star = pattern.size, taken = 0; /* the last star, and the end of the text that it takes */
    while (t < text.size) {
        if (p < pattern.size && pattern.data[p] == '*') {
            star = p++;
            taken = t;
        } else if (p < pattern.size && pattern.data[p] == text.data[t]) {
            p++;
            t++;
        } else if (star < pattern.size) {
            p = star + 1;
            t = ++taken;
        } else {
            return 0;
        }
    }
    while (p < pattern.size && pattern.data[p] == '*')
        p++;
    return p == pattern.size;
}

static int ends_in(bh_bytes text, const char *suffix)
{
    size_t size = strlen(suffix);
    return text.size >= size && memcmp(text.data + text.size - size, suffix, size) == 0;
}

/* Returns the part of the name after "<ns>."; "" if it does not begin so. */
static bh_bytes behind_namespace(const bh__relay *self, bh_bytes name)
{
    bh_bytes space = bh__topology_namespace(self->topology);
    if (name.size <= space.size + 1 || memcmp(name.data, space.data, space.size) != 0 || name.data[space.size] != '.')
        return bh_str("");
    return (bh_bytes){name.data + space.size + 1, name.size - space.size - 1};
}

int bh__relay_is_wait_queue(const bh__relay *self, bh_bytes name)
{
    return bh__begins(behind_namespace(self, name), "wait.");
}

int bh__relay_is_own(const bh__relay *self, bh_bytes name)
{
    bh_bytes rest = behind_namespace(self, name);
    return bh__same(rest, bh_str("rejected")) || bh__same(rest, bh_str("unroutable")) ||
           bh__relay_is_wait_queue(self, name);
}

int bh__relay_may_meet_own(const bh__relay *self, const bh__served *served)
{
    bh_bytes pattern = bh__relay_name_of(self, served);
    bh_bytes space = bh__topology_namespace(self->topology);
    size_t same = 0;
    while (same < pattern.size && same < space.size && pattern.data[same] == space.data[same])
        same++;
    return same == space.size || same == pattern.size || pattern.data[same] == '*';
}

const bh__served *bh__relay_find(const bh__relay *self, bh_bytes queue)
{
    int is_for_patterns = !ends_in(queue, ".parked") && !bh__relay_is_own(self, queue);
    const bh__served *by_pattern = NULL;
    if (bh__topology_check_queue_name(queue) != BH_OK)
        return NULL;
    for (size_t i = 0; i < self->served_count; i++) {
        const bh__served *served = &self->served[i];
        bh_bytes name = bh__relay_name_of(self, served);
        if (!served->is_pattern && bh__same(name, queue))
            return served;
        if (served->is_pattern && is_for_patterns && !by_pattern && bh__relay_matches(name, queue))
            by_pattern = served;
    }
    return by_pattern;
}
