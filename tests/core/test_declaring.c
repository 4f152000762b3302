#include "suites.h"
#include "vectors.h"
#include "topology/internal.h"

#include <backhop/adapter/declaring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static vectors all;

static const vector_name dialects[] = {{"c", BH_DIALECT_C},
                                       {"python", BH_DIALECT_PYTHON},
                                       {"ruby", BH_DIALECT_RUBY},
                                       {"node", BH_DIALECT_NODE},
                                       {"command", BH_DIALECT_COMMAND},
                                       {"relay", BH_DIALECT_RELAY},
                                       {NULL, 0}};

static const vector_name modes[] = {
    {"create", BH_MODE_CREATE}, {"verify", BH_MODE_VERIFY}, {"none", BH_MODE_NONE}, {NULL, 0}};

static const char *const whats[] = {"", "exchange", "queue", "binding"};

static bh_topology *build_topology(vector *v)
{
    const char *field;
    bh_policy *policy;
    bh_topology *topology;
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    if (vector_fill_policy(v, vector_get(v, "policy"), policy, &field) ||
        vector_new_topology(v, vector_get(v, "topology"), &topology, &field))
        vector_fail(v, field, "was refused");
    bh_status status = bh_topology_build(topology, policy);
    if (status != BH_OK)
        vector_fail(v, "topology", "%s", bh_topology_error(topology).data);
    bh_policy_free(policy);
    return topology;
}

static json_t *show_arguments(const bh_declaration *step)
{
    json_t *list = json_array();
    for (size_t i = 0; i < step->argument_count; i++) {
        const char *name = step->arguments[i].name.data;
        if (step->arguments[i].type == BH_TYPE_INT64)
            json_array_append_new(list, json_pack("[s, I]", name, (json_int_t)step->arguments[i].integer));
        else
            json_array_append_new(list, json_pack("[s, s]", name, step->arguments[i].string.data));
    }
    return list;
}

static const char *does_of(const bh_declaration *step)
{
    if (step->passive)
        return "find";
    return step->unbind ? "unbind" : "declare";
}

/* Returns the step as a row: action, kind, name, and the arguments if the vector's row has them. */
static json_t *show_step(const bh_declaration *step, const json_t *expected)
{
    json_t *row = json_pack("[s, s, s]", does_of(step), whats[step->kind], step->name.data);
    if (json_array_size(expected) > 3)
        json_array_append_new(row, show_arguments(step));
    if (step->passive)
        ck_assert_uint_eq(step->argument_count, 0);
    return row;
}

/* Answers the step with the case's refusal of it, if there is one. */
static void answer(vector *v, bh_declaring *declaring, const bh_declaration *step)
{
    json_t *row = show_step(step, NULL);
    const json_t *refusals = vector_get(v, "refusals");
    for (size_t i = 0; i < json_array_size(refusals); i++) {
        const json_t *each = json_array_get(refusals, i);
        int is_this = json_array_size(each) == 5;
        for (size_t column = 0; is_this && column < 3; column++)
            is_this = json_equal(json_array_get(row, column), json_array_get(each, column));
        if (is_this)
            bh_declaring_refuse(declaring, (int)vector_int(v, "refusals", json_array_get(each, 3)),
                                vector_bytes(v, "refusals", json_array_get(each, 4)));
    }
    json_decref(row);
}

/* A row's text at a column. */
static bh_bytes text_at(vector *v, const json_t *row, size_t column)
{
    return vector_bytes(v, "then", json_array_get(row, column));
}

static int code_at(vector *v, const json_t *row, size_t column)
{
    return (int)vector_int(v, "then", json_array_get(row, column));
}

/* Checks the results after the steps. */
static void ask_then(vector *v, bh_declaring *declaring)
{
    const json_t *row = vector_get(v, "then");
    const char *call = row ? json_string_value(json_array_get(row, 0)) : "";
    static const char *const names[] = {"consumer", "replay", "settling", "no-ack", "queue"};
    int refusal = 0;
    while (row && refusal < 5 && strcmp(call, names[refusal]) != 0)
        refusal++;
    if (row && refusal < 5)
        bh_declaring_explain(declaring, (bh_refusal)refusal, code_at(v, row, 1), text_at(v, row, 2),
                             text_at(v, row, 3));
    else if (row)
        vector_fail(v, "then", "names no refusal");
}

