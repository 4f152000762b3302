#include "topology_internal.h"

/* Adds to the text that `out` is; the zero byte behind it is not counted. */
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

static int add_arguments(bh__store *out, const bh_topology *self, size_t index)
{
    int ok = add(out, bh_str(",\"arguments\":{"));
    for (size_t i = 0; ok && i < bh_topology_argument_count(self, index); i++) {
        char digits[BH__DIGITS];
        ok = add(out, bh_str(i ? "," : "")) && bh__add_json_string(out, bh_topology_argument_name(self, index, i)) &&
             add(out, bh_str(":")) &&
             (bh_topology_argument_type(self, index, i) == BH_TYPE_STRING
                  ? bh__add_json_string(out, bh_topology_argument_string(self, index, i))
                  : add(out, bh__decimal(digits, bh_topology_argument_int(self, index, i))));
    }
    return ok && add(out, bh_str("}}"));
}

static int add_declaration(bh__store *out, const bh_topology *self, size_t index, bh_bytes vhost)
{
    int ok = add(out, bh_str("\n    {")) && add_field(out, "vhost", vhost) && add(out, bh_str(","));
    switch (bh_topology_declaration(self, index)) {
    case BH_DECLARE_EXCHANGE:
        ok = ok && add_field(out, "name", bh_topology_name(self, index)) && add(out, bh_str(",")) &&
             add_field(out, "type", bh_topology_type(self, index)) &&
             add(out, bh_str(",\"durable\":true,\"auto_delete\":false,\"internal\":false"));
        break;
    case BH_DECLARE_QUEUE:
        ok = ok && add_field(out, "name", bh_topology_name(self, index)) &&
             add(out, bh_str(",\"durable\":true,\"auto_delete\":false"));
        break;
    case BH_DECLARE_BINDING:
        ok = ok && add_field(out, "source", bh_topology_source(self, index)) && add(out, bh_str(",")) &&
             add_field(out, "destination", bh_topology_name(self, index)) && add(out, bh_str(",")) &&
             add_field(out, "destination_type", bh_topology_type(self, index)) && add(out, bh_str(",")) &&
             add_field(out, "routing_key", bh_topology_routing_key(self, index));
        break;
    }
    return ok && add_arguments(out, self, index);
}

static int add_list(bh__store *out, const bh_topology *self, const char *name, bh_declaration kind, bh_bytes vhost)
{
    int ok = add(out, bh_str("  ")) && bh__add_json_string(out, bh_str(name)) && add(out, bh_str(": ["));
    int is_first = 1;
    for (size_t i = 0; ok && i < bh_topology_count(self); i++) {
        if (bh_topology_declaration(self, i) != kind)
            continue;
        ok = add(out, bh_str(is_first ? "" : ",")) && add_declaration(out, self, i, vhost);
        is_first = 0;
    }
    return ok && add(out, bh_str("\n  ]"));
}

int bh__topology_write_definitions(const bh_topology *self, bh__store *out, bh_bytes vhost)
{
    return add(out, bh_str("{\n")) && add_list(out, self, "exchanges", BH_DECLARE_EXCHANGE, vhost) &&
           add(out, bh_str(",\n")) && add_list(out, self, "queues", BH_DECLARE_QUEUE, vhost) &&
           add(out, bh_str(",\n")) && add_list(out, self, "bindings", BH_DECLARE_BINDING, vhost) &&
           add(out, bh_str("\n}\n"));
}
