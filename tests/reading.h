/* Structs of the interface as results, and headers as arguments, for the tests. */
#ifndef BACKHOP_TESTS_READING_H
#define BACKHOP_TESTS_READING_H

#include <backhop/adapter/plan.h>
#include <backhop/adapter/silence.h>

/* Pushes a header, or begins a table or an array. The text of a string ends before its zero
 * byte. */
static inline bh_status push_int(bh_delivery *delivery, const char *name, int64_t value)
{
    return bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_INT64, .name = bh_str(name), .integer = value});
}

static inline bh_status push_text(bh_delivery *delivery, const char *name, const char *value)
{
    return bh_delivery_push(delivery,
                            &(bh_value){.type = BH_TYPE_STRING, .name = bh_str(name), .string = bh_str(value)});
}

static inline bh_status push_open(bh_delivery *delivery, bh_type type, const char *name)
{
    return bh_delivery_push(delivery, &(bh_value){.type = type, .name = bh_str(name)});
}

static inline bh_value header_of(const bh_delivery *delivery, bh_bytes name)
{
    bh_value value;
    bh_delivery_header(delivery, name, &value);
    return value;
}

static inline bh_value value_at(const bh_delivery *delivery, size_t index)
{
    bh_value value;
    bh_delivery_value(delivery, index, &value);
    return value;
}

static inline bh_silence_view silence_view_of(const bh_silence *silence)
{
    bh_silence_view view;
    bh_silence_read(silence, &view);
    return view;
}

static inline bh_delivery_view delivery_view_of(const bh_delivery *delivery)
{
    bh_delivery_view view;
    bh_delivery_read(delivery, &view);
    return view;
}

static inline bh_past past_of(const bh_history *history)
{
    bh_past past;
    bh_history_past(history, &past);
    return past;
}

static inline size_t problem_count(const bh_history *history)
{
    size_t count = 0;
    while (bh_history_problem(history, count).size > 0)
        count++;
    return count;
}

static inline bh_planned planned_of(const bh_plan *plan)
{
    bh_planned planned;
    bh_plan_read(plan, &planned);
    return planned;
}

static inline bh_copy copy_of(const bh_plan *plan)
{
    bh_copy copy;
    bh_plan_copy(plan, &copy);
    return copy;
}

static inline int publishes_copy(const bh_plan *plan)
{
    bh_copy copy;
    return bh_plan_copy(plan, &copy) == BH_OK;
}

static inline bh_header plan_header(const bh_plan *plan, size_t index)
{
    bh_header header;
    bh_plan_header(plan, index, &header);
    return header;
}

#endif
