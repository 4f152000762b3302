/* backhop topology: the exchanges, queues and bindings of a work queue's retries. */
#include "common/command.h"
#include "setup/declare.h"
#include "common/output.h"
#include "base/shell.h"
#include "base/utf8.h"
#include "topology/internal.h"

#include <backhop/adapter/declaring.h>
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

/* The topology of the one work queue that the operands name. Ends the program if they name none. */
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

/* ----------------------------------------------------------------------------------------- show */

static const char *what_of(const bh_declaration *it)
{
    static const char *const names[] = {"", "exchange", "queue", "binding"};
    return names[it->kind];
}

static json_t *arguments_json(const bh_declaration *it)
{
    json_t *out = must(json_object());
    for (size_t i = 0; i < it->argument_count; i++)
        json_object_set_new(out, it->arguments[i].name.data,
                            it->arguments[i].type == BH_TYPE_STRING
                                ? json_text(it->arguments[i].string)
                                : json_integer((json_int_t)it->arguments[i].integer));
    return out;
}

static void print_declaration_json(const bh_declaration *it)
{
    json_t *object = must(
        json_pack("{s:s, s:o, s:o}", "what", what_of(it), "name", json_text(it->name), "type", json_text(it->type)));
    if (it->kind == BH_DECLARE_BINDING) {
        json_object_set_new(object, "source", json_text(it->source));
        json_object_set_new(object, "routing_key", json_text(it->routing_key));
    }
    json_object_set_new(object, "arguments", arguments_json(it));
    json_object_set_new(object, "on_demand", json_boolean(it->on_demand));
    print_json(object);
}

static void add_details(text_table *out, const bh_declaration *it)
{
    char text[2048] = "";
    if (it->kind == BH_DECLARE_BINDING)
        snprintf(text, sizeof text, "from %s by \"%s\"", it->source.data, it->routing_key.data);
    for (size_t i = 0; i < it->argument_count; i++) {
        size_t used = strlen(text);
        if (it->arguments[i].type == BH_TYPE_STRING)
            snprintf(text + used, sizeof text - used, "%s%s=%s", used ? ", " : "", it->arguments[i].name.data,
                     it->arguments[i].string.data);
        else
            snprintf(text + used, sizeof text - used, "%s%s=%lld", used ? ", " : "", it->arguments[i].name.data,
                     (long long)it->arguments[i].integer);
    }
    table_add(out, "%s", text);
}

static int topology_show(int count, char **arguments)
{
    topology_command self = {.json = 0};
    int all = 0;
    const option_rule rules[] = {
        PURE_OPTIONS(&self),
        {"all", 'a', OPTION_FLAG, NULL, "also queues and bindings that are declared on demand", &all},
        JSON_OPTION(&self.json),
    };
    made it = make(&self, count, arguments, rules, sizeof rules / sizeof rules[0],
                   "Lists the exchanges, queues and bindings that a work queue's retries need. Needs no broker.\n");
    text_table out = {.columns = 4};
    static const char *const titles[] = {"what", "name", "type", "details"};
    for (size_t i = 0; i < out.columns; i++)
        table_add(&out, "%s", titles[i]);
    bh_declaration each;
    for (size_t i = 0; bh_topology_declaration(it.topology, i, &each) == BH_OK; i++) {
        if (each.on_demand && !all)
            continue;
        if (self.json) {
            print_declaration_json(&each);
            continue;
        }
        table_add(&out, "%s", what_of(&each));
        table_add(&out, "%s", each.name.data);
        table_add(&out, "%s", each.type.data);
        add_details(&out, &each);
    }
    if (self.json)
        table_drop(&out);
    else
        table_print(&out, "llll");
    destroy(it);
    return output_end(EX_OK);
}

/* ---------------------------------------------------------------------------------- export, dot */

