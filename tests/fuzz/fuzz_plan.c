/*
 * Fuzzing: bytes become a policy, a topology and messages with a header tree of any shape. Each
 * message goes through delivery, history and plan, as the first one and after others. The
 * invariants are checked: see check_copy.
 */
#include "../topologies.h"
#include "fuzz.h"
#include "../reading.h"
#include "plan/internal.h"
#include "relay/relay.h"
#include "topology/internal.h"

#include <backhop/adapter.h>
#include <string.h>

#define MOST_MESSAGES 4
#define MOST_HEADERS 256
#define LONGEST_TEXT 3000

/* The bytes. Behind their end there are zeros. */

typedef struct {
    const char *data;
    size_t size;
} input;

static unsigned take(input *in, unsigned below)
{
    if (in->size == 0)
        return 0;
    in->size--;
    return (unsigned char)*in->data++ % below;
}

static uint64_t take_number(input *in)
{
    uint64_t number = 0;
    for (unsigned bytes = take(in, 9); bytes; bytes--)
        number = number << 8 | take(in, 256);
    return number;
}

/* Often a number that means something. */
static int64_t take_int(input *in)
{
    static const int64_t special[] = {0,
                                      1,
                                      -1,
                                      2,
                                      3,
                                      9,
                                      10,
                                      1000,
                                      5000,
                                      INT64_C(1000000000),
                                      INT64_C(1000000001),
                                      INT64_C(100000000000),
                                      INT64_C(1700000000000),
                                      INT64_C(9007199254740991),
                                      INT64_C(9007199254740992),
                                      INT64_MAX,
                                      INT64_MIN};
    unsigned choice = take(in, 24);
    return choice < sizeof special / sizeof *special ? special[choice] : (int64_t)take_number(in);
}

static bh_bytes take_bytes(input *in, size_t most)
{
    bh_bytes bytes;
    bytes.size = take(in, 256);
    if (bytes.size > most)
        bytes.size = most;
    if (bytes.size > in->size)
        bytes.size = in->size;
    bytes.data = in->data;
    in->data += bytes.size;
    in->size -= bytes.size;
    return bytes;
}

