#include "plan/internal.h"

#include <backhop/adapter/replay.h>

enum {
    REREAD_MS = BH_LOOK_MS / 2, /* less than between two looks, so that each look reads */
    REREAD_MS_PER_MESSAGE = 360 /* an hour for BH_REPLAY_MOST_SHARED messages */
};

int64_t bh_replay_limit(int64_t behind, int is_shared)
{
    return is_shared && behind >= BH_REPLAY_MOST_SHARED ? BH_REPLAY_MOST_SHARED : behind + 1;
}

int bh_replay_goes_on(bh_status status, int is_queue)
{
    if (is_queue)
        return status == BH_ERR_MISSING || status == BH_ERR_ACCESS;
    return status == BH_ERR_FRAME || status == BH_ERR_CONTENT || status == BH_ERR_CHANNEL;
}

int bh_replay_after_look(bh_mode mode, bh_status looked)
{
    return mode != BH_MODE_NONE && (looked == BH_OK || (mode == BH_MODE_CREATE && looked == BH_ERR_MISSING));
}

int64_t bh_replay_pause_ms(int64_t foreign)
{
    int64_t most = foreign < BH_REPLAY_MOST_SHARED ? foreign : BH_REPLAY_MOST_SHARED;
    int64_t pause_ms = most * REREAD_MS_PER_MESSAGE;
    return pause_ms > REREAD_MS ? pause_ms : REREAD_MS;
}

#define CAUSE "these retries came back to no queue, as their binding was missing or the broker could not read it"

bh_bytes bh_replay_unroutable_text(bh_mode mode)
{
    return bh_str(mode == BH_MODE_CREATE ? CAUSE : CAUSE "; if this goes on, declare the topology of this queue");
}