static void play(vector *v, bh_declaring *declaring)
{
    const json_t *expected = json_object_get(v->expect, "steps"), *mode = vector_get(v, "mode");
    const json_t *rung_ms = vector_get(v, "rung_ms");
    json_t *got = json_array();
    bh_mode by = mode ? (bh_mode)vector_name_value(v, "mode", mode, modes) : BH_MODE_CREATE;
    ck_assert_int_eq(json_is_true(vector_get(v, "look"))
                         ? bh_declaring_look(declaring, by)
                         : bh_declaring_begin(declaring, by, rung_ms ? vector_int(v, "rung_ms", rung_ms) : 0),
                     BH_OK);
    bh_declaration step;
    while (bh_declaring_next(declaring, &step)) {
        json_array_append_new(got, show_step(&step, json_array_get(expected, json_array_size(got))));
        ck_assert_uint_lt(json_array_size(got), 500);
        answer(v, declaring, &step);
    }
    ask_then(v, declaring);
    v->checks++;
    if (expected && !json_equal(got, expected)) {
        char *text = json_dumps(got, 0);
        vector_fail(v, "steps", "%s", text);
    }
    json_decref(got);
}

START_TEST(a_vector)
{
    vector *v = &all.cases[_i];
    vector_begin(v, "policy topology dialect mode look rung_ms makes_rungs refusals then", "steps status text error");
    bh_topology *topology = build_topology(v);
    bh_declaring *declaring;
    const json_t *dialect = vector_get(v, "dialect");
    ck_assert_int_eq(
        bh_declaring_new(&declaring, topology,
                         dialect ? (bh_dialect)vector_name_value(v, "dialect", dialect, dialects) : BH_DIALECT_C),
        BH_OK);
    bh_topology_free(topology); /* it has a copy */
    ck_assert_int_eq(bh_declaring_set_makes_rungs(declaring, json_is_true(vector_get(v, "makes_rungs"))), BH_OK);
    for (int again = 0; again < 2; again++) {
        play(v, declaring);
        int is_ok = expect_status(v, bh_declaring_status(declaring), bh_declaring_error(declaring));
        ck_assert_int_eq(is_ok, bh_declaring_error(declaring).size == 0);
        expect_bytes(v, v->expect, "text", bh_declaring_error(declaring));
        expect_error(v, v->expect, bh_declaring_error(declaring));
        bh_declaration step;
        ck_assert_int_eq(bh_declaring_next(declaring, &step), 0);
        ck_assert_int_eq(step.kind, BH_DECLARE_NONE);
    }
    bh_declaring_free(declaring);
    vector_end(v);
}
END_TEST