static int equal(bh_bytes a, bh_bytes b)
{
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

/* A text that is often a name that something in Backhop or RabbitMQ looks at. */
static bh_bytes take_name(input *in)
{
    static const char *const names[] = {"backhop-queue",
                                        "backhop-attempts",
                                        "backhop-first-failure",
                                        "backhop-delay",
                                        "backhop-id",
                                        "backhop-exchange",
                                        "backhop-routing-key",
                                        "backhop-error",
                                        "backhop-expiration",
                                        "backhop-user-id",
                                        "backhop-cc",
                                        "backhop-parked",
                                        "x-death",
                                        "x-first-death-queue",
                                        "x-first-death-reason",
                                        "x-first-death-exchange",
                                        "x-last-death-queue",
                                        "x-last-death-reason",
                                        "x-last-death-exchange",
                                        "x-delivery-count",
                                        "x-acquired-count",
                                        "x-delay",
                                        "CC",
                                        "BCC",
                                        "x-retry-count",
                                        "count",
                                        "queue",
                                        "reason",
                                        "exchange",
                                        "routing-keys",
                                        "time",
                                        "original-expiration",
                                        "expired",
                                        "rejected",
                                        "work",
                                        "hand-made",
                                        "backhop:work",
                                        "backhop:other",
                                        "backhop.return",
                                        "work.parked",
                                        "exhausted",
                                        "",
                                        "12",
                                        "-1"};
    unsigned choice = take(in, 64);
    return choice < sizeof names / sizeof *names ? bh_str(names[choice]) : take_bytes(in, 255);
}

/* A long text of one code point of 1 to 4 bytes, behind some bytes of its own. */
static bh_bytes take_long(input *in, char text[LONGEST_TEXT])
{
    static const char *const points[] = {"a", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x90\x87", "\x80", "\xf0"};
    const char *point = points[take(in, 6)];
    bh_bytes first = take_bytes(in, 255), result = {text, first.size};
    size_t length = strlen(point);
    size_t most = (size_t)(take(in, 256) * 12);
    memcpy(text, first.data, first.size);
    while (result.size + length <= most && result.size + length <= LONGEST_TEXT) {
        memcpy(text + result.size, point, length);
        result.size += length;
    }
    return result;
}

/* The headers as they were pushed: what the size of a copy is worked out from. */

typedef struct {
    bh_bytes name;
    int64_t entry; /* bytes of the entry on the wire: name, type, value */
} header;

typedef struct {
    header headers[MOST_HEADERS];
    size_t count;
    char texts[2][LONGEST_TEXT];
    int64_t properties[BH_PROPERTY_LAST]; /* bytes on the wire of the ones that it has */
    int64_t bytes;                        /* of flags, properties and headers */
} message;

/* Known headers, and the fields of an x-death record, with the types that they should have. */
typedef struct {
    const char *name;
    char type;
} field;

static const field known_headers[] = {
    {"x-death", 'A'},        {"x-death", 'A'},          {"backhop-attempts", 'l'},   {"backhop-first-failure", 'l'},
    {"backhop-delay", 'l'},  {"backhop-id", 'S'},       {"backhop-exchange", 'S'},   {"backhop-routing-key", 'S'},
    {"backhop-error", 'S'},  {"backhop-cc", 'A'},       {"backhop-parked", 'S'},     {"x-retry-count", 'I'},
    {"x-retry-count", 'S'},  {"x-delivery-count", 'l'}, {"x-last-death-queue", 'S'}, {"backhop-crashes", 'l'},
    {"backhop-replays", 'l'}};
static const field record_fields[] = {
    {"count", 'l'},        {"queue", 'S'}, {"reason", 'S'},   {"exchange", 'S'},
    {"routing-keys", 'A'}, {"time", 'T'},  {"exchange", 'S'}, {"original-expiration", 'S'}};

static bh_type take_type(input *in)
{
    static const char types[] = "tbBsuIilLfdDSxTVAFSlAFlS";
    return (bh_type)types[take(in, sizeof types - 1)];
}

/* Name and type of the next entry of a table: of the headers themselves (depth 1) or of one
 * inside. */
static bh_bytes take_entry(input *in, int depth, bh_type *type)
{
    unsigned choice = take(in, 4);
    const field *known = depth == 1 ? &known_headers[take(in, sizeof known_headers / sizeof *known_headers)]
                                    : &record_fields[take(in, sizeof record_fields / sizeof *record_fields)];
    *type = choice > 1 ? (bh_type)known->type : take_type(in);
    return choice > 0 ? bh_str(known->name) : take_name(in);
}

/* A string; often one that means something in the field of this name. */
static bh_bytes take_text(input *in, bh_bytes name)
{
    static const char *const telling[][2] = {
        {"reason", "expired"},  {"reason", "rejected"},         {"queue", "hand-made"}, {"queue", "work"},
        {"x-retry-count", "7"}, {"x-retry-count", "999999999"}, {"backhop-id", "an id"}};
    unsigned choice = take(in, 4); /* of those for this name; 3: none */
    for (size_t i = 0; i < sizeof telling / sizeof *telling; i++)
        if (equal(name, bh_str(telling[i][0])) && choice-- == 0)
            return bh_str(telling[i][1]);
    return take_name(in);
}

/* Pushes a value; returns the bytes of type and value on the wire. */
static int64_t push_value(input *in, bh_delivery *d, message *m, bh_bytes name, bh_type type, int depth)
{
    int64_t size = 1;
    bh_bytes text;
    switch (type) {
    case BH_TYPE_ARRAY:
    case BH_TYPE_TABLE:
        CHECK(bh_delivery_push(d, &(bh_value){.type = type, .name = name}) == BH_OK);
        size += 4;
        for (unsigned left = depth < 60 ? take(in, 8) : 0; left && in->size; left--) {
            bh_bytes inner = bh_str("");
            bh_type inner_type = depth == 1 ? BH_TYPE_TABLE : BH_TYPE_STRING; /* as x-death and its routing-keys */
            if (type == BH_TYPE_TABLE) {
                inner = take_entry(in, depth + 1, &inner_type);
                size += 1 + (int64_t)inner.size;
            } else if (take(in, 4) == 0) {
                inner_type = take_type(in);
            }
            size += push_value(in, d, m, inner, inner_type, depth + 1);
        }
        CHECK(bh_delivery_end(d) == BH_OK);
        return size;
    case BH_TYPE_STRING:
    case BH_TYPE_BYTES:
        text = take(in, 16) == 1 ? take_long(in, m->texts[0]) : take_text(in, name);
        CHECK(bh_delivery_push(d, &(bh_value){.type = type, .name = name, .string = text}) == BH_OK);
        return size + 4 + (int64_t)text.size;
    case BH_TYPE_FLOAT:
    case BH_TYPE_DOUBLE:
        CHECK(bh_delivery_push(d, &(bh_value){.type = type, .name = name, .number = (double)take_int(in) / 3}) ==
              BH_OK);
        return size + (type == BH_TYPE_FLOAT ? 4 : 8);
    case BH_TYPE_DECIMAL:
        CHECK(bh_delivery_push(d, &(bh_value){.type = BH_TYPE_DECIMAL,
                                              .name = name,
                                              .places = (int)take(in, 256),
                                              .integer = (int64_t)(uint32_t)take_number(in)}) == BH_OK);
        return size + 5;
    case BH_TYPE_VOID:
        CHECK(bh_delivery_push(d, &(bh_value){.type = BH_TYPE_VOID, .name = name}) == BH_OK);
        return size;
    default:
        break;
    }
    CHECK(bh_delivery_push(d, &(bh_value){.type = type, .name = name, .integer = take_int(in)}) == BH_OK);
    if (strchr("tbB", (int)type))
        return size + 1;
    if (strchr("su", (int)type))
        return size + 2;
    return size + (strchr("Ii", (int)type) ? 4 : 8);
}

static int is_number(bh_property property)
{
    return property == BH_PROPERTY_DELIVERY_MODE || property == BH_PROPERTY_PRIORITY ||
           property == BH_PROPERTY_TIMESTAMP;
}

/* Every table and array ends within its container, and a reader that skips it goes on at its
 * end. */
static void check_values(const bh_delivery *d)
{
    size_t count = delivery_view_of(d).value_count, ends[BH_DELIVERY_MAX_DEPTH + 1] = {count}, depth = 0;
    for (size_t i = 0; i < count; i++) {
        while (i == ends[depth])
            depth--;
        size_t end = value_at(d, i).end;
        int type = value_at(d, i).type;
        CHECK(end > i && end <= ends[depth]);
        if (type == BH_TYPE_TABLE || type == BH_TYPE_ARRAY) {
            CHECK(depth < BH_DELIVERY_MAX_DEPTH);
            ends[++depth] = end;
        } else {
            CHECK(end == i + 1);
        }
    }
}

static void push_message(input *in, bh_delivery *d, message *m)
{
    memset(m, 0, sizeof *m);
    bh_delivery_clear(d);
    bh_bytes exchange = take_name(in), routing_key = take_name(in);
    CHECK(bh_delivery_set_address(d, exchange, routing_key) == BH_OK);
    m->bytes = 2;
    unsigned present = take(in, 256) | take(in, 256) << 8;
    for (int i = 0; i < BH_PROPERTY_LAST; i++) {
        bh_property property = (bh_property)i;
        if (property == BH_PROPERTY_HEADERS || !(present >> i & 1))
            continue;
        if (is_number(property)) {
            CHECK(bh_delivery_set_number(d, property, take(in, 256)) == BH_OK);
            m->properties[i] = property == BH_PROPERTY_TIMESTAMP ? 8 : 1;
        } else {
            bh_bytes value = take_name(in);
            CHECK(bh_delivery_set_property(d, property, value) == BH_OK);
            m->properties[i] = 1 + (int64_t)value.size;
        }
        m->bytes += m->properties[i];
    }
    for (unsigned left = take(in, 256); left && in->size && m->count < MOST_HEADERS; left--) {
        header *h = &m->headers[m->count++];
        bh_type type;
        h->name = take_entry(in, 1, &type);
        h->entry = 1 + (int64_t)h->name.size;
        h->entry += push_value(in, d, m, h->name, type, 1);
        m->bytes += h->entry;
    }
    if (m->count)
        m->bytes += 4;
    CHECK(bh_delivery_header_bytes(d) == m->bytes);
    check_values(d);
}

/* Invariants. */

static int begins(bh_bytes text, const char *start)
{
    return text.size >= strlen(start) && memcmp(text.data, start, strlen(start)) == 0;
}

/* A result: never NULL, and a zero byte follows. */
static bh_bytes checked(bh_bytes bytes)
{
    CHECK(bytes.data);
    CHECK(bytes.data[bytes.size] == '\0');
    return bytes;
}

static int is_utf8(bh_bytes text)
{
    for (size_t i = 0; i < text.size;) {
        unsigned char first = (unsigned char)text.data[i];
        size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
        if (length == 0 || i + length > text.size)
            return 0;
        for (size_t j = 1; j < length; j++)
            if (((unsigned char)text.data[i + j] & 0xc0) != 0x80)
                return 0;
        i += length;
    }
    return 1;
}

static void check_death(const bh_death *death)
{
    checked(death->queue);
    checked(death->reason);
    checked(death->exchange);
    checked(death->original_expiration);
    CHECK(death->count >= 0);
    CHECK(death->first_time_s >= -1);
    for (size_t i = 0; i < death->routing_key_count; i++)
        checked(death->routing_keys[i]);
}

static void check_history(const bh_history *h)
{
    CHECK(past_of(h).attempts >= 0 && past_of(h).attempts <= BH_HISTORY_MOST_ATTEMPTS);
    CHECK(past_of(h).first_failure_ms >= -1);
    CHECK(past_of(h).last_delay_ms >= -1 && past_of(h).last_delay_ms <= BH_POLICY_LONGEST_MS);
    CHECK(checked(past_of(h).last_error).size <= BH_HISTORY_MOST_ERROR_BYTES);
    CHECK(checked(past_of(h).id).size <= 255);
    CHECK(checked(past_of(h).exchange).size <= 255);
    CHECK(checked(past_of(h).routing_key).size <= 255);
    checked(past_of(h).parked);
    CHECK(past_of(h).delivery_count >= 0 && past_of(h).acquired_count >= 0);
    CHECK(past_of(h).crashes >= 0 && past_of(h).crashes <= past_of(h).delivery_count + BH_HISTORY_MOST_ATTEMPTS);
    CHECK(past_of(h).replays >= 0 && past_of(h).replays <= BH_HISTORY_MOST_ATTEMPTS);
    bh_death death;
    CHECK(bh_history_death(h, BH_DEATH_FIRST, &death) == BH_OK);
    check_death(&death);
    CHECK(bh_history_death(h, BH_DEATH_LAST, &death) == BH_OK);
    check_death(&death);
    for (size_t i = 0; i <= past_of(h).death_count; i++) { /* beyond the last record the strings are empty */
        CHECK((bh_history_death(h, i, &death) == BH_OK) == (i < past_of(h).death_count));
        check_death(&death);
    }
    CHECK(bh_history_problem(h, BH_HISTORY_MOST_PROBLEMS).size == 0);
    for (size_t i = 0; i <= BH_HISTORY_MOST_PROBLEMS; i++)
        checked(bh_history_problem(h, i));
}

/* Returns 1 if the topology declares an exchange of this name, on demand or not; its rung goes to
 * *wait_ms. */
static int declares_exchange(const bh_topology *t, bh_bytes name, int64_t *wait_ms)
{
    for (size_t i = 0; i < view_of(t).declaration_count; i++) {
        if (declaration_at(t, i).kind != BH_DECLARE_EXCHANGE || !equal(declaration_at(t, i).name, name))
            continue;
        *wait_ms = declaration_at(t, i).rung_ms;
        return 1;
    }
    return 0;
}

static int copy_waits(const bh_plan *plan)
{
    return planned_of(plan).action == BH_ACTION_RETRY || planned_of(plan).action == BH_ACTION_DEFER;
}

static void check_destination(const bh_plan *plan, const bh_delivery *d, const bh_topology *t, bh_bytes original_key)
{
    bh_bytes exchange = checked(copy_of(plan).exchange), key = checked(copy_of(plan).routing_key);
    bh_action action = planned_of(plan).action;
    bh_strategy strategy = view_of(t).settings.strategy;
    int64_t wait_ms = 0;
    if (action == BH_ACTION_PARK) {
        CHECK(exchange.size == 0 && equal(key, view_of(t).parked_queue));
    } else if (strategy == BH_STRATEGY_NATIVE) {
        CHECK(action == BH_ACTION_REPLAY && exchange.size == 0 && equal(key, view_of(t).queue));
    } else {
        bh_bytes kept_key = action == BH_ACTION_REPLAY ? original_key : delivery_view_of(d).routing_key;
        CHECK(declares_exchange(t, exchange, &wait_ms));
        if (wait_ms)
            CHECK(copy_waits(plan) && wait_ms == planned_of(plan).delay_ms);
        CHECK(key.size == 0 || equal(key, kept_key));
        if (strategy != BH_STRATEGY_REJECT)
            CHECK(!begins(key, "backhop:"));
    }
    CHECK(copy_of(plan).mandatory == !(copy_waits(plan) && strategy == BH_STRATEGY_DELAYED_EXCHANGE));
}

/* Returns the bytes of a header's value, without its type, as it was pushed. */
static int64_t source_size(const message *m, bh_bytes name)
{
    for (size_t i = 0; i < m->count; i++)
        if (equal(m->headers[i].name, name))
            return m->headers[i].entry - 2 - (int64_t)name.size;
    fprintf(stderr, "the plan copies a header that the original does not have\n");
    abort();
}

/* The headers that the plan sets; returns their bytes on the wire. */
static int64_t check_headers(const bh_plan *plan, const bh_topology *t, const message *m, bh_bytes error)
{
    int64_t bytes = 0;
    int returns = 0;
    for (size_t i = 0; i < planned_of(plan).header_count; i++) {
        bh_bytes name = checked(plan_header(plan, i).name), text = checked(plan_header(plan, i).string);
        CHECK(begins(name, "backhop-") || equal(name, bh_str("x-delay")) || equal(name, bh_str("BCC")));
        CHECK(!bh_plan_keeps_header(plan, name));
        for (size_t other = 0; other < i; other++)
            CHECK(!equal(name, plan_header(plan, other).name));
        bytes += 1 + (int64_t)name.size + 1;
        switch ((int)plan_header(plan, i).type) {
        case BH_TYPE_STRING:
            bytes += 4 + (int64_t)text.size;
            break;
        case BH_TYPE_ARRAY:
            bytes += 4 + 1 + 4 + (int64_t)text.size;
            break;
        case BH_TYPE_INT64:
            bytes += 8;
            CHECK(plan_header(plan, i).integer >= 0);
            break;
        default:
            CHECK(plan_header(plan, i).type == BH_TYPE_VOID);
            bytes += source_size(m, checked(plan_header(plan, i).source));
        }
        if (equal(name, bh_str("BCC"))) {
            CHECK(plan_header(plan, i).type == BH_TYPE_ARRAY);
            CHECK(begins(text, "backhop:") && text.size == 8 + view_of(t).queue.size);
            CHECK(memcmp(text.data + 8, view_of(t).queue.data, text.size - 8) == 0);
            returns = 1;
        }
        if (equal(name, bh_str("backhop-error"))) {
            CHECK(text.size > 0 && text.size <= BH_HISTORY_MOST_ERROR_BYTES && text.size <= error.size);
            CHECK(memcmp(text.data, error.data, text.size) == 0);
            if (is_utf8(error))
                CHECK(is_utf8(text));
        }
    }
    int routed =
        view_of(t).settings.strategy != BH_STRATEGY_REJECT && view_of(t).settings.strategy != BH_STRATEGY_NATIVE;
    CHECK(returns == (planned_of(plan).action != BH_ACTION_PARK && routed));
    return bytes;
}

/* Checks a copy: its destination, its headers and properties, and that it fits. */
static void check_copy(const bh_plan *plan, const bh_delivery *d, const bh_history *h, const bh_topology *t,
                       const message *m, bh_bytes error, int64_t frame_max)
{
    static const char *const never_kept[] = {"x-death", "x-delivery-count",    "x-acquired-count",   "x-delay", "CC",
                                             "BCC",     "x-first-death-queue", "x-last-death-reason"};
    check_destination(plan, d, t, past_of(h).routing_key);
    for (size_t i = 0; i < sizeof never_kept / sizeof *never_kept; i++)
        CHECK(!bh_plan_keeps_header(plan, bh_str(never_kept[i])));
    CHECK(!bh_plan_keeps_property(plan, BH_PROPERTY_EXPIRATION) && !bh_plan_keeps_property(plan, BH_PROPERTY_USER_ID));

    bh_bytes expiration = checked(copy_of(plan).expiration);
    int64_t bytes = 2 + 1 + 4 + check_headers(plan, t, m, error); /* flags, delivery-mode, the table's own length */
    if (expiration.size)
        bytes += 1 + (int64_t)expiration.size;
    for (int i = 0; i < BH_PROPERTY_LAST; i++)
        if (i != BH_PROPERTY_DELIVERY_MODE && bh_plan_keeps_property(plan, (bh_property)i))
            bytes += m->properties[i];
    for (size_t i = 0; i < m->count; i++)
        if (bh_plan_keeps_header(plan, m->headers[i].name))
            bytes += m->headers[i].entry;
    CHECK(frame_max == 0 || 12 + bytes <= frame_max - 8);
}

/* The wait for an open breaker, which no policy limits. */
static int64_t pause_of(const bh_topology *t, int64_t retry_after_ms)
{
    int64_t most = view_of(t).settings.strategy == BH_STRATEGY_DELAYED_EXCHANGE ? 4294967295 : BH_POLICY_LONGEST_MS;
    return retry_after_ms < 1 ? 1 : retry_after_ms < most ? retry_after_ms : most;
}

/* A delay: at least a millisecond, within what the policy, a handler's request and the rungs
 * allow. */
static void check_delay(const bh_plan *plan, const bh_policy *policy, const bh_topology *t, bh_outcome outcome,
                        int64_t retry_after_ms)
{
    int64_t delay = planned_of(plan).delay_ms, allowed = limits_of(policy).max_retry_after_ms;
    int64_t floor = retry_after_ms < allowed ? retry_after_ms : allowed;
    int64_t limit = limits_of(policy).max_ms;
    bh_action action = planned_of(plan).action;
    if (copy_waits(plan)) {
        if (view_of(t).settings.strategy == BH_STRATEGY_LADDER) {
            int64_t wait_ms = 0;
            CHECK(declares_exchange(t, copy_of(plan).exchange, &wait_ms) && wait_ms == delay);
            CHECK(copy_of(plan).on_demand || action == BH_ACTION_DEFER || delay <= limit);
        } else if (outcome == BH_OUTCOME_DEFERRED) {
            CHECK(delay == pause_of(t, retry_after_ms));
        } else {
            CHECK(delay <= (floor > limit ? floor : limit));
        }
        CHECK(action == BH_ACTION_DEFER || delay >= floor);
        CHECK(planned_of(plan).retry_after_met == (delay >= retry_after_ms));
    }
    int waits = copy_waits(plan);
    if (waits || action == BH_ACTION_REJECT || action == BH_ACTION_RETURN) {
        CHECK(delay >= 1);
        if (!waits)
            CHECK(delay <= limit);
        if (planned_of(plan).retry_after_met)
            CHECK(delay >= retry_after_ms);
    } else {
        CHECK(delay == 0);
    }
}

/* A throttled message keeps its count of failures, and waits or is parked. */
static void check_deferral(const bh_plan *plan, const bh_history *h, const bh_policy *policy)
{
    bh_past past;
    bh_history_past(h, &past);
    int64_t before = past.deferrals, most = limits_of(policy).max_deferrals;
    CHECK(most == 0 || before < most);
    CHECK(planned_of(plan).action == BH_ACTION_DEFER || planned_of(plan).action == BH_ACTION_PARK);
    CHECK(planned_of(plan).attempts == past.attempts);
    CHECK(planned_of(plan).deferrals == (before < BH_HISTORY_MOST_ATTEMPTS ? before + 1 : before));
}

static int has_reason(bh_bytes reason, const char *expected)
{
    return reason.size == strlen(expected) && memcmp(reason.data, expected, reason.size) == 0;
}

static void check_action(const bh_plan *plan, bh_outcome outcome, const bh_history *h, const bh_policy *policy)
{
    bh_action action = planned_of(plan).action;
    bh_bytes reason = checked(planned_of(plan).reason);
    int failed = outcome == BH_OUTCOME_FAILED || outcome == BH_OUTCOME_PERMANENT;
    int64_t most = limits_of(policy).max_attempts, before = past_of(h).attempts;
    if (outcome == BH_OUTCOME_THROTTLED)
        check_deferral(plan, h, policy);
    else if (outcome == BH_OUTCOME_DEFERRED)
        CHECK(planned_of(plan).attempts == before && (action == BH_ACTION_DEFER || has_reason(reason, "oversized")));
    else
        CHECK(action != BH_ACTION_DEFER);
    CHECK((outcome == BH_OUTCOME_OK) == (action == BH_ACTION_ACK));
    CHECK((outcome == BH_OUTCOME_DROPPED) == (action == BH_ACTION_DROP));
    if (outcome == BH_OUTCOME_PERMANENT)
        CHECK(action == BH_ACTION_PARK);
    if (failed)
        CHECK(planned_of(plan).attempts == (before < BH_HISTORY_MOST_ATTEMPTS ? before + 1 : before));
    if (failed && most > 0 && planned_of(plan).attempts >= most)
        CHECK(action == BH_ACTION_PARK);
    CHECK((action == BH_ACTION_PARK) == (reason.size > 0));
    CHECK(publishes_copy(plan) == (action == BH_ACTION_RETRY || action == BH_ACTION_DEFER || action == BH_ACTION_PARK));
}

/* A delay for lost consumers: not longer than the policy's longest delay, unless the lowest rung
 * is. */
static void check_crash_wait(const bh_plan *plan, const bh_policy *policy, const bh_topology *t)
{
    int64_t delay = planned_of(plan).delay_ms, wait_ms = 0;
    CHECK(delay >= 1);
    if (view_of(t).settings.strategy == BH_STRATEGY_LADDER)
        CHECK(declares_exchange(t, copy_of(plan).exchange, &wait_ms) && wait_ms == delay);
    CHECK(delay <= limits_of(policy).max_ms || delay == BH_TOPOLOGY_LOWEST_RUNG_MS);
}

/* Before a handler sees the message: it is handed over, or waits or is parked with the failures
 * that it came with. */
static void check_guard(bh_plan *plan, const bh_delivery *d, const bh_history *h, const bh_policy *policy,
                        const bh_topology *t, const message *m, int64_t now_ms, bh_bytes random_argument,
                        int64_t frame_max)
{
    char times[40] = "";
    char error[160];
    int64_t attempts = past_of(h).attempts, most = limits_of(policy).max_attempts;
    int64_t crashes = past_of(h).crashes, most_crashes = limits_of(policy).max_crashes;
    int is_lost = most_crashes > 0 && crashes >= most_crashes && past_of(h).delivery_count > 0;
    if (view_of(t).settings.strategy == BH_STRATEGY_NATIVE)
        is_lost = most > 0 && attempts >= most && past_of(h).delivery_count > 0;
    if (crashes > 1)
        snprintf(times, sizeof times, " %lld times", (long long)crashes);
    snprintf(error, sizeof error,
             "its consumer was lost, or gave it back,%s while it, or a message beside it, was in hand", times);
    bh_status status = bh_plan_guard(plan, d, h, policy, t, now_ms, random_argument);
    CHECK(status == BH_OK || (is_lost && status == BH_ERR_FRAME));
    if (status != BH_OK)
        return;
    int waits = planned_of(plan).action == BH_ACTION_RETRY;
    if (!waits)
        CHECK(planned_of(plan).action == (is_lost ? BH_ACTION_PARK : BH_ACTION_NONE));
    CHECK(equal(checked(planned_of(plan).reason), bh_str(is_lost && !waits ? "poison" : "")));
    CHECK(planned_of(plan).attempts == attempts);
    if (waits)
        check_crash_wait(plan, policy, t);
    else
        CHECK(planned_of(plan).delay_ms == 0);
    CHECK(publishes_copy(plan) == is_lost);
    if (is_lost)
        check_copy(plan, d, h, t, m, bh_str(error), frame_max);
}

/* A message of a wait queue: it waits on, or is parked; whatever x-death says, its key leads to no
 * other queue. */
static void check_adopt(bh_plan *plan, const bh_delivery *d, const bh_history *h, const bh_policy *policy,
                        const bh_topology *t, int64_t now_ms, bh_bytes random_argument)
{
    int copies =
        view_of(t).settings.strategy != BH_STRATEGY_REJECT && view_of(t).settings.strategy != BH_STRATEGY_NATIVE;
    bh_status status = bh__plan_adopt(plan, d, h, policy, t, now_ms, random_argument);
    CHECK(copies ? status == BH_OK || status == BH_ERR_FRAME : status == BH_ERR_STRATEGY);
    if (status != BH_OK)
        return;
    int waits = planned_of(plan).action == BH_ACTION_RETRY;
    int64_t attempts = past_of(h).attempts;
    CHECK(waits || planned_of(plan).action == BH_ACTION_PARK);
    CHECK(planned_of(plan).attempts >= 1 && planned_of(plan).attempts >= attempts &&
          planned_of(plan).attempts <= attempts + 1);
    CHECK((planned_of(plan).delay_ms > 0) == waits);
    CHECK(waits ? !begins(checked(copy_of(plan).routing_key), "backhop:")
                : equal(checked(copy_of(plan).routing_key), view_of(t).parked_queue));
}

/* One run. */

static bh_policy *take_policy(input *in, bh_strategy strategy)
{
    static const int64_t times[] = {1, 99, 100, 1000, 10000, 300000, 86400000, BH_POLICY_LONGEST_MS};
    static const double factors[] = {1, 1.5, 2, 10, 1e300};
    bh_policy *policy;
    int fixed = strategy == BH_STRATEGY_REJECT || strategy == BH_STRATEGY_NATIVE;
    CHECK(bh_policy_new(&policy) == BH_OK);
    bh_kind kind = fixed ? BH_KIND_FIXED : (bh_kind)take(in, 4);
    if (strategy == BH_STRATEGY_NATIVE && take(in, 2))
        kind = BH_KIND_LINEAR;
    CHECK(policy_set_kind(policy, kind) == BH_OK);
    CHECK(policy_set_initial_ms(policy, times[take(in, 4)]) == BH_OK);
    CHECK(policy_set_factor(policy, factors[take(in, 5)]) == BH_OK);
    if (take(in, 4))
        CHECK(policy_set_max_ms(policy, times[take(in, 8)]) == BH_OK);
    if (kind == BH_KIND_STEPS)
        for (unsigned left = take(in, 4) + 1; left; left--)
            CHECK(policy_add_step_ms(policy, times[take(in, 8)]) == BH_OK);
    bh_jitter jitter = fixed ? BH_JITTER_NONE : (bh_jitter)take(in, 5);
    CHECK(policy_set_jitter(policy, jitter, take(in, 5) / 4.0) == BH_OK);
    CHECK(policy_set_max_attempts(policy, take(in, 12)) == BH_OK);
    if (take(in, 4) == 1)
        CHECK(policy_set_max_age_ms(policy, times[take(in, 8)]) == BH_OK);
    if (take(in, 2))
        CHECK(policy_set_max_retry_after_ms(policy, take(in, 4) ? times[take(in, 8)] : 0) == BH_OK);
    return policy;
}

/* A replayed retry keeps the error of its last failure if it came back to no queue: the return
 * exchange names it then. */
static bh_bytes error_of_replay(const bh_delivery *delivery, const bh_history *history, const bh_topology *topology)
{
    bh_past past;
    bh_bytes exchange = bh__topology_return_exchange(topology);
    bh_history_past(history, &past);
    int is_stranded =
        exchange.size > 0 && equal(delivery_view_of(delivery).exchange, exchange) && past.parked.size == 0;
    return is_stranded ? past.last_error : bh_str("");
}

/* A message that no handler got keeps the error of its last failure. */
static bh_bytes error_of_copy(const bh_history *history, bh_outcome outcome, bh_bytes error)
{
    bh_past past;
    bh_history_past(history, &past);
    return outcome == BH_OUTCOME_DEFERRED && error.size == 0 ? past.last_error : error;
}

static void run_message(input *in, bh_delivery *delivery, bh_history *history, bh_plan *plan, bh_policy *policy,
                        bh_topology *topology, message *m)
{
    static const int64_t frames[] = {BH_PLAN_DEFAULT_FRAME_MAX, 0, 4096, 8192, 4096, 4096, 600, 300};
    static const int64_t times[] = {0, 0, 1, 1000, 5000, 400000, 86400001, INT64_MAX};
    char random_bytes[BH_PLAN_RANDOM_BYTES];
    bh_bytes random_argument = {random_bytes, sizeof random_bytes};
    int64_t frame_max = frames[take(in, 8)], retry_after_ms = times[take(in, 8)];
    int64_t now_ms = INT64_C(1700000000000) + times[take(in, 7)];
    static const bh_outcome outcomes[] = {BH_OUTCOME_OK,      BH_OUTCOME_FAILED,    BH_OUTCOME_PERMANENT,
                                          BH_OUTCOME_DROPPED, BH_OUTCOME_THROTTLED, BH_OUTCOME_DEFERRED};
    bh_outcome outcome = take(in, 8) < 4 ? BH_OUTCOME_FAILED : outcomes[take(in, 6)];
    bh_bytes error = take_long(in, m->texts[1]);
    for (size_t i = 0; i < sizeof random_bytes; i++)
        random_bytes[i] = (char)take(in, 256);
    char error_text[LONGEST_TEXT];
    if (error.size)
        memcpy(error_text, error.data, error.size);
    error.data = error_text;

    push_message(in, delivery, m);
    CHECK(bh_history_read(history, delivery, topology) == BH_OK);
    check_history(history);
    bh_status status = bh_plan_set_frame_max(plan, frame_max);
    if (status != BH_OK)
        return; /* too small to be AMQP */
    CHECK(policy_set_max_crashes(policy, take(in, 8)) == BH_OK);
    CHECK(policy_set_max_deferrals(policy, take(in, 4)) == BH_OK);
    check_guard(plan, delivery, history, policy, topology, m, now_ms, random_argument, frame_max);
    check_adopt(plan, delivery, history, policy, topology, now_ms, random_argument);
    for (int again = 0; again < 2; again++) {
        status = bh_plan_make(plan, delivery, history, policy, topology, outcome, error, retry_after_ms, now_ms,
                              random_argument);
        if (outcome == BH_OUTCOME_DEFERRED && !view_of(topology).defers) {
            CHECK(status == BH_ERR_STRATEGY);
            return;
        }
        CHECK(status == BH_OK || status == BH_ERR_FRAME);
        if (status != BH_OK)
            return;
        check_action(plan, bh_plan_outcome(history, policy, topology, outcome), history, policy);
        check_delay(plan, policy, topology, outcome, retry_after_ms);
        if (publishes_copy(plan))
            check_copy(plan, delivery, history, topology, m, error_of_copy(history, outcome, error), frame_max);

        status = bh_plan_replay(plan, delivery, history, topology, random_argument);
        CHECK(status == BH_OK || status == BH_ERR_FRAME);
        if (status != BH_OK)
            return;
        CHECK(planned_of(plan).action == BH_ACTION_REPLAY && publishes_copy(plan));
        check_copy(plan, delivery, history, topology, m, error_of_replay(delivery, history, topology), frame_max);
    }
}

/* Whatever x-death says: a copy goes to a queue that the relay serves, or to the unroutable one. */
static void check_relay(bh__relay *relay, bh_delivery *delivery, bh_history *history, bh_plan *plan, unsigned is_there)
{
    static const char zeros[BH_PLAN_RANDOM_BYTES];
    bh_bytes random_argument = {zeros, sizeof zeros};
    bh__dead_letter letter;
    CHECK(bh__relay_read(relay, delivery, history, &letter) == BH_OK);
    bh_bytes queue = letter.queue;
    CHECK(letter.is_served == (queue.size > 0));
    CHECK(queue.size == 0 || equal(queue, bh_str("work")) || begins(queue, "hand"));
    CHECK(is_utf8(checked(letter.text)) && letter.text.size > 0);
    bh_status status =
        bh__relay_plan(relay, plan, delivery, history, (int)is_there, INT64_C(1700000000000), random_argument);
    CHECK(status == BH_OK || status == BH_ERR_FRAME);
    if (status != BH_OK)
        return;
    bh_bytes exchange = copy_of(plan).exchange, key = copy_of(plan).routing_key;
    CHECK(planned_of(plan).action == BH_ACTION_RETRY || planned_of(plan).action == BH_ACTION_PARK);
    CHECK(planned_of(plan).action != BH_ACTION_RETRY || (queue.size && is_there && begins(exchange, "backhop.wait.")));
    CHECK(queue.size || equal(exchange, bh_str("backhop.unroutable")));
    CHECK(!begins(key, "backhop:"));
    if (planned_of(plan).action == BH_ACTION_PARK && !equal(exchange, bh_str("backhop.unroutable"))) {
        CHECK(exchange.size == 0 && is_there && begins(key, queue.data) && key.size == queue.size + 7);
        CHECK(equal((bh_bytes){key.data + queue.size, 7}, bh_str(".parked")));
    }
    for (size_t i = 0; i < planned_of(plan).header_count; i++) {
        bh_bytes text = plan_header(plan, i).string;
        if (equal(plan_header(plan, i).name, bh_str("BCC")))
            CHECK(begins(text, "backhop:") && equal((bh_bytes){text.data + 8, text.size - 8}, queue));
        if (equal(plan_header(plan, i).name, bh_str("backhop-queue")))
            CHECK(equal(text, queue));
    }
}

static bh__relay *make_relay(void)
{
    bh__relay *relay;
    CHECK(bh__relay_new(&relay) == BH_OK);
    CHECK(bh__relay_add_queue(relay, bh_str("work"), NULL) == BH_OK);
    CHECK(bh__relay_add_queue(relay, bh_str("hand*"), NULL) == BH_OK);
    CHECK(bh__relay_set_outcome(relay, BH__DEATH_EXPIRED, BH_OUTCOME_FAILED) == BH_OK);
    CHECK(bh__relay_build(relay) == BH_OK);
    return relay;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static message m;
    static bh__relay *relay;
    static const bh_series all_series[] = {BH_SERIES_R5, BH_SERIES_R10, BH_SERIES_R20, BH_SERIES_R40};
    input in = {(const char *)data, size};
    bh_topology *topology;
    bh_delivery *delivery;
    bh_history *history;
    bh_plan *plan;
    bh_strategy strategy = (bh_strategy)take(&in, 5);
    bh_policy *policy = take_policy(&in, strategy);
    CHECK(bh_topology_new(&topology, bh_str("work")) == BH_OK);
    CHECK(topology_set_strategy(topology, strategy) == BH_OK);
    CHECK(topology_set_series(topology, all_series[take(&in, 4)]) == BH_OK);
    if (take(&in, 4) == 1)
        CHECK(topology_set_queue_type(topology, BH_QUEUE_CLASSIC) == BH_OK);
    if (take(&in, 4) == 1)
        CHECK(topology_set_name_space(topology, bh_str("a-namespace")) == BH_OK);
    if (bh_topology_build(topology, policy) == BH_OK) {
        CHECK(bh_delivery_new(&delivery) == BH_OK);
        CHECK(bh_history_new(&history) == BH_OK);
        CHECK(bh_plan_new(&plan) == BH_OK);
        CHECK(bh_history_set_legacy_counter(history, bh_str("x-retry-count")) == BH_OK);
        CHECK(bh_history_add_wait_queue(history, bh_str("hand-made")) == BH_OK);
        if (!relay)
            relay = make_relay();
        for (int messages = 0; messages < MOST_MESSAGES && in.size; messages++) {
            run_message(&in, delivery, history, plan, policy, topology, &m);
            check_relay(relay, delivery, history, plan, take(&in, 4));
        }
        bh_plan_free(plan);
        bh_history_free(history);
        bh_delivery_free(delivery);
    } else {
        CHECK(checked(bh_topology_error(topology)).size > 0 || checked(bh_policy_error(policy)).size > 0);
        CHECK(view_of(topology).declaration_count == 0);
    }
    bh_topology_free(topology);
    bh_policy_free(policy);
    return 0;
}
