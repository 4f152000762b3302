/* Texts, wait queues and problems of a history, which its other files share. */
#include "history/data.h"

int bh__history_is_wait_queue(const bh_history *self, bh_bytes queue)
{
    const bh__queue_names *queues = &self->wait_queues;
    for (size_t i = 0; i < queues->count; i++)
        if (bh__same(bh__store_get(&queues->store, queues->items[i]), queue))
            return 1;
    return 0;
}

bh_bytes bh__history_text(const bh_history *self, bh__text text)
{
    return self ? bh__store_get(&self->store, text) : bh_str("");
}

void bh__history_add_problem(bh_history *self, bh_bytes header, const char *what)
{
    if (self->problem_count == BH_HISTORY_MOST_PROBLEMS)
        return;
    if (bh__store_join(&self->store, &self->problems[self->problem_count], header, bh_str(": "), bh_str(what)))
        self->problem_count++;
    else
        self->no_memory = 1;
}
