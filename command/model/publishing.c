/* Publishing: the checks in RabbitMQ's order, then routing, then a return if the message is
 * unroutable, then the confirm. */
#include "model/publishing.h"

#include "model/closing.h"
#include "model/exchange.h"
#include "model/limits.h"
#include "model/output.h"
#include "model/transactions.h"
#include "model/users.h"

#include <stdio.h>
#include <stdlib.h>

#define SHOWN(bytes) (int)(bytes).size, (bytes).data
enum { CLASS_BASIC = 60, MOST_LATE_MS = 16, MOST_BODY_STEP = 1 << 20 };
#define MOST_TTL_MS INT64_C(315360000000)

static bh_bytes publish_text(const model_channel *channel, bh__text text)
{
    return bh__store_get(&channel->publish, text);
}

void model_publishing_begin(model_channel *channel, bh_bytes exchange, bh_bytes routing_key, int is_mandatory,
                            int is_immediate)
{
    channel->publish.size = 0;
    channel->is_publishing = 1;
    channel->is_mandatory = is_mandatory;
    channel->is_immediate = is_immediate;
    channel->link->is_publisher = 1;
    if (!bh__store_add(&channel->publish, &channel->exchange, exchange) ||
        !bh__store_add(&channel->publish, &channel->routing_key, routing_key))
        channel->link->is_broken = 1;
}

/* Adds a confirm, or a nack, that is sent once it is due. */
static void add_confirm(model_channel *channel, uint64_t number, int is_nack, int64_t due_ms)
{
    void *unconfirmed = channel->unconfirmed;
    int is_there = bh__reserve(&unconfirmed, &channel->unconfirmed_capacity, sizeof *channel->unconfirmed,
                               channel->unconfirmed_count + 1);
    channel->unconfirmed = unconfirmed;
    if (!is_there) {
        channel->link->is_broken = 1;
        return;
    }
    channel->unconfirmed[channel->unconfirmed_count++] = (model_unconfirmed){number, due_ms, is_nack};
    channel->link->broker->unconfirmed_count++;
}

static void send_confirm(model_channel *channel, uint64_t number, int is_multiple, int is_nack)
{
    amqp_basic_ack_t ack = {.delivery_tag = number, .multiple = is_multiple};
    amqp_basic_nack_t nack = {.delivery_tag = number, .multiple = is_multiple};
    if (is_nack)
        model_send(channel->link, channel->number, AMQP_BASIC_NACK_METHOD, &nack);
    else
        model_send(channel->link, channel->number, AMQP_BASIC_ACK_METHOD, &ack);
}

/* Confirms a message that is stored: at once, or as the tape says, later and together with
 * others. */
static void confirm(model_channel *channel, uint64_t number, int is_nack)
{
    model *broker = channel->link->broker;
    unsigned late = model_choose(broker, 4);
    if (late < 2)
        send_confirm(channel, number, 0, is_nack);
    else
        add_confirm(channel, number, is_nack, broker->now_ms + 1 + model_choose(broker, MOST_LATE_MS));
}

/* Returns the number of confirms at the beginning that are due and no nacks. */
static size_t count_leading(const model_channel *channel)
{
    size_t count = 0;
    while (count < channel->unconfirmed_count && !channel->unconfirmed[count].is_nack &&
           channel->unconfirmed[count].due_ms <= channel->link->broker->now_ms)
        count++;
    return count;
}

void model_publishing_confirm(model_channel *channel)
{
    size_t count = channel->unconfirmed_count, leading = count_leading(channel), kept = 0;
    if (leading > 1)
        send_confirm(channel, channel->unconfirmed[leading - 1].number, 1, 0);
    for (size_t i = leading > 1 ? leading : 0; i < count; i++) {
        const model_unconfirmed *each = &channel->unconfirmed[i];
        if (each->due_ms <= channel->link->broker->now_ms)
            send_confirm(channel, each->number, 0, each->is_nack);
        else
            channel->unconfirmed[kept++] = *each;
    }
    channel->link->broker->unconfirmed_count -= count - kept;
    channel->unconfirmed_count = kept;
}

int64_t model_publishing_next_ms(const model_channel *channel)
{
    int64_t next_ms = INT64_MAX;
    for (size_t i = 0; i < channel->unconfirmed_count; i++)
        next_ms = model_earlier(next_ms, channel->unconfirmed[i].due_ms);
    return next_ms;
}

/* Returns RabbitMQ's term for the fault of an expiration; NULL if it has none. `text` has room for
 * the term. */
