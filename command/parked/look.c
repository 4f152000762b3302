/* backhop parked show: messages, as they are. A look changes nothing. */
#include "parked/archive.h"
#include "common/command.h"
#include "parked/parked.h"
#include "delivery/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

static void print_line(const char *name, const char *type, const char *value)
{
    say("  %-28s %s%s%s\n", name, type, *type ? " " : "", value);
}

/* Returns a header's value as text, shortened to 1,000 bytes. The caller frees it. */
static char *value_text(const bh_value *value)
{
    char *text;
    bh_type type = value->type;
    if (type == BH_TYPE_STRING || type == BH_TYPE_BYTES)
        return shown(value->string, 1000);
    if (type == BH_TYPE_FLOAT || type == BH_TYPE_DOUBLE) {
        if (asprintf(&text, "%.17g", value->number) < 0)
            must(NULL);
        return text;
    }
    if (type == BH_TYPE_BOOLEAN)
        return must(strdup(value->integer ? "true" : "false"));
    if (type == BH_TYPE_TABLE || type == BH_TYPE_ARRAY || type == BH_TYPE_VOID)
        return must(strdup(""));
    if (asprintf(&text, "%lld", (long long)value->integer) < 0)
        must(NULL);
    return text;
}

static const char *type_name(bh_type type)
{
    switch (type) {
    case BH_TYPE_BYTES:
        return "(bytes)";
    case BH_TYPE_ARRAY:
        return "(array)";
    case BH_TYPE_TABLE:
        return "(table)";
    case BH_TYPE_VOID:
        return "(void)";
    case BH_TYPE_DECIMAL:
        return "(decimal)";
    default:
        return "";
    }
}

static void print_headers(const bh_delivery *delivery)
{
    size_t ends[BH_DELIVERY_MAX_DEPTH + 1], depth = 0;
    for (size_t i = 0; i < bh__delivery_value_count(delivery); i++) {
        bh_value header;
        bh_delivery_value(delivery, i, &header);
        while (depth > 0 && ends[depth - 1] <= i)
            depth--;
        char *name = shown(header.name, 255), *value = value_text(&header), indented[600];
        snprintf(indented, sizeof indented, "%*s%s", (int)depth * 2, "", *name ? name : "-");
        print_line(indented, type_name(header.type), value);
        free(name);
        free(value);
        if (header.end > i + 1 && depth < BH_DELIVERY_MAX_DEPTH)
            ends[depth++] = header.end;
    }
}

static void print_properties(const bh_delivery *delivery)
{
    json_t *properties = archive_properties(delivery), *value;
    const char *name;
    json_object_foreach(properties, name, value)
    {
        char number[32];
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        char *text = shown(json_is_string(value) ? bh_str(json_string_value(value))
                                                 : bh_str(json_is_integer(value) ? number : "(bytes)"),
                           255);
        print_line(name, "", text);
        free(text);
    }
    json_decref(properties);
}

static void print_body(bh_bytes body)
{
    if (fwrite(body.data, 1, body.size, stdout) == body.size)
        putchar('\n');
}

static void print_message(parked *on, const bh_message *message, int64_t position, int with_body)
{
    char *exchange = shown(message->exchange, 255), *key = shown(message->routing_key, 255);
    fputs(paint(BOLD), stdout);
    say("Message %lld of \"%s\"", (long long)position, on->queue);
    printf("%s\n", paint(PLAIN));
    for (const char *line = bh_history_explanation(on->history).data; *line;
         line += strcspn(line, "\n"), line += *line == '\n') {
        char *safe = shown((bh_bytes){line, strcspn(line, "\n")}, 2000);
        printf("%s\n", safe);
        free(safe);
    }
    printf("\nDelivered by exchange \"%s\" with routing key \"%s\"; its body has %zu bytes%s.\n", exchange, key,
           message->body.size, with_body ? "" : " (--body shows it)");
    printf("\n%sProperties%s\n", paint(BOLD), paint(PLAIN));
    print_properties(on->delivery);
    printf("\n%sHeaders%s\n", paint(BOLD), paint(PLAIN));
    print_headers(on->delivery);
    if (with_body) {
        printf("\n%sBody%s\n", paint(BOLD), paint(PLAIN));
        print_body(message->body);
    }
    free(exchange);
    free(key);
}