/* Reads the first character of UTF-8. Returns its size. A byte that is not UTF-8 is U+FFFD. */
static size_t read_character(bh_bytes text, uint32_t *out)
{
    size_t size = bh__character_size(text);
    *out = size == 0 ? 0xfffd : (unsigned char)text.data[0];
    if (size > 1)
        *out &= 0xffu >> (size + 1);
    for (size_t i = 1; i < size; i++)
        *out = *out << 6 | ((unsigned char)text.data[i] & 0x3fu);
    return size ? size : 1;
}

/* Prints JSON in ASCII, as print_json, with its white space. All other characters are in its
 * strings. */
static void print_in_ascii(bh_bytes text)
{
    for (size_t i = 0, size; i < text.size; i += size) {
        uint32_t character;
        size = read_character((bh_bytes){text.data + i, text.size - i}, &character);
        if (character < 0x7f)
            putchar((int)character);
        else if (character < 0x10000)
            printf("\\u%04x", (unsigned)character);
        else /* a surrogate pair */
            printf("\\u%04x\\u%04x", (unsigned)(0xd800 + ((character - 0x10000) >> 10)),
                   (unsigned)(0xdc00 + (character & 0x3ff)));
    }
    putchar('\n');
}

static int topology_export(int count, char **arguments)
{
    topology_command self = {.vhost = "/"};
    const option_rule rules[] = {
        PURE_OPTIONS(&self),
        {"vhost", 0, OPTION_TEXT, "NAME", "the vhost of the definitions [/]", &self.vhost},
    };
    made it = make(
        &self, count, arguments, rules, sizeof rules / sizeof rules[0],
        "Writes the topology of a work queue as RabbitMQ definitions (JSON), for an administrator to import. "
        "They include the wait queues that 'declare' leaves to the first message that needs them. Needs no broker.\n");
    bh_status status = bh_topology_export(it.topology, bh_str(self.vhost));
    if (status == BH_OK)
        print_in_ascii(bh_topology_definitions(it.topology));
    int code = status == BH_OK ? EX_OK : complain_status(status, bh_str(""));
    destroy(it);
    return output_end(code);
}

/* As Graphviz reads it, in quotation marks. */
static void print_quoted(const char *kind, bh_bytes text)
{
    char *safe = shown(text, text.size);
    printf("\"%s ", kind);
    for (const char *at = safe; *at; at++) {
        if (*at == '"' || *at == '\\')
            putchar('\\');
        putchar(*at);
    }
    putchar('"');
    free(safe);
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

static void print_dot(const bh_declaration *it)
{
    bh_bytes name = it->name;
    const char *kind = what_of(it);
    if (it->kind == BH_DECLARE_BINDING) {
        print_edge("exchange", it->source, it->type.data, name, "", it->routing_key);
        return;
    }
    printf("  ");
    print_quoted(kind, name);
    printf(" [shape=%s];\n", *kind == 'e' ? "ellipse" : "box");
    for (size_t i = 0; i < it->argument_count; i++) {
        const char *argument = it->arguments[i].name.data;
        bh_bytes value = it->arguments[i].string;
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
                   "Draws the topology of a work queue, for Graphviz: 'backhop topology dot orders | dot -Tsvg'. Needs "
                   "no broker.\n");
    printf("digraph backhop {\n  rankdir=LR;\n");
    bh_declaration each;
    for (size_t i = 0; bh_topology_declaration(it.topology, i, &each) == BH_OK; i++)
        if (!each.on_demand)
            print_dot(&each);
    printf("}\n");
    destroy(it);
    return output_end(EX_OK);
}

/* ------------------------------------------------------------------------------ declare, verify */

/* Refuses names that RabbitMQ would change: it removes CR and LF. */
static void check_names(const bh_topology *topology)
{
    bh_declaration it;
    for (size_t i = 0; bh_topology_declaration(topology, i, &it) == BH_OK; i++)
        if (strpbrk(it.name.data, "\r\n")) /* the program ends: the copy is not freed */
            options_refuse("'%s' has a CR or LF: RabbitMQ removes these characters from names; choose another name",
                           shown(it.name, it.name.size));
}

static int on_broker(int count, char **arguments, bh_mode mode, const char *intro)
{
    topology_command self = {.json = 0};
    const option_rule rules[] = {PURE_OPTIONS(&self), BROKER_OPTIONS(&self.broker), JSON_OPTION(&self.json)};
    made it = make(&self, count, arguments, rules, sizeof rules / sizeof rules[0], intro);
    check_names(it.topology);
    const char *queue = bh__topology_queue(it.topology).data,
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
            say("The topology of \"%s\" is %s.\n", queue, done);
        code = status == BH_OK ? EX_OK : complain_status(status, bh__report_text(&report));
    }
    connection_close(broker);
    bh__report_free(&report);
    destroy(it);
    return output_end(code);
}