static const char *check_expiration(bh_bytes value, char text[512])
{
    size_t i = value.size > 0 && (value.data[0] == '+' || value.data[0] == '-');
    size_t first = i;
    int64_t number = 0;
    for (; i < value.size && value.data[i] >= '0' && value.data[i] <= '9'; i++)
        number = number < MOST_TTL_MS ? 10 * number + (value.data[i] - '0') : number;
    if (i == first)
        return "no_integer";
    if (i < value.size)
        snprintf(text, 512, "{leftover_string,\"%.*s\"}", (int)(value.size - i), value.data + i);
    else if (value.data[0] == '-' && number > 0)
        snprintf(text, 512, "{value_negative,-%lld}", (long long)number);
    else if (number > MOST_TTL_MS)
        snprintf(text, 512, "{value_too_large,%.*s}", (int)(value.size - first), value.data + first);
    else
        return NULL;
    return text;
}

/* Checks the properties, in the order of RabbitMQ. Returns 0 if the channel was closed. */
static int check_properties(model_channel *channel, const model_properties *properties)
{
    char text[512];
    bh_bytes value = properties->value[MODEL_EXPIRATION];
    if (properties->is_set[MODEL_REPLY_TO] &&
        bh__same(properties->value[MODEL_REPLY_TO], bh_str("amq.rabbitmq.reply-to"))) {
        model_refuse(channel, 406, "fast reply consumer does not exist");
        return 0;
    }
    const char *problem = properties->is_set[MODEL_EXPIRATION] ? check_expiration(value, text) : NULL;
    if (problem) {
        model_refuse(channel, 406, "invalid expiration '%.*s': %s", SHOWN(value), problem);
        return 0;
    }
    bh_bytes user = properties->value[MODEL_USER_ID];
    const model_user *own = channel->link->user;
    if (properties->is_set[MODEL_USER_ID] && !bh__same(user, bh_str(own->name)) &&
        !model_user_has_tag(own, "impersonator")) {
        model_refuse(channel, 406, "user_id property set to '%.*s' but authenticated user was '%s'", SHOWN(user),
                     own->name);
        return 0;
    }
    return 1;
}

/* Finds the exchange and checks that the user may publish to it; NULL: the channel was closed. */
static model_exchange *find_exchange(model_channel *channel)
{
    model_link *link = channel->link;
    bh_bytes name = publish_text(channel, channel->exchange);
    int64_t most = link->broker->max_message_bytes;
    if (channel->is_immediate) {
        model_refuse(channel, 540, "immediate=true");
        return NULL;
    }
    if (channel->body_size > (uint64_t)most) {
        model_refuse(channel, 406, "message size %llu is larger than configured max size %lld",
                     (unsigned long long)channel->body_size, (long long)most);
        return NULL;
    }
    if (!model_user_may(channel, MODEL_WRITE, "exchange", name))
        return NULL;
    model_exchange *exchange = model_exchange_find(link->vhost, name);
    if (!exchange)
        model_refuse(channel, 404, "no exchange '%.*s' in vhost '%s'", SHOWN(name), link->vhost->text);
    else if (exchange->is_internal)
        model_refuse(channel, 403, "cannot publish to internal exchange '%.*s' in vhost '%s'", SHOWN(name),
                     link->vhost->text);
    else
        return exchange;
    return NULL;
}

static model_message *make_message(model_channel *channel, model_body *body)
{
    const char *header = "", *type = "";
    model_message *message = NULL;
    switch (model_message_new(&message, publish_text(channel, channel->exchange),
                              publish_text(channel, channel->routing_key), publish_text(channel, channel->properties),
                              body, &header, &type)) {
    case MODEL_MADE:
        break;
    case MODEL_NO_MEMORY:
        channel->link->is_broken = 1;
        break;
    case MODEL_BAD_ROUTES:
        model_refuse(channel, 406, "invalid message: {unacceptable_type_in_header,\"%s\",%s}", header, type);
        break;
    case MODEL_MALFORMED:
        model_link_refuse(channel->link, 502, "malformed properties");
        break;
    }
    return message;
}

static void return_message(model_channel *channel, const model_message *message)
{
    amqp_basic_return_t returned = {.reply_code = 312,
                                    .reply_text = bh__to_amqp(bh_str("NO_ROUTE")),
                                    .exchange = bh__to_amqp(model_message_text(message, message->exchange)),
                                    .routing_key = bh__to_amqp(model_message_key(message, 0))};
    model_send_content(channel->link, channel->number, AMQP_BASIC_RETURN_METHOD, &returned, message,
                       (model_counts){-1, -1});
}

/* Publishes to all queues. One that rejects makes the confirm a nack; the others have the
 * message. */
