#include "ledger/setup.h"

void bh_ledger_set_restores(bh_ledger *self, int on)
{
    if (!self)
        return;
    self->setup.can_declare = on != 0;
    self->setup.is_forgotten &= self->setup.can_declare;
}

/* ---------------------------------------------------------------------------------------- steps */

static int has_publisher(const bh_ledger *self)
{
    for (size_t i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++)
        if (self->publishers[i].number)
            return 1;
    return 0;
}

int bh__ledger_needs_setup(const bh_ledger *self)
{
    const bh__ledger_setup *setup = &self->setup;
    return self->groups[BH__GROUP_DUE].count > 0 &&
           (setup->awaits != BH__SETUP_IDLE || setup->is_forgotten || !has_publisher(self));
}

bh_step_kind bh__ledger_next_setup(bh_ledger *self, int64_t now_ms)
{
    bh__ledger_setup *setup = &self->setup;
    if (setup->awaits != BH__SETUP_IDLE || self->is_blocked || now_ms < setup->back_off.due_ms)
        return BH_STEP_REST;
    if (!has_publisher(self)) {
        setup->awaits = BH__SETUP_OPENING;
        return BH_STEP_OPEN;
    }
    setup->awaits = BH__SETUP_DECLARING;
    setup->is_forgotten = 0; /* from here on, the next loss is a new one */
    return BH_STEP_DECLARE;
}

int64_t bh__ledger_setup_due_ms(const bh_ledger *self)
{
    const bh__ledger_setup *setup = &self->setup;
    int waits = bh__ledger_needs_setup(self) && setup->awaits == BH__SETUP_IDLE && !self->is_blocked;
    return waits && setup->back_off.due_ms > self->now_ms ? setup->back_off.due_ms : INT64_MAX;
}

/* -------------------------------------------------------------------------------------- answers */

static void fail_setup(bh_ledger *self, bh_status status, int64_t now_ms)
{
    self->setup.awaits = BH__SETUP_IDLE;
    self->setup.failure = status;
    self->setup.delay_ms =
        bh__back_off_fail(&self->setup.back_off, self->back_off, bh__draw_number(&self->random), now_ms);
}

void bh__ledger_setup_opened(bh_ledger *self)
{
    if (self->setup.awaits == BH__SETUP_OPENING)
        self->setup.awaits = BH__SETUP_IDLE;
}

void bh_ledger_publisher_failed(bh_ledger *self, bh_status status, int64_t now_ms)
{
    if (self && status != BH_OK && self->setup.awaits == BH__SETUP_OPENING)
        fail_setup(self, status, now_ms);
}

void bh__ledger_setup_declared(bh_ledger *self, bh_status status, int64_t now_ms)
{
    bh__ledger_setup *setup = &self->setup;
    int is_answer = setup->awaits == BH__SETUP_DECLARING;
    if (is_answer && status != BH_OK) {
        setup->is_forgotten = setup->can_declare;
        fail_setup(self, status, now_ms);
    } else if (is_answer) {
        setup->awaits = BH__SETUP_IDLE; /* if it was forgotten meanwhile, it is declared again */
    } else if (status == BH_OK) {
        setup->is_forgotten = 0;
    }
}

void bh__ledger_setup_ended(bh_ledger *self)
{
    bh__ledger_setup *setup = &self->setup;
    if (setup->awaits == BH__SETUP_DECLARING)
        setup->is_forgotten = setup->can_declare;
    setup->awaits = BH__SETUP_IDLE;
    setup->failure = BH_OK;
}
