/* History, as the plan sees it. Internal. */
#ifndef BACKHOP_HISTORY_INTERNAL_H
#define BACKHOP_HISTORY_INTERNAL_H

#include <backhop/history.h>

/* 1 after the last bh_history_read went well. */
int bh__history_is_read(const bh_history *self);

#endif