static void print_message_json(parked *on, const bh_message *message, int64_t position, int64_t body_bytes)
{
    char id[256];
    bh_message part = *message; /* only its first bytes */
    if (body_bytes >= 0 && (int64_t)part.body.size > body_bytes)
        part.body.size = (size_t)body_bytes;
    json_t *object = archive_object(on->queue, &part, on->delivery, parked_id(on, id));
    json_object_set_new(object, "position", json_integer(position));
    json_object_set_new(object, "story", json_text(bh_history_explanation(on->history)));
    json_object_set_new(object, "body_bytes", json_integer((json_int_t)message->body.size));
    if (body_bytes == 0)
        json_object_del(object, "body");
    print_json(object);
}

typedef struct showing {
    parked_options options;
    const char *id;     /* NULL: the first messages that are selected */
    int64_t limit;      /* of these */
    int64_t body_bytes; /* 0: no body; -1: all of it */
    int64_t shown;
} showing;

enum { MANY = 10000 }; /* messages: a look at more of them ends once it has shown enough */

static void show_one(showing *self, parked *on, const bh_message *message, int64_t position)
{
    if (self->shown >= self->limit || !parked_reads(on, message) || (self->id && !parked_is(on, self->id, position)))
        return;
    if (self->shown++ > 0 && !self->options.json)
        putchar('\n');
    if (self->options.json)
        print_message_json(on, message, position, self->body_bytes);
    else
        print_message(on, message, position, self->body_bytes != 0);
}

static int show_all(showing *self, parked *on)
{
    snapshot shot;
    int code = snapshot_begin(&shot, on->broker, on->queue);
    if (code != EX_OK)
        return code;
    for (bh_message *message; (message = snapshot_next(&shot)) != NULL; bh_message_free(message)) {
        show_one(self, on, message, shot.given);
        if (self->shown >= self->limit && shot.total - shot.given > MANY)
            shot.most = shot.given;
    }
    code = snapshot_end(&shot);
    if (code == EX_OK && self->id && self->shown == 0) {
        complain("there is no message with this id in \"%s\"", on->queue);
        code = EX_NOINPUT;
    }
    return code;
}

int parked_show(int count, char **arguments)
{
    showing self = {.limit = 10};
    int with_body = 0;
    const option_rule rules[] = {
        {"body", 0, OPTION_FLAG, NULL, "its body too, as it is", &with_body},
        {"body-bytes", 0, OPTION_NUMBER, "COUNT", NULL, &self.body_bytes},
        {"limit", 'l', OPTION_NUMBER, "COUNT", "without ID: so many messages [10]", &self.limit},
        WHERE_OPTION(&self.options),
        LIKE_OPTION(&self.options),
        PARKED_OPTIONS(&self.options)};
    int at = options_read(count, arguments, rules, sizeof rules / sizeof rules[0], "QUEUE [ID]",
                          "Shows a parked message: its story, properties and headers. ID is its message-id or "
                          "backhop-id; or @3 for the\n"
                          "third message of the queue. Without ID, shows the first messages that are selected. They "
                          "stay where they are.\n");
    if (count - at != 1 && count - at != 2)
        options_refuse("one work queue is wanted, and at most one id");
    self.id = count - at == 2 ? arguments[at + 1] : NULL;
    self.limit = self.id ? 1 : self.limit;
    self.body_bytes = with_body ? -1 : self.body_bytes;
    parked on;
    int code = parked_open(&on, &self.options, "parked show");
    if (code == EX_OK)
        code = parked_go_to(&on, arguments[at]);
    if (code == EX_OK)
        code = show_all(&self, &on);
    parked_close(&on);
    texts_free(&self.options.where);
    return output_end(code);
}
