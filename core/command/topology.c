/* backhop topology: what a work queue's retries need on the broker. */
#include "command.h"
#include "declare.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

typedef struct topology_command {
    broker_options broker;
    policy_options policy;
    topology_options topology;
    const char *vhost;
    int json;
} topology_command;

/* The topology of the one work queue that the operands name. Ends the program where it is none. */
typedef struct made {
    bh_policy *policy;
    bh_topology *topology;
} made;

static made make(topology_command *self, int count, char **arguments, const option_rule *rules, size_t size,
                 const char *intro)
{
    int at = options_read(count, arguments, rules, size, "QUEUE", intro);
    if (count - at != 1)
        options_refuse("one work queue is wanted");
    made out = {.policy = setup_policy(&self->policy)};
    out.topology = setup_topology(&self->topology, arguments[at], out.policy);
    return out;
}

static void destroy(made self)
{
    bh_topology_free(self.topology);
    bh_policy_free(self.policy);
}

#define PURE_OPTIONS(o) POLICY_OPTIONS(&(o)->policy, NAME), TOPOLOGY_OPTIONS(&(o)->topology)

/* -------------------------------------------------------------------------------------------------------------- show */

static const char *what_of(const bh_topology *topology, size_t index)
{
    static const char *const words[] = {"exchange", "queue", "binding"};
    return words[bh_topology_declaration(topology, index)];
}

static json_t *arguments_json(const bh_topology *topology, size_t index)
{
    json_t *out = must(json_object());
    for (size_t i = 0; i < bh_topology_argument_count(topology, index); i++)
        json_object_set_new(out, bh_topology_argument_name(topology, index, i).data,
                            bh_topology_argument_type(topology, index, i) == BH_TYPE_STRING
                                ? json_text(bh_topology_argument_string(topology, index, i))
                                : json_integer((json_int_t)bh_topology_argument_int(topology, index, i)));
    return out;
}

static void print_declaration_json(const bh_topology *topology, size_t index)
{
    json_t *object = must(json_pack("{s:s, s:o, s:o}", "what", what_of(topology, index), "name",
                                    json_text(bh_topology_name(topology, index)), "type",
                                    json_text(bh_topology_type(topology, index))));
    if (bh_topology_declaration(topology, index) == BH_DECLARE_BINDING) {
        json_object_set_new(object, "source", json_text(bh_topology_source(topology, index)));
        json_object_set_new(object, "routing_key", json_text(bh_topology_routing_key(topology, index)));
    }
    json_object_set_new(object, "arguments", arguments_json(topology, index));
    json_object_set_new(object, "on_demand", json_boolean(bh_topology_on_demand(topology, index)));
    print_json(object);
}

static void add_details(text_table *out, const bh_topology *topology, size_t index)
{
    char text[2048] = "";
    if (bh_topology_declaration(topology, index) == BH_DECLARE_BINDING)
        snprintf(text, sizeof text, "from %s by \"%s\"", bh_topology_source(topology, index).data,
                 bh_topology_routing_key(topology, index).data);
    for (size_t i = 0; i < bh_topology_argument_count(topology, index); i++) {
        size_t used = strlen(text);
        if (bh_topology_argument_type(topology, index, i) == BH_TYPE_STRING)
            snprintf(text + used, sizeof text - used, "%s%s=%s", used ? ", " : "",
                     bh_topology_argument_name(topology, index, i).data,
                     bh_topology_argument_string(topology, index, i).data);
        else
            snprintf(text + used, sizeof text - used, "%s%s=%lld", used ? ", " : "",
                     bh_topology_argument_name(topology, index, i).data,
                     (long long)bh_topology_argument_int(topology, index, i));
    }
    table_add(out, "%s", text);
}

static int topology_show(int count, char **arguments)
{
    topology_command self = {.json = 0};
    int all = 0;
    const option_rule rules[] = {
        PURE_OPTIONS(&self),
        {"all", 'a', OPTION_FLAG, NULL, "what is made on demand too", &all},
        JSON_OPTION(&self.json),
    };
    made it = make(&self, count, arguments, rules, sizeof rules / sizeof rules[0],
                   "Lists the exchanges, queues and bindings that a work queue's retries need. Asks no broker.\n");
    text_table out = {.columns = 4};
    static const char *const titles[] = {"what", "name", "type", "details"};
    for (size_t i = 0; i < out.columns; i++)
        table_add(&out, "%s", titles[i]);
    for (size_t i = 0; i < bh_topology_count(it.topology); i++) {
        if (bh_topology_on_demand(it.topology, i) && !all)
            continue;
        if (self.json) {
            print_declaration_json(it.topology, i);
            continue;
        }
        table_add(&out, "%s", what_of(it.topology, i));
        table_add(&out, "%s", bh_topology_name(it.topology, i).data);
        table_add(&out, "%s", bh_topology_type(it.topology, i).data);
        add_details(&out, it.topology, i);
    }
    if (self.json)
        table_drop(&out);
    else
        table_print(&out, "llll");
    destroy(it);
    return output_end(EX_OK);
}

/* --------------------------------------------------------------------------------------------------- export, dot */

static int topology_export(int count, char **arguments)
{
    topology_command self = {.vhost = "/"};
    const option_rule rules[] = {
        PURE_OPTIONS(&self),
        {"vhost", 0, OPTION_TEXT, "NAME", "whose definitions they are [/]", &self.vhost},
    };
    made it = make(&self, count, arguments, rules, sizeof rules / sizeof rules[0],
                   "Writes what a work queue's retries need as RabbitMQ definitions (JSON), for an administrator to "
                   "import. Asks no\n"
                   "broker.\n");
    bh_status status = bh_topology_export(it.topology, bh_str(self.vhost));
    if (status == BH_OK)
        printf("%s\n", bh_topology_definitions(it.topology).data);
    int code = status == BH_OK ? EX_OK : complain_status(status, bh_str(""));
    destroy(it);
    return output_end(code);
}

