#include "history/internal.h"

uint64_t bh__history_fingerprint(const bh_history *self, bh__siphash_key key, bh_bytes queue, bh_bytes body)
{
    bh_past past;
    bh_bytes id = bh__history_id(self);
    if (!id.size)
        return 0;
    bh_history_past(self, &past);
    const uint64_t parts[] = {
        bh__siphash(key, queue),
        bh__siphash(key, id),
        bh__siphash(key, bh__history_exchange(self)),
        bh__siphash(key, bh__history_routing_key(self)),
        bh__siphash(key, body),
        past.source == BH_SOURCE_DELIVERY_COUNT ? 0 : (uint64_t)past.attempts,
        (uint64_t)past.deferrals,
        (uint64_t)past.replays,
    };
    uint64_t sum = bh__siphash(key, (bh_bytes){(const char *)parts, sizeof parts});
    return sum ? sum : 1;
}
