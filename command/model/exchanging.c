/* Exchanging: the methods of exchanges and of bindings. */
#include "model/declaring.h"

#include "model/arguments.h"
#include "model/closing.h"
#include "model/exchange.h"
#include "model/output.h"
#include "model/queue.h"
#include "model/table.h"
#include "model/users.h"

#define SHOWN(bytes) (int)(bytes).size, (bytes).data

static const char *word_of(int is_on)
{
    return is_on ? "true" : "false";
}

/* Refuses what may not be done with the default exchange. */
static int is_default(model_channel *channel, bh_bytes name)
{
    if (name.size == 0)
        model_refuse(channel, 403, "operation not permitted on the default exchange");
    return name.size == 0;
}

static model_exchange *find_or_refuse(model_channel *channel, bh_bytes name)
{
    model_exchange *exchange = model_exchange_find(channel->link->vhost, name);
    if (!exchange)
        model_refuse(channel, 404, "no exchange '%.*s' in vhost '%s'", SHOWN(name), channel->link->vhost->text);
    return exchange;
}

static int may_have_alternate(model_channel *channel, bh_bytes name, bh_bytes arguments)
{
    model_field field;
    if (!model_table_find(arguments, "alternate-exchange", &field))
        return 1;
    if (field.type != 'S') {
        model_refuse(channel, 406, "invalid type '%s' for arg 'alternate-exchange' in exchange '%.*s' in vhost '%s'",
                     model_field_type(&field), SHOWN(name), channel->link->vhost->text);
        return 0;
    }
    return model_user_may(channel, MODEL_READ, "exchange", name) &&
           model_user_may(channel, MODEL_WRITE, "exchange", field.value);
}

/* Adds the exchange. NULL: it was refused. */
static model_exchange *add_exchange(model_channel *channel, const amqp_exchange_declare_t *method, const char *type,
                                    bh_bytes arguments)
{
    bh_bytes name = bh__from_amqp(method->exchange);
    if (bh__begins(name, "amq.")) {
        model_refuse(channel, 403, "exchange name '%.*s' contains reserved prefix 'amq.*'", SHOWN(name));
        return NULL;
    }
    if (!may_have_alternate(channel, name, arguments))
        return NULL;
    model_exchange *exchange = model_exchange_add(channel->link->vhost, name, type, arguments);
    if (!exchange) {
        channel->link->is_broken = 1;
        return NULL;
    }
    exchange->is_durable = method->durable;
    exchange->is_auto_delete = method->auto_delete;
    exchange->is_internal = method->internal;
    return exchange;
}

static int compare(model_channel *channel, const model_exchange *exchange, const amqp_exchange_declare_t *method,
                   const char *type, bh_bytes arguments)
{
    return model_arguments_compare_text(channel, "exchange", exchange->name, "type", exchange->type, type) &&
           model_arguments_compare_text(channel, "exchange", exchange->name, "durable", word_of(exchange->is_durable),
                                        word_of(method->durable)) &&
           model_arguments_compare_text(channel, "exchange", exchange->name, "auto_delete",
                                        word_of(exchange->is_auto_delete), word_of(method->auto_delete)) &&
           model_arguments_compare_text(channel, "exchange", exchange->name, "internal", word_of(exchange->is_internal),
                                        word_of(method->internal)) &&
           model_arguments_compare_one(channel, "exchange", exchange->name, exchange->arguments, arguments,
                                       "alternate-exchange");
}

void model_declare_exchange(model_channel *channel, const amqp_exchange_declare_t *method, bh_bytes arguments)
{
    bh_bytes name = bh__from_amqp(method->exchange), type_name = bh__from_amqp(method->type);
    const char *type = model_exchange_type(type_name);
    model_exchange *exchange = model_exchange_find(channel->link->vhost, name);
    if (!method->passive && !type) {
        model_refuse(channel, channel->link->broker->version->unknown_type_code, "unknown exchange type '%.*s'",
                     SHOWN(type_name));
        return;
    }
    if (is_default(channel, name))
        return;
    if (method->passive) {
        if (channel->link->broker->version->checks_passive && !model_user_may_look(channel, "exchange", name))
            return;
        exchange = find_or_refuse(channel, name);
        if (!exchange)
            return;
    } else {
        if (!model_user_may(channel, MODEL_CONFIGURE, "exchange", name))
            return;
        if (!exchange)
            exchange = add_exchange(channel, method, type, arguments);
        if (!exchange || !compare(channel, exchange, method, type, arguments))
            return;
    }
    amqp_exchange_declare_ok_t ok = {0};
    if (!method->nowait)
        model_send(channel->link, channel->number, AMQP_EXCHANGE_DECLARE_OK_METHOD, &ok);
}

void model_delete_exchange(model_channel *channel, const amqp_exchange_delete_t *method)
{
    bh_bytes name = bh__from_amqp(method->exchange);
    model_link *link = channel->link;
    if (is_default(channel, name))
        return;
    if (bh__begins(name, "amq.")) {
        model_refuse(channel, 403, "deletion of system exchange '%.*s' in vhost '%s' not allowed", SHOWN(name),
                     link->vhost->text);
        return;
    }
    if (!model_user_may(channel, MODEL_CONFIGURE, "exchange", name))
        return;
    model_exchange *exchange = model_exchange_find(link->vhost, name);
    if (exchange && method->if_unused && exchange->binding_count > 0) {
        model_refuse(channel, 406, "exchange '%.*s' in vhost '%s' in use", SHOWN(name), link->vhost->text);
        return;
    }
    if (exchange)
        model_exchange_delete(exchange);
    amqp_exchange_delete_ok_t ok = {0};
    if (!method->nowait)
        model_send(link, channel->number, AMQP_EXCHANGE_DELETE_OK_METHOD, &ok);
}

/* Checks permissions: to write to the destination and to read from the source. */
static int may_bind(model_channel *channel, const model_binding_request *request)
{
    return model_user_may(channel, MODEL_WRITE, request->to_exchange ? "exchange" : "queue", request->destination) &&
           !(request->to_exchange && is_default(channel, request->destination)) &&
           !is_default(channel, request->source) && model_user_may(channel, MODEL_READ, "exchange", request->source);
}

int model_bind(model_channel *channel, const model_binding_request *request)
{
    model_vhost *vhost = channel->link->vhost;
    if (!may_bind(channel, request))
        return 0;
    model_exchange *source = model_exchange_find(vhost, request->source), *exchange = NULL;
    model_queue *queue = NULL;
    if (request->to_exchange)
        exchange = model_exchange_find(vhost, request->destination);
    else
        queue = model_queue_find(vhost, request->destination);
    if (!source || (!exchange && !queue)) {
        bh_bytes missing = source ? request->destination : request->source;
        if (request->is_removal) /* since 3.2 this is no error */
            return 1;
        model_refuse(channel, 404, "no %s '%.*s' in vhost '%s'", source && !request->to_exchange ? "queue" : "exchange",
                     SHOWN(missing), vhost->text);
        return 0;
    }
    if (queue && !model_may_use(channel, queue, 0))
        return 0;
    if (request->is_removal)
        model_exchange_unbind(source, queue, exchange, request->key, request->arguments);
    else if (!model_exchange_bind(source, queue, exchange, request->key, request->arguments))
        channel->link->is_broken = 1;
    return 1;
}