static void route(model_channel *channel, model_exchange *exchange, model_message *message, int is_mandatory)
{
    model_route found;
    model *broker = channel->link->broker;
    int is_nack = 0, is_stored = 0, is_lost = broker->is_minority && model_choose(broker, 2) == 0;
    if (!model_exchange_route(exchange, message, &found))
        channel->link->is_broken = 1;
    if (found.count == 0 && is_mandatory)
        return_message(channel, message);
    for (size_t i = 0; i < found.count && !is_lost; i++) {
        int is_taken = model_limits_publish(found.queues[i], message, 1);
        is_nack = is_nack || !is_taken;
        is_stored = is_stored || is_taken;
    }
    if (is_stored)
        model_note(broker, MODEL_FATE_PUBLISHED, NULL, message);
    int is_answered = found.count == 0 || !(broker->is_minority || broker->hides_confirms);
    model_route_free(&found);
    if (channel->is_confirming && !is_answered)
        channel->next_number++;
    else if (channel->is_confirming)
        confirm(channel, channel->next_number++, is_nack);
}

void model_publishing_commit(model_channel *channel, model_message *message, int is_mandatory)
{
    model_exchange *exchange =
        model_exchange_find(channel->link->vhost, model_message_text(message, message->exchange));
    if (exchange)
        route(channel, exchange, message, is_mandatory);
}

static void publish(model_channel *channel, model_body *body)
{
    model_properties properties;
    model_exchange *exchange = find_exchange(channel);
    if (!exchange)
        return;
    if (!model_properties_read(&properties, publish_text(channel, channel->properties))) {
        model_link_refuse(channel->link, 502, "malformed properties");
        return;
    }
    if (!check_properties(channel, &properties))
        return;
    model_message *message = make_message(channel, body);
    model_pending pending = {.message = message, .is_mandatory = channel->is_mandatory};
    if (message && !channel->is_transactional)
        route(channel, exchange, message, channel->is_mandatory);
    else if (message && !model_transactions_add(channel, &pending))
        channel->link->is_broken = 1;
    model_message_release(message);
}

/* Publishes the complete message. The channel may be gone afterwards. */
static void finish(model_channel *channel)
{
    model_body *body = model_body_new(channel->body, channel->body_used);
    if (!body) {
        channel->link->is_broken = 1;
        return;
    }
    channel->body = NULL;
    channel->is_publishing = 0;
    publish(channel, body);
    model_body_release(body);
}

void model_publishing_interrupt(model_channel *channel)
{
    static const char *const expected[] = {"expected method frame, got non method frame instead",
                                           "expected content header for class 60, got non content header frame instead",
                                           "expected content body, got non content body frame instead"};
    channel->link->method = channel->is_publishing ? AMQP_BASIC_PUBLISH_METHOD : 0;
    model_link_refuse(channel->link, 505, "%s", expected[channel->is_publishing]);
}

void model_publishing_header(model_channel *channel, bh_bytes payload)
{
    if (channel->is_publishing != 1) {
        model_publishing_interrupt(channel);
        return;
    }
    if (payload.size < 14 || bh__get_number(payload.data, 2) != CLASS_BASIC) {
        model_link_refuse(channel->link, 505, "expected content header for class 60, got one for class %d instead",
                          payload.size < 2 ? 0 : (int)bh__get_number(payload.data, 2));
        return;
    }
    channel->body_size = bh__get_number(payload.data + 4, 8);
    channel->body_used = 0;
    channel->is_publishing = 2;
    bh_bytes properties = {payload.data + 12, payload.size - 12};
    if (!bh__store_add(&channel->publish, &channel->properties, properties))
        channel->link->is_broken = 1;
    else if (channel->body_size == 0)
        finish(channel);
}

/* Makes room for a part of the body: as the client sends it, not as it claims. */
static int reserve_body(model_channel *channel, size_t size)
{
    size_t needed = (size_t)channel->body_used + size;
    if (channel->body && needed <= channel->body_room)
        return 1;
    size_t room = channel->body_size <= MOST_BODY_STEP ? (size_t)channel->body_size : 2 * needed;
    char *body = realloc(channel->body, room < needed ? needed : room);
    if (!body)
        return 0;
    channel->body = body;
    channel->body_room = room < needed ? needed : room;
    return 1;
}

void model_publishing_body(model_channel *channel, bh_bytes payload)
{
    if (channel->is_publishing != 2) {
        model_publishing_interrupt(channel);
        return;
    }
    if (payload.size > channel->body_size - channel->body_used) {
        model_link_refuse(channel->link, 501, "content body is larger than its header says");
        return;
    }
    int is_too_large = channel->body_size > (uint64_t)channel->link->broker->max_message_bytes;
    if (!is_too_large && !reserve_body(channel, payload.size)) {
        channel->link->is_broken = 1;
        return;
    }
    if (!is_too_large && payload.size)
        memcpy(channel->body + channel->body_used, payload.data, payload.size);
    channel->body_used += payload.size;
    if (channel->body_used == channel->body_size)
        finish(channel);
}
