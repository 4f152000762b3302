/*
 * Fuzzing: bytes are the properties of a message, as they lie on the wire. Readable properties go
 * through history and plan into a copy. The copy must be readable and fit the frame, and continue
 * the history. It must hold every foreign header and kept property byte for byte, and beyond them
 * only the plan's own. The first four bytes choose the decision.
 */
#include "../topologies.h"
#include "../wire/properties.h"
#include "fuzz.h"

#include "worker/wire/content.h"
#include "../reading.h"

#include <backhop/adapter.h>

enum { CHOICES = 4, STRATEGIES = 5 };

static struct {
    bh_policy *policy;
    bh_topology *topologies[STRATEGIES];
    bh_delivery *delivery, *delivery_of_copy;
    bh_history *history, *history_of_copy;
    bh_plan *plan;
    bh__buffer copy;
} with;

static void set_up(void)
{
    if (with.policy)
        return;
    CHECK(bh_policy_new(&with.policy) == BH_OK);
    CHECK(policy_set_kind(with.policy, BH_KIND_FIXED) == BH_OK);
    CHECK(policy_set_jitter(with.policy, BH_JITTER_NONE, 0) == BH_OK);
    for (int i = 0; i < STRATEGIES; i++) {
        CHECK(bh_topology_new(&with.topologies[i], bh_str("work")) == BH_OK);
        CHECK(topology_set_strategy(with.topologies[i], (bh_strategy)i) == BH_OK);
        CHECK(bh_topology_build(with.topologies[i], with.policy) == BH_OK);
    }
    CHECK(bh_delivery_new(&with.delivery) == BH_OK && bh_delivery_new(&with.delivery_of_copy) == BH_OK);
    CHECK(bh_history_new(&with.history) == BH_OK && bh_history_new(&with.history_of_copy) == BH_OK);
    CHECK(bh_history_set_legacy_counter(with.history, bh_str("x-retry-count")) == BH_OK);
    CHECK(bh_plan_new(&with.plan) == BH_OK);
}

