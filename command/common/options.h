/* Options: a sub-command's options as a table, read by getopt_long, and the help that shows
 * them. */
#ifndef BACKHOP_COMMAND_OPTIONS_H
#define BACKHOP_COMMAND_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

/* The remedy for a text that is no time span. 104249991d: 2^53 ms. */
#define OPTIONS_SPAN "write numbers with units, as 250ms, 1.5s, 5m, 2h or 3d, and 104249991d at most"

/* The type of an option's value: `value` points to it. */
typedef enum option_kind {
    OPTION_FLAG,       /* int: set to 1 */
    OPTION_TEXT,       /* const char * */
    OPTION_SECRET,     /* const char *: a URL, which is overwritten on the command line, so that ps does not show it */
    OPTION_SECRETS,    /* texts, overwritten alike */
    OPTION_FIRST_LINE, /* const char *: the first line of the file that is named */
    OPTION_NUMBER,     /* int64_t: a whole number, not negative */
    OPTION_REAL,       /* double: not negative */
    OPTION_DURATION,   /* int64_t, in ms: "250ms", "1.5s", "5m", "2h", "3d" */
    OPTION_TEXTS       /* texts: each use adds one */
} option_kind;

typedef struct option_rule {
    const char *name;
    char letter; /* 0: none */
    option_kind kind;
    const char *argument; /* the help's word for the value */
    const char *help;     /* one line; NULL: only named; the manual explains it */
    void *value;
} option_rule;

/* Texts of the command line, in order. */
typedef struct texts {
    const char **items;
    size_t count;
} texts;

void texts_add(texts *self, const char *text);
void texts_free(texts *self);

/* Sets the words typed so far ("backhop parked list"), for messages and help. */
void options_name(const char *whole);
/*
 * Reads the options of a sub-command and returns the index of its first operand. Operands may stand
 * between options. --help prints `operands`, `intro` (wrapped) and the options, and ends the
 * program. Wrong usage ends it with 64, before the sub-command does anything.
 */
int options_read(int count, char **arguments, const option_rule *rules, size_t size, const char *operands,
                 const char *intro);
/* Ends the program with 64 and a word on --help. */
_Noreturn void options_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Sets the beginning of options_refuse's texts, as "relay.yml, line 3: "; "": nothing. */
void options_at(const char *where);
/* Reads a time span such as "1.5s" into *out_ms. Returns 0 if the text is no time span. */
int options_duration(const char *text, int64_t *out_ms);

/* The broker's own. */
typedef struct broker_options {
    const char *uri;
    const char *ca_file, *cert, *key;
} broker_options;

#define TLS_OPTIONS(ca_file, cert, key)                                                                                \
    {"ca-file", 0, OPTION_TEXT, "FILE", NULL, (ca_file)}, {"cert", 0, OPTION_TEXT, "FILE", NULL, (cert)},              \
    {                                                                                                                  \
        "key", 0, OPTION_TEXT, "FILE", NULL, (key)                                                                     \
    }
#define BROKER_OPTIONS(broker)                                                                                         \
    {"uri", 'u', OPTION_SECRET, "URI", "amqp[s]://user:password@host:port/vhost [AMQP_URL]", &(broker)->uri},          \
        {"uri-file", 0, OPTION_FIRST_LINE, "FILE", NULL, &(broker)->uri},                                              \
        TLS_OPTIONS(&(broker)->ca_file, &(broker)->cert, &(broker)->key)
#define JSON_OPTION(value)                                                                                             \
    {                                                                                                                  \
        "json", 'j', OPTION_FLAG, NULL, "one JSON object a line", (value)                                              \
    }

#endif