/* As Graphviz reads it, in quotation marks. */
static void print_quoted(const char *kind, bh_bytes text)
{
    printf("\"%s ", kind);
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == '"' || text.data[i] == '\\')
            putchar('\\');
        putchar(text.data[i]);
    }
    putchar('"');
}

static void print_edge(const char *from_kind, bh_bytes from, const char *to_kind, bh_bytes to, const char *label,
                       bh_bytes more)
{
    printf("  ");
    print_quoted(from_kind, from);
    printf(" -> ");
    print_quoted(to_kind, to);
    printf(" [label=");
    print_quoted(label, more);
    printf("];\n");
}

static void print_dot(const bh_topology *topology, size_t index)
{
    bh_bytes name = bh_topology_name(topology, index);
    const char *kind = what_of(topology, index);
    if (bh_topology_declaration(topology, index) == BH_DECLARE_BINDING) {
        print_edge("exchange", bh_topology_source(topology, index), bh_topology_type(topology, index).data, name, "",
                   bh_topology_routing_key(topology, index));
        return;
    }
    printf("  ");
    print_quoted(kind, name);
    printf(" [shape=%s];\n", *kind == 'e' ? "ellipse" : "box");
    for (size_t i = 0; i < bh_topology_argument_count(topology, index); i++) {
        const char *argument = bh_topology_argument_name(topology, index, i).data;
        bh_bytes value = bh_topology_argument_string(topology, index, i);
        if (strcmp(argument, "x-dead-letter-exchange") == 0 && value.size)
            print_edge(kind, name, "exchange", value, "dead letters", bh_str(""));
        else if (strcmp(argument, "alternate-exchange") == 0)
            print_edge(kind, name, "exchange", value, "unroutable", bh_str(""));
    }
}

static int topology_dot(int count, char **arguments)
{
    topology_command self = {.json = 0};
    const option_rule rules[] = {PURE_OPTIONS(&self)};
    made it = make(&self, count, arguments, rules, sizeof rules / sizeof rules[0],
                   "Draws what a work queue's retries need, for Graphviz: 'backhop topology dot orders | dot -Tsvg'. "
                   "Asks no broker.\n");
    printf("digraph backhop {\n  rankdir=LR;\n");
    for (size_t i = 0; i < bh_topology_count(it.topology); i++)
        if (!bh_topology_on_demand(it.topology, i))
            print_dot(it.topology, i);
    printf("}\n");
    destroy(it);
    return output_end(EX_OK);
}

/* ---------------------------------------------------------------------------------------------------- declare, verify */

static int on_broker(int count, char **arguments, bh_mode mode, const char *intro)
{
    topology_command self = {.json = 0};
    const option_rule rules[] = {PURE_OPTIONS(&self), BROKER_OPTIONS(&self.broker), JSON_OPTION(&self.json)};
    made it = make(&self, count, arguments, rules, sizeof rules / sizeof rules[0], intro);
    const char *queue = bh_topology_queue(it.topology).data,
               *done = mode == BH_MODE_CREATE ? "declared" : "as it has to be";
    connection *broker;
    bh__report report = {.status = BH_OK};
    int code = connection_open(&broker, &self.broker, mode == BH_MODE_CREATE ? "topology declare" : "topology verify");
    if (code == EX_OK) {
        bh_status status = mode == BH_MODE_CREATE ? declare_topology(broker, it.topology, &report)
                                                  : declare_verify(broker, it.topology, &report);
        if (self.json)
            print_json(must(json_pack("{s:s, s:s, s:o}", "queue", queue, "status", bh_status_name(status).data, "error",
                                      json_text(status == BH_OK ? bh_str("") : bh__report_text(&report)))));
        else if (status == BH_OK)
            printf("The topology of \"%s\" is %s.\n", queue, done);
        code = status == BH_OK ? EX_OK : complain_status(status, bh__report_text(&report));
    }
    connection_close(broker);
    bh__report_free(&report);
    destroy(it);
    return output_end(code);
}

static int topology_declare(int count, char **arguments)
{
    return on_broker(
        count, arguments, BH_MODE_CREATE,
        "Makes on the broker what a work queue's retries need, where it is missing. What is there already with other\n"
        "arguments is an error, and stays as it is.\n");
}

static int topology_verify(int count, char **arguments)
{
    return on_broker(
        count, arguments, BH_MODE_VERIFY,
        "Says what a work queue's retries need and the broker has not, or has with other arguments. Changes nothing.\n"
        "Wait queues that are made on demand may be missing; bindings cannot be looked at by AMQP: 'backhop doctor' "
        "tries them.\n");
}

int topology_main(int count, char **arguments)
{
    static const command commands[] = {
        {"show", "lists the exchanges, queues and bindings", topology_show},
        {"declare", "makes them on the broker", topology_declare},
        {"verify", "says what is missing or different there", topology_verify},
        {"export", "writes them as RabbitMQ definitions", topology_export},
        {"dot", "draws them for Graphviz", topology_dot},
    };
    return command_dispatch("backhop topology", "What a work queue's retries need on the broker.\n", commands,
                            sizeof commands / sizeof commands[0], "", count, arguments);
}