static int same(bh_bytes a, bh_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

/* Neither Backhop's nor the broker's own. */
static int is_foreign(bh_bytes name)
{
    static const char *const own[] = {"backhop-", "x-", "CC", "BCC"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (bh__begins(name, own[i]))
            return 0;
    return 1;
}

static void check_headers(const property_list *original, const property_list *copy)
{
    size_t at = 0;
    for (size_t i = 0; i < original->header_count; i++) {
        const header_field *source = &original->headers[i];
        if (!bh_plan_keeps_header(with.plan, source->name)) {
            CHECK(!is_foreign(source->name));
            continue;
        }
        CHECK(at < copy->header_count);
        CHECK(same(source->name, copy->headers[at].name) && same(source->value, copy->headers[at].value));
        at++;
    }
    CHECK(copy->header_count == at + planned_of(with.plan).header_count);
    for (size_t i = 0; at < copy->header_count; i++, at++) {
        bh_type type = plan_header(with.plan, i).type;
        CHECK(same(copy->headers[at].name, plan_header(with.plan, i).name));
        CHECK(type == BH_TYPE_VOID || *copy->headers[at].value.data == (char)type);
    }
}

static void check_properties(const property_list *original, const property_list *copy)
{
    for (int i = 0; i < BH_PROPERTY_LAST; i++) {
        bh_bytes value = copy->values[i], source = original->values[i], expiration = copy_of(with.plan).expiration;
        if (i == BH_PROPERTY_HEADERS)
            CHECK(value.data);
        else if (i == BH_PROPERTY_DELIVERY_MODE)
            CHECK(value.data && *value.data == 2);
        else if (i == BH_PROPERTY_EXPIRATION)
            CHECK(expiration.size ? value.size == expiration.size + 1 &&
                                        memcmp(value.data + 1, expiration.data, expiration.size) == 0
                                  : !value.data);
        else if (source.data && bh_plan_keeps_property(with.plan, (bh_property)i))
            CHECK(value.data && same(value, source));
        else
            CHECK(!value.data);
    }
}

/* Compares with the copy of the wire. Some values have several encodings: a boolean, a NaN, an
 * integer. */
static void check_copy_of_delivery(size_t size)
{
    static property_list copy;
    for (int hidden = 0; hidden <= (BH_HIDDEN_WIDTHS | BH_HIDDEN_BYTES); hidden++) {
        bh_bytes bytes = bh_plan_copy_properties(with.plan, with.delivery, hidden);
        CHECK((bytes.size == 0) == delivery_view_of(with.delivery).is_truncated);
        if (bytes.size == 0)
            return;
        CHECK(hidden & BH_HIDDEN_WIDTHS ? bytes.size <= size : bytes.size == size);
        CHECK(property_list_read(&copy, bytes) && copy.size == bytes.size);
    }
}

static void check_copy(const property_list *original, bh_bytes wire, const bh_topology *topology, int64_t frame_max)
{
    static property_list copy;
    bh__buffer_clear(&with.copy);
    CHECK(bh__content_copy(&with.copy, with.plan, wire) == BH_OK);
    bh_bytes bytes = bytes_of(&with.copy);
    CHECK(frame_max == 0 || 12 + (int64_t)bytes.size <= frame_max - 8);
    CHECK(property_list_read(&copy, bytes) && copy.size == bytes.size);
    check_properties(original, &copy);
    check_headers(original, &copy);
    check_copy_of_delivery(bytes.size);

    CHECK(bh__content_read(with.delivery_of_copy, copy_of(with.plan).exchange, copy_of(with.plan).routing_key, bytes) ==
          BH_OK);
    CHECK(bh_history_read(with.history_of_copy, with.delivery_of_copy, topology) == BH_OK);
    if (planned_of(with.plan).action == BH_ACTION_REPLAY)
        return; /* which begins anew */
    CHECK(past_of(with.history_of_copy).attempts == planned_of(with.plan).attempts);
    CHECK(same(past_of(with.history_of_copy).exchange, past_of(with.history).exchange));
    CHECK(same(past_of(with.history_of_copy).routing_key, past_of(with.history).routing_key));
    if (past_of(with.history).id.size)
        CHECK(same(past_of(with.history_of_copy).id, past_of(with.history).id));
}

static void check_decisions(const uint8_t *choices, const property_list *original, bh_bytes wire)
{
    static const int64_t frames[] = {131072, 0, 4096, 8192};
    static const char *const errors[] = {"", "507 Insufficient Storage", "\xc3\xa9\xff"};
    char random_bytes[BH_PLAN_RANDOM_BYTES];
    bh_bytes random = {random_bytes, sizeof random_bytes};
    const bh_topology *topology = with.topologies[choices[0] % STRATEGIES];
    int64_t frame_max = frames[choices[1] % 4], now_ms = INT64_C(1700000000000);
    bh_outcome outcome = choices[2] % 3 ? BH_OUTCOME_FAILED : BH_OUTCOME_PERMANENT;
    memset(random_bytes, choices[3], sizeof random_bytes);
    CHECK(bh_plan_set_frame_max(with.plan, frame_max) == BH_OK);
    CHECK(bh_history_read(with.history, with.delivery, topology) == BH_OK);

    bh_status status = bh_plan_guard(with.plan, with.delivery, with.history, with.policy, topology, now_ms, random);
    CHECK(status == BH_OK || status == BH_ERR_FRAME);
    if (status == BH_OK && publishes_copy(with.plan))
        check_copy(original, wire, topology, frame_max);
    status = bh_plan_make(with.plan, with.delivery, with.history, with.policy, topology, outcome,
                          bh_str(errors[choices[2] / 3 % 3]), choices[2] > 200 ? 5000 : 0, now_ms, random);
    CHECK(status == BH_OK || status == BH_ERR_FRAME);
    if (status == BH_OK && publishes_copy(with.plan))
        check_copy(original, wire, topology, frame_max);
    status = bh_plan_replay(with.plan, with.delivery, with.history, topology, random);
    CHECK(status == BH_OK || status == BH_ERR_FRAME);
    if (status == BH_OK)
        check_copy(original, wire, topology, frame_max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static property_list original;
    if (size < CHOICES)
        return 0;
    set_up();
    bh_bytes wire = {(const char *)data + CHOICES, size - CHOICES};
    int is_readable = property_list_read(&original, wire);
    bh_status status = bh__content_read(with.delivery, bh_str("orders"), bh_str("order.new"), wire);
    CHECK(status == BH_OK || status == BH_ERR_CONTENT);
    bh_bytes id = bh__content_string(wire, "backhop-id");
    CHECK(id.size <= wire.size);
    if (original.header_count == MOST_HEADERS)
        return 0;
    CHECK(is_readable || status == BH_ERR_CONTENT); /* the other way it may be a nested value that is malformed */
    if (status == BH_OK)
        check_decisions(data, &original, wire);
    return 0;
}
