#include "plan/internal.h"

#include <backhop/adapter/replay.h>

enum { REREAD_MS = 60000, REREAD_MS_PER_MESSAGE = 360 }; /* an hour for BH_REPLAY_MOST_SHARED messages */

int64_t bh_replay_limit(int64_t behind, int is_shared)
{
    return is_shared && behind >= BH_REPLAY_MOST_SHARED ? BH_REPLAY_MOST_SHARED : behind + 1;
}

int bh_replay_skips_message(bh_status status)
{
    return status == BH_ERR_FRAME || status == BH_ERR_CONTENT || status == BH_ERR_CHANNEL;
}

int bh_replay_skips_queue(bh_status status)
{
    return status == BH_ERR_MISSING || status == BH_ERR_ACCESS;
}

int64_t bh__replay_pause_ms(int64_t foreign)
{
    int64_t pause_ms = foreign * REREAD_MS_PER_MESSAGE;
    return pause_ms > REREAD_MS ? pause_ms : REREAD_MS;
}