static int topology_declare(int count, char **arguments)
{
    return on_broker(count, arguments, BH_MODE_CREATE,
                     "Declares the topology of a work queue on the broker. An exchange or queue that exists with other "
                     "arguments is an error, and stays unchanged.\n");
}

static int topology_verify(int count, char **arguments)
{
    return on_broker(count, arguments, BH_MODE_VERIFY,
                     "Lists the exchanges and queues that a work queue's retries need, and that are missing or have "
                     "other arguments. Changes nothing. Wait queues that are made on demand may be missing. AMQP "
                     "cannot read bindings: 'backhop doctor' tries them.\n");
}

/* ---------------------------------------------------------------------------------- permissions */

static void print_argument(bh_bytes text)
{
    bh__shell_line line = {.ok = 1};
    bh__shell_add_argument(&line, text);
    fputs(line.ok ? bh__shell_text(&line).data : must(NULL), stdout);
    bh__shell_free(&line);
}

/* Prints the regular expressions of a mode: as JSON, or as rabbitmqctl's line. */
static void print_permissions(const topology_command *self, bh_topology *topology, bh_mode mode, const char *user)
{
    static const char *const names[] = {"configure", "write", "read"};
    if (self->json) {
        json_t *object = must(json_object());
        for (int i = 0; i < 3; i++)
            json_object_set_new(object, names[i],
                                json_text(bh__topology_permission(topology, mode, (bh__permission)i)));
        print_json(object);
        return;
    }
    printf("rabbitmqctl set_permissions -p ");
    print_argument(bh_str(self->vhost));
    putchar(' ');
    print_argument(bh_str(user));
    for (int i = 0; i < 3; i++) {
        putchar(' ');
        print_argument(bh__topology_permission(topology, mode, (bh__permission)i));
    }
    putchar('\n');
}

static int topology_permissions(int count, char **arguments)
{
    static const char *const modes[] = {"create", "verify", "none"};
    topology_command self = {.vhost = "/"};
    const char *mode = "create", *user = "USER";
    const option_rule rules[] = {
        {"mode", 0, OPTION_TEXT, "MODE", "the consumer's: create, verify or none [create]", &mode},
        {"user", 0, OPTION_TEXT, "NAME", "the consumer's user [USER]", &user},
        {"vhost", 0, OPTION_TEXT, "NAME", "its vhost [/]", &self.vhost},
        PURE_OPTIONS(&self),
        JSON_OPTION(&self.json),
    };
    made it = make(&self, count, arguments, rules, sizeof rules / sizeof rules[0],
                   "Prints the rabbitmqctl command for the least permissions of a consumer's user. Reads no broker.\n");
    print_permissions(&self, it.topology, (bh_mode)setup_word("mode", mode, modes, 3), user);
    destroy(it);
    return output_end(EX_OK);
}

int topology_main(int count, char **arguments)
{
    static const command commands[] = {
        {"show", "lists the exchanges, queues and bindings", topology_show},
        {"declare", "makes them on the broker", topology_declare},
        {"verify", "lists the missing and the different ones there", topology_verify},
        {"export", "writes them as RabbitMQ definitions", topology_export},
        {"permissions", "prints the least permissions of a consumer's user", topology_permissions},
        {"dot", "draws them for Graphviz", topology_dot},
    };
    return command_dispatch("backhop topology",
                            "The exchanges, queues and bindings that a work queue's retries need.\n", commands,
                            sizeof commands / sizeof commands[0], "", count, arguments);
}
