/* Definitions: a topology as RabbitMQ's definitions, in JSON. */
#include "topology/data.h"

/* Appends to `out`, whose size excludes the terminating zero byte. */
static int add(bh__store *out, bh_bytes text)
{
    bh__text added;
    if (!bh__store_add(out, &added, text))
        return 0;
    out->size--;
    return 1;
}

/* RFC 8259, section 7. The text is UTF-8. */
int bh__add_json_string(bh__store *out, bh_bytes text)
{
    static const char hex[] = "0123456789abcdef";
    int ok = add(out, bh_str("\""));
    for (size_t i = 0; ok && i < text.size; i++) {
        char byte = text.data[i];
        if (byte == '"' || byte == '\\') {
            char escaped[] = {'\\', byte, '\0'};
            ok = add(out, bh_str(escaped));
        } else if (byte >= 0 && byte < 0x20) {
            char escaped[] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15], '\0'};
            ok = add(out, bh_str(escaped));
        } else {
            bh_bytes plain = {&text.data[i], 1};
            ok = add(out, plain);
        }
    }
    return ok && add(out, bh_str("\""));
}

static int add_field(bh__store *out, const char *name, bh_bytes value)
{
    return bh__add_json_string(out, bh_str(name)) && add(out, bh_str(":")) && bh__add_json_string(out, value);
}

static int add_arguments(bh__store *out, const bh_declaration *it)
{
    int ok = add(out, bh_str(",\"arguments\":{"));
    for (size_t i = 0; ok && i < it->argument_count; i++) {
        char digits[BH__DIGITS];
        const bh_argument *argument = &it->arguments[i];
        ok = add(out, bh_str(i ? "," : "")) && bh__add_json_string(out, argument->name) && add(out, bh_str(":")) &&
             (argument->type == BH_TYPE_STRING ? bh__add_json_string(out, argument->string)
                                               : add(out, bh__decimal(digits, argument->integer)));
    }
    return ok && add(out, bh_str("}}"));
}

static int add_declaration(bh__store *out, const bh_declaration *it, bh_bytes vhost)
{
    int ok = add(out, bh_str("\n    {")) && add_field(out, "vhost", vhost) && add(out, bh_str(","));
    switch (it->kind) {
    case BH_DECLARE_NONE:
        break;
    case BH_DECLARE_EXCHANGE:
        ok = ok && add_field(out, "name", it->name) && add(out, bh_str(",")) && add_field(out, "type", it->type) &&
             add(out, bh_str(",\"durable\":true,\"auto_delete\":false,\"internal\":false"));
        break;
    case BH_DECLARE_QUEUE:
        ok = ok && add_field(out, "name", it->name) && add(out, bh_str(",\"durable\":true,\"auto_delete\":false"));
        break;
    case BH_DECLARE_BINDING:
        ok = ok && add_field(out, "source", it->source) && add(out, bh_str(",")) &&
             add_field(out, "destination", it->name) && add(out, bh_str(",")) &&
             add_field(out, "destination_type", it->type) && add(out, bh_str(",")) &&
             add_field(out, "routing_key", it->routing_key);
        break;
    }
    return ok && add_arguments(out, it);
}

static int add_list(bh__store *out, const bh_topology *self, const char *name, bh_declaration_kind kind, bh_bytes vhost)
{
    int ok = add(out, bh_str("  ")) && bh__add_json_string(out, bh_str(name)) && add(out, bh_str(": ["));
    int is_first = 1;
    bh_declaration each;
    for (size_t i = 0; ok && bh_topology_declaration(self, i, &each) == BH_OK; i++) {
        if (each.kind != kind)
            continue;
        ok = add(out, bh_str(is_first ? "" : ",")) && add_declaration(out, &each, vhost);
        is_first = 0;
    }
    return ok && add(out, bh_str("\n  ]"));
}

static int write_definitions(const bh_topology *self, bh__store *out, bh_bytes vhost)
{
    return add(out, bh_str("{\n")) && add_list(out, self, "exchanges", BH_DECLARE_EXCHANGE, vhost) &&
           add(out, bh_str(",\n")) && add_list(out, self, "queues", BH_DECLARE_QUEUE, vhost) &&
           add(out, bh_str(",\n")) && add_list(out, self, "bindings", BH_DECLARE_BINDING, vhost) &&
           add(out, bh_str("\n}\n"));
}
bh_status bh_topology_export(bh_topology *self, bh_bytes vhost)
{
    if (!self || !vhost.data)
        return BH_ERR_ARGUMENT;
    if (!self->is_built)
        return BH_ERR_STATE;
    if (!bh__is_utf8(vhost))
        return bh__topology_fail(self, BH_ERR_NAME, "the vhost's name is not UTF-8: give it in UTF-8");
    self->definitions.size = 0;
    if (write_definitions(self, &self->definitions, vhost))
        return BH_OK;
    self->definitions.size = 0;
    return BH_ERR_NO_MEMORY;
}

bh_bytes bh_topology_definitions(const bh_topology *self)
{
    bh_bytes json = {self && self->definitions.size ? self->definitions.data : "", self ? self->definitions.size : 0};
    return json;
}