START_TEST(what_cannot_be_is_refused)
{
    bh_topology *topology;
    bh_policy *policy;
    bh_declaring *declaring;
    bh_declaration step;
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    ck_assert_int_eq(bh_topology_new(&topology, bh_str("orders")), BH_OK);
    ck_assert_int_eq(bh_declaring_new(&declaring, topology, BH_DIALECT_C), BH_ERR_STATE);
    ck_assert_int_eq(bh_topology_build(topology, policy), BH_OK);
    ck_assert_int_eq(bh_declaring_new(NULL, topology, BH_DIALECT_C), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_declaring_new(&declaring, NULL, BH_DIALECT_C), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_declaring_new(&declaring, topology, (bh_dialect)6), BH_ERR_ARGUMENT);
    ck_assert_ptr_null(declaring);
    ck_assert_int_eq(bh_declaring_new(&declaring, topology, BH_DIALECT_C), BH_OK);
    ck_assert_int_eq(bh_declaring_next(declaring, &step), 0); /* it has not begun */
    bh_declaring_refuse(declaring, 404, bh_str("NOT_FOUND"));
    ck_assert_int_eq(bh_declaring_begin(declaring, (bh_mode)3, 0), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_declaring_begin(declaring, BH_MODE_CREATE, -1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_declaring_look(declaring, (bh_mode)3), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_declaring_look(NULL, BH_MODE_CREATE), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_declaring_set_makes_rungs(declaring, 2), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_mode_makes_rungs(BH_MODE_CREATE), 1);
    ck_assert_int_eq(bh_mode_makes_rungs(BH_MODE_VERIFY), 0);
    ck_assert_int_eq(bh_mode_makes_rungs(BH_MODE_NONE), 0);
    ck_assert_int_eq(bh_declaring_status(declaring), BH_OK);

    ck_assert_int_eq(bh_declaring_begin(declaring, BH_MODE_CREATE, 0), BH_OK);
    bh_declaring_refuse(declaring, 404, bh_str("NOT_FOUND")); /* of no step */
    ck_assert_int_eq(bh_declaring_next(declaring, &step), 1);
    bh_declaring_refuse(declaring, 404, bh_str("NOT_FOUND"));
    ck_assert_int_eq(bh_declaring_next(declaring, &step), 0);
    ck_assert_int_eq(bh_declaring_status(declaring), BH_ERR_MISSING);
    ck_assert_int_eq(bh_declaring_begin(declaring, BH_MODE_CREATE, 77), BH_OK); /* no rung of the topology's */
    ck_assert_int_eq(bh_declaring_next(declaring, &step), 0);
    ck_assert_int_eq(bh_declaring_status(declaring), BH_OK);
    bh_declaring_free(declaring);
    bh_declaring_free(NULL);
    ck_assert_int_eq(bh_declaring_next(NULL, &step), 0);
    ck_assert_int_eq(bh_declaring_next(declaring, NULL), 0);
    bh_topology_free(topology);
    bh_policy_free(policy);
}
END_TEST

/* Pieces of a broker's words in any order, in memory of their own size, so that a sanitizer sees a
 * read beyond them. */
static bh_bytes draw_words(uint64_t *state)
{
    static const char *const pieces[] = {
        "inequivalent arg '",  "'",   ": received ", " but current is ",   "none",          "the value '",
        "' of type 'longstr'", "...", "%s",          "alternate-exchange", "x-max-priority"};
    char words[512];
    size_t size = 0;
    for (unsigned left = draw_by_seed(state, 12); left > 0; left--) {
        const char *piece = pieces[draw_by_seed(state, sizeof pieces / sizeof pieces[0])];
        memcpy(words + size, piece, strlen(piece));
        size += strlen(piece);
        if (draw_by_seed(state, 8) == 0)
            words[size++] = '\0';
    }
    char *own = malloc(size ? size : 1);
    memcpy(own, words, size);
    return (bh_bytes){own, size};
}

static bh_policy *fixed_policy(void)
{
    bh_policy *policy;
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    ck_assert_int_eq(policy_set_kind(policy, BH_KIND_FIXED), BH_OK);
    ck_assert_int_eq(policy_set_jitter(policy, BH_JITTER_NONE, 0), BH_OK);
    return policy;
}

START_TEST(no_words_of_a_broker_lead_astray)
{
    static const bh_strategy strategies[] = {BH_STRATEGY_LADDER, BH_STRATEGY_MESSAGE_TTL, BH_STRATEGY_NATIVE};
    static const int codes[] = {403, 404, 405, 406, 406, 406, 530, 0};
    uint64_t state = 1;
    for (int round = 0; round < 3000; round++) {
        bh_topology *topology;
        bh_policy *policy = fixed_policy();
        bh_declaring *declaring;
        ck_assert_int_eq(bh_topology_new(&topology, bh_str("orders")), BH_OK);
        ck_assert_int_eq(topology_set_strategy(topology, strategies[round % 3]), BH_OK);
        ck_assert_int_eq(bh_topology_build(topology, policy), BH_OK);
        ck_assert_int_eq(bh_declaring_new(&declaring, topology, (bh_dialect)(round % 4)), BH_OK);
        bh_mode mode = (bh_mode)(round / 4 % 2);
        ck_assert_int_eq(round / 8 % 2 ? bh_declaring_look(declaring, mode) : bh_declaring_begin(declaring, mode, 0),
                         BH_OK);
        bh_declaration step;
        while (bh_declaring_next(declaring, &step)) {
            bh_bytes words = draw_words(&state);
            if (draw_by_seed(&state, 2))
                bh_declaring_refuse(declaring, codes[draw_by_seed(&state, sizeof codes / sizeof codes[0])], words);
            free((char *)words.data);
        }
        ck_assert_int_eq(bh_declaring_status(declaring) == BH_OK, bh_declaring_error(declaring).size == 0);
        bh_declaring_free(declaring);
        bh_topology_free(topology);
        bh_policy_free(policy);
    }
}
END_TEST

/* W5: the texts of RabbitMQ 4.3; the last one is cut */
START_TEST(a_limit_of_the_broker_is_no_clash)
{
    static const char *const texts[] = {
        "PRECONDITION_FAILED - cannot declare queue 'backhop.unroutable': queue limit in vhost '/' (5) is reached",
        "PRECONDITION_FAILED - cannot declare queue 'backhop.unroutable': queue limit in cluster (5) is reached",
        "PRECONDITION_FAILED - cannot declare exchange 'backhop.return': exchange limit of 5 is reached",
        "PRECONDITION_FAILED - cannot declare queue 'a.very.long.name...",
    };
    bh_topology *topology;
    bh_policy *policy = fixed_policy();
    bh_declaring *declaring;
    bh_declaration step;
    ck_assert_int_eq(bh_topology_new(&topology, bh_str("orders")), BH_OK);
    ck_assert_int_eq(bh_topology_build(topology, policy), BH_OK);
    ck_assert_int_eq(bh_declaring_new(&declaring, topology, BH_DIALECT_PYTHON), BH_OK);
    ck_assert_int_eq(bh_declaring_begin(declaring, BH_MODE_CREATE, 0), BH_OK);
    ck_assert(bh_declaring_next(declaring, &step));
    bh_declaring_refuse(declaring, 406, bh_str(texts[_i]));
    ck_assert(!bh_declaring_next(declaring, &step));
    const char *text = bh_declaring_error(declaring).data;
    ck_assert_int_eq(bh_declaring_status(declaring), BH_ERR_CHANNEL);
    ck_assert_msg(strstr(text, texts[_i]) && strstr(text, "raise that limit") && !strstr(text, "other arguments"), "%s",
                  text);
    bh_declaring_free(declaring);
    bh_topology_free(topology);
    bh_policy_free(policy);
}
END_TEST

static bh_declared *declared;
static bh_declaring *orders, *mails; /* which share it */

/* A topology of the ladder with the rung of one second, and the one of 0.1 s on demand. */
static bh_declaring *declaring_of(const char *queue, int64_t rung_ms)
{
    bh_topology *topology;
    bh_policy *policy = fixed_policy();
    bh_declaring *declaring;
    ck_assert_int_eq(policy_set_initial_ms(policy, rung_ms), BH_OK);
    ck_assert_int_eq(policy_set_max_retry_after_ms(policy, 100), BH_OK);
    ck_assert_int_eq(bh_topology_new(&topology, bh_str(queue)), BH_OK);
    ck_assert_int_eq(topology_declare_work_queue(topology, BH_QUEUE_QUORUM), BH_OK);
    ck_assert_int_eq(bh_topology_build(topology, policy), BH_OK);
    ck_assert_int_eq(bh_declaring_new(&declaring, topology, BH_DIALECT_C), BH_OK);
    ck_assert_int_eq(bh_declaring_set_declared(declaring, declared), BH_OK);
    bh_topology_free(topology);
    bh_policy_free(policy);
    return declaring;
}

/* Returns the names of the steps, each once, with a space behind. At the step of the name `refused`
 * the broker closes the channel with the code. */
static const char *play_steps(bh_declaring *declaring, bh_mode mode, int64_t rung_ms, const char *refused, int code)
{
    static char names[4096];
    size_t size = 0;
    bh_bytes before = {"", 0};
    names[0] = '\0';
    ck_assert_int_eq(bh_declaring_begin(declaring, mode, rung_ms), BH_OK);
    bh_declaration step;
    while (bh_declaring_next(declaring, &step)) {
        bh_bytes name = step.name;
        if (strcmp(name.data, before.data) != 0)
            size += (size_t)snprintf(names + size, sizeof names - size, "%s ", name.data);
        before = name;
        if (strcmp(name.data, refused) == 0)
            bh_declaring_refuse(declaring, code, bh_str("REFUSED"));
    }
    return names;
}

static void set_up(void)
{
    ck_assert_int_eq(bh_declared_new(&declared), BH_OK);
    orders = declaring_of("orders", 1000);
    mails = declaring_of("mails", 1000);
}

static void tear_down(void)
{
    bh_declaring_free(orders);
    bh_declaring_free(mails);
    bh_declared_free(declared);
}

#define FIRST "backhop.unroutable backhop.return "

START_TEST(a_second_work_queue_of_a_namespace_declares_its_own_part_alone)
{
    bh_declaring *slow = declaring_of("slow", 2000);
    bh_declared_free(declared); /* they keep it */
    declared = NULL;
    ck_assert_str_eq(play_steps(orders, BH_MODE_CREATE, 0, "", 0), FIRST "orders.parked orders backhop.wait.1000 ");
    ck_assert_str_eq(play_steps(mails, BH_MODE_CREATE, 0, "", 0), "mails.parked mails ");
    ck_assert_int_eq(bh_declaring_status(mails), BH_OK);
    ck_assert_str_eq(play_steps(slow, BH_MODE_CREATE, 0, "", 0), "slow.parked slow backhop.wait.2000 ");
    ck_assert_str_eq(play_steps(mails, BH_MODE_CREATE, 100, "", 0), "backhop.wait.100 ");
    ck_assert_str_eq(play_steps(orders, BH_MODE_CREATE, 100, "", 0), "");
    /* looking leaves nothing out */
    ck_assert_str_eq(play_steps(orders, BH_MODE_VERIFY, 0, "", 0),
                     FIRST "orders.parked orders backhop.wait.1000 backhop.wait.100 ");
    /* nor does declaring the same work queue again */
    ck_assert_str_eq(play_steps(mails, BH_MODE_CREATE, 0, "", 0), FIRST "mails.parked mails backhop.wait.1000 ");
    ck_assert_str_eq(play_steps(orders, BH_MODE_CREATE, 0, "", 0), "orders.parked orders ");
    bh_declaring_free(slow);
}
END_TEST

START_TEST(what_was_refused_or_may_be_lost_is_declared_again)
{
    ck_assert_str_eq(play_steps(orders, BH_MODE_CREATE, 0, "backhop.return", 406), FIRST);
    ck_assert_str_eq(play_steps(mails, BH_MODE_CREATE, 0, "mails", 406), "backhop.return mails.parked mails ");
    ck_assert_int_eq(bh_declaring_status(mails), BH_ERR_CLASH);
    ck_assert_str_eq(play_steps(mails, BH_MODE_CREATE, 100, "backhop.wait.100", 403), "backhop.wait.100 ");
    ck_assert_int_eq(bh_declaring_status(mails), BH_OK); /* taken to be there, but not known */
    ck_assert_str_eq(play_steps(mails, BH_MODE_CREATE, 100, "", 0), "backhop.wait.100 ");
    ck_assert_str_eq(play_steps(orders, BH_MODE_CREATE, 0, "", 0), "orders.parked orders backhop.wait.1000 ");
    bh_declared_clear(declared);
    ck_assert_str_eq(play_steps(mails, BH_MODE_CREATE, 0, "", 0), FIRST "mails.parked mails backhop.wait.1000 ");
    ck_assert_int_eq(bh_declaring_set_declared(orders, NULL), BH_OK);
    ck_assert_str_eq(play_steps(orders, BH_MODE_CREATE, 0, "", 0), FIRST "orders.parked orders backhop.wait.1000 ");
    ck_assert_int_eq(bh_declaring_set_declared(NULL, declared), BH_ERR_ARGUMENT);
    bh_declared_clear(NULL);
    bh_declared_free(NULL);
}
END_TEST

/* Returns the number of steps. The broker has no return exchange until it is declared, and loses it
 * `losses` times. */
static int play_without_exchange(bh_declaring *declaring, int losses)
{
    int steps = 0, is_there = 0;
    bh_declaration step;
    while (bh_declaring_next(declaring, &step)) {
        ck_assert_int_lt(steps++, 50);
        if (step.kind == BH_DECLARE_EXCHANGE && !step.passive && strcmp(step.name.data, "backhop.return") == 0)
            is_there = losses-- <= 0;
        int needs = step.kind == BH_DECLARE_BINDING && strcmp(step.source.data, "backhop.return") == 0;
        if (!is_there && step.passive)
            bh_declaring_refuse(declaring, 404, bh_str("NOT_FOUND"));
        else if (!is_there && needs)
            bh_declaring_refuse(declaring, 404, bh_str("NOT_FOUND - no exchange 'backhop.return' in vhost '/'"));
    }
    return steps;
}

START_TEST(a_binding_whose_exchange_was_deleted_meanwhile_begins_again_once)
{
    play_steps(orders, BH_MODE_CREATE, 0, "", 0);
    /* orders declared the exchange, and somebody deleted it: its own part, then all */
    ck_assert_int_eq(bh_declaring_begin(mails, BH_MODE_CREATE, 0), BH_OK);
    ck_assert_int_eq(play_without_exchange(mails, 0), 3 + 10);
    ck_assert_int_eq(bh_declaring_status(mails), BH_OK);
    ck_assert_int_eq(bh_declaring_begin(mails, BH_MODE_CREATE, 0), BH_OK);
    ck_assert_int_eq(play_without_exchange(mails, 2), 7 + 7);
    ck_assert_int_eq(bh_declaring_status(mails), BH_ERR_MISSING);
    ck_assert_int_eq(bh_declaring_begin(mails, BH_MODE_CREATE, 0), BH_OK);
    ck_assert_int_eq(play_without_exchange(mails, 0), 3 + 10); /* each call may begin again */
    ck_assert_int_eq(bh_declaring_status(mails), BH_OK);
    /* a look binds, finds and declares; it also removes the binding */
    const char *lost = "the exchange \"backhop.return\" is missing, so that no retry comes back; ";
    char text[256];
    snprintf(text, sizeof text, "%sit is declared again", lost);
    ck_assert_int_eq(bh_declaring_look(mails, BH_MODE_CREATE), BH_OK);
    ck_assert_int_eq(play_without_exchange(mails, 1), 2 + 7 + 11);
    ck_assert_str_eq(bh_declaring_error(mails).data, text);
    snprintf(text, sizeof text, "%sdeclaring \"mails\" failed: the broker closed the channel (404 %s)", lost,
             "NOT_FOUND - no exchange 'backhop.return' in vhost '/'");
    ck_assert_int_eq(bh_declaring_look(mails, BH_MODE_CREATE), BH_OK);
    ck_assert_int_eq(play_without_exchange(mails, 2), 2 + 7 + 7);
    ck_assert_str_eq(bh_declaring_error(mails).data, text);
}
END_TEST

START_TEST(what_only_begins_as_the_work_queues_name_is_the_namespaces)
{
    bh_declaring *back = declaring_of("back", 1000);
    bh_declaring *namesake = declaring_of("backhop", 1000); /* all is its own: declared once more, at worst */
    play_steps(orders, BH_MODE_CREATE, 0, "", 0);
    ck_assert_str_eq(play_steps(back, BH_MODE_CREATE, 0, "", 0), "back.parked back ");
    ck_assert_str_eq(play_steps(namesake, BH_MODE_CREATE, 0, "", 0), FIRST "backhop.parked backhop backhop.wait.1000 ");
    bh_declaring_free(back);
    bh_declaring_free(namesake);
}
END_TEST

START_TEST(of_the_same_name_with_other_arguments_nothing_is_left_out)
{
    bh_topology *topology;
    bh_policy *policy = fixed_policy();
    bh_declaring *classic;
    play_steps(orders, BH_MODE_CREATE, 0, "", 0);
    ck_assert_int_eq(bh_topology_new(&topology, bh_str("mails")), BH_OK);
    ck_assert_int_eq(topology_set_queue_type(topology, BH_QUEUE_CLASSIC), BH_OK);
    ck_assert_int_eq(topology_set_name_space(topology, bh_str("backhop")), BH_OK);
    ck_assert_int_eq(bh_topology_build(topology, policy), BH_OK);
    ck_assert_int_eq(bh_declaring_new(&classic, topology, BH_DIALECT_C), BH_OK);
    ck_assert_int_eq(bh_declaring_set_declared(classic, declared), BH_OK);
    ck_assert_str_eq(
        play_steps(classic, BH_MODE_CREATE, 0, "", 0), /* the queues, and no exchange and binding of theirs */
        "backhop.unroutable mails.parked mails backhop.wait.1000 ");
    bh_topology_free(topology);
    bh_policy_free(policy);
    bh_declaring_free(classic);
}
END_TEST

START_TEST(what_is_remembered_is_bounded)
{
    int anew = 0;
    for (int i = 0; i < 12000; i++) {
        char queue[32];
        snprintf(queue, sizeof queue, "q%d", i);
        bh_declaring *each = declaring_of(queue, 1000);
        anew += strncmp(play_steps(each, BH_MODE_CREATE, 0, "", 0), FIRST, strlen(FIRST)) == 0;
        bh_declaring_free(each);
    }
    ck_assert_int_eq(anew, 2); /* the first, and one when 10 000 were known */
}
END_TEST

static const struct {
    bh_strategy strategy;
    bh_mode mode;
    const char *configure, *write, *read;
} permissions[] = {
    {BH_STRATEGY_LADDER, BH_MODE_NONE, "^$", "^(amq\\.default|backhop\\.wait\\.[0-9.]+)$", "^(or\\.ders)$"},
    {BH_STRATEGY_LADDER, BH_MODE_VERIFY, "^$",
     "^(backhop\\.unroutable|backhop\\.return|or\\.ders\\.parked|amq\\.default|backhop\\.wait\\.[0-9.]+)$",
     "^(or\\.ders)$"},
    {BH_STRATEGY_LADDER, BH_MODE_CREATE,
     "^(backhop\\.unroutable|backhop\\.return|or\\.ders\\.parked|backhop\\.wait\\.[0-9.]+)$",
     "^(backhop\\.unroutable|or\\.ders|backhop\\.return|amq\\.default|backhop\\.wait\\.[0-9.]+)$",
     "^(backhop\\.unroutable|backhop\\.return|backhop\\.wait\\.[0-9.]+|or\\.ders)$"},
    {BH_STRATEGY_MESSAGE_TTL, BH_MODE_NONE, "^$", "^(amq\\.default|or\\.ders\\.wait)$", "^(or\\.ders)$"},
    {BH_STRATEGY_DELAYED_EXCHANGE, BH_MODE_NONE, "^$", "^(amq\\.default|backhop\\.delayed)$", "^(or\\.ders)$"},
    {BH_STRATEGY_REJECT, BH_MODE_NONE, "^$", "^(amq\\.default)$", "^(or\\.ders)$"},
    {BH_STRATEGY_NATIVE, BH_MODE_VERIFY, "^$", "^(or\\.ders\\.parked|amq\\.default)$", "^(or\\.ders)$"},
    {BH_STRATEGY_NATIVE, BH_MODE_CREATE, "^(or\\.ders\\.parked|or\\.ders)$", "^(amq\\.default)$", "^(or\\.ders)$"},
};

START_TEST(a_consumer_needs_the_least_permissions)
{
    bh_policy *policy = fixed_policy();
    bh_topology *topology;
    ck_assert_int_eq(bh_topology_new(&topology, bh_str("or.ders")), BH_OK);
    ck_assert_uint_eq(bh__topology_permission(topology, BH_MODE_NONE, BH__PERMISSION_READ).size, 0); /* not built */
    ck_assert_int_eq(topology_set_strategy(topology, permissions[_i].strategy), BH_OK);
    ck_assert_int_eq(bh_topology_build(topology, policy), BH_OK);
    bh_mode mode = permissions[_i].mode;
    ck_assert_str_eq(bh__topology_permission(topology, mode, BH__PERMISSION_CONFIGURE).data, permissions[_i].configure);
    ck_assert_str_eq(bh__topology_permission(topology, mode, BH__PERMISSION_WRITE).data, permissions[_i].write);
    ck_assert_str_eq(bh__topology_permission(topology, mode, BH__PERMISSION_READ).data, permissions[_i].read);
    ck_assert_uint_eq(bh__topology_permission(topology, (bh_mode)3, BH__PERMISSION_READ).size, 0);
    bh_topology_free(topology);
    bh_policy_free(policy);
}
END_TEST

Suite *suite_declaring(void)
{
    all = vectors_load("topology/declaring");
    Suite *suite = suite_create("declaring");
    vectors_add(suite, &all, a_vector);
    TCase *calls = tcase_create("calls");
    tcase_add_checked_fixture(calls, set_up, tear_down);
    tcase_add_test(calls, what_cannot_be_is_refused);
    tcase_add_test(calls, no_words_of_a_broker_lead_astray);
    tcase_add_loop_test(calls, a_limit_of_the_broker_is_no_clash, 0, 4);
    tcase_add_test(calls, a_second_work_queue_of_a_namespace_declares_its_own_part_alone);
    tcase_add_test(calls, what_was_refused_or_may_be_lost_is_declared_again);
    tcase_add_test(calls, a_binding_whose_exchange_was_deleted_meanwhile_begins_again_once);
    tcase_add_test(calls, what_only_begins_as_the_work_queues_name_is_the_namespaces);
    tcase_add_test(calls, of_the_same_name_with_other_arguments_nothing_is_left_out);
    tcase_add_test(calls, what_is_remembered_is_bounded);
    tcase_add_loop_test(calls, a_consumer_needs_the_least_permissions, 0, sizeof permissions / sizeof permissions[0]);
    suite_add_tcase(suite, calls);
    return suite;
}
