#include "common/options.h"

#include "common/output.h"
#include "common/trusted.h"

#include <backhop/adapter/duration.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { MOST_OPTIONS = 48, FIRST_CODE = 256 }; /* codes of options, above the letters */

static char name[128] = "backhop";

void options_name(const char *whole)
{
    snprintf(name, sizeof name, "%s", whole);
}

static char place[512];

void options_at(const char *where)
{
    snprintf(place, sizeof place, "%s", where);
}

void texts_add(texts *self, const char *text)
{
    const char **items = must(realloc(self->items, (self->count + 1) * sizeof *items));
    items[self->count++] = text;
    self->items = items;
}

void texts_free(texts *self)
{
    free(self->items);
    *self = (texts){.items = NULL};
}

void options_refuse(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    complain("%s%s", place, text);
    fprintf(stderr, "'%s --help' shows more.\n", name);
    exit(EX_USAGE);
}

/* --------------------------------------------------------------------------------------- values */

int options_duration(const char *text, int64_t *out_ms)
{
    int64_t ms = bh_duration_ms(bh_str(text));
    if (ms >= 0)
        *out_ms = ms;
    return ms >= 0;
}

/* Keeps a text of its own for an option, to the end of the program. */
static const char *keep(char *text)
{
    static texts kept;
    texts_add(&kept, text);
    return text;
}

/* Copies a text, and overwrites it in the memory that ps shows. */
static const char *hide(char *text)
{
    const char *copy = keep(copy_text(bh_str(text)));
    memset(text, '*', strlen(text));
    return copy;
}

static const char *read_first_line(const option_rule *rule, const char *file)
{
    char *line = NULL;
    size_t room = 0;
    FILE *in = fopen(file, "re");
    if (!in || getline(&line, &room, in) < 0) {
        complain("--%s: %s cannot be read: %s", rule->name, file, in && !ferror(in) ? "it is empty" : strerror(errno));
        exit(EX_NOINPUT);
    }
    fclose(in);
    trusted_check(rule->name, file);
    line[strcspn(line, "\r\n")] = '\0';
    return keep(line);
}

static void set_value(const option_rule *rule, char *text)
{
    char *end = NULL;
    switch (rule->kind) {
    case OPTION_FLAG:
        *(int *)rule->value = 1;
        break;
    case OPTION_TEXT:
        *(const char **)rule->value = text;
        break;
    case OPTION_SECRET:
        *(const char **)rule->value = hide(text);
        break;
    case OPTION_FIRST_LINE:
        *(const char **)rule->value = read_first_line(rule, text);
        break;
    case OPTION_TEXTS:
        texts_add(rule->value, text);
        break;
    case OPTION_SECRETS:
        texts_add(rule->value, hide(text));
        break;
    case OPTION_NUMBER: {
        long long number = strtoll(text, &end, 10);
        if (end == text || *end || number < 0 || number > INT64_C(9007199254740991))
            options_refuse("--%s: '%s' is no whole number from 0 on", rule->name, text);
        *(int64_t *)rule->value = number;
        break;
    }
    case OPTION_REAL: {
        double number = strtod(text, &end);
        if (end == text || *end || !(number >= 0) || isinf(number))
            options_refuse("--%s: '%s' is no number from 0 on", rule->name, text);
        *(double *)rule->value = number;
        break;
    }
    case OPTION_DURATION:
        if (!options_duration(text, rule->value))
            options_refuse("--%s: '%s' is no time span: " OPTIONS_SPAN, rule->name, text);
        break;
    }
}

/* -------------------------------------------------------------------------------------- reading */

enum { OPTION_TEXT_SIZE = 64 };

/* "-j, --json" */
static int write_option(char out[OPTION_TEXT_SIZE], const option_rule *rule)
{
    char letter[8] = "    ";
    if (rule->letter)
        snprintf(letter, sizeof letter, "-%c, ", rule->letter);
    return snprintf(out, OPTION_TEXT_SIZE, "  %s--%s%s%s", letter, rule->name, rule->argument ? " " : "",
                    rule->argument ? rule->argument : "");
}

/* Prints the options that are only named; each line begins with an option, as completions expect
 * it. */
static void print_names(const option_rule *rules, size_t size)
{
    char names[512] = "";
    for (size_t i = 0; i < size; i++) {
        size_t used = strlen(names);
        if (!rules[i].help)
            snprintf(names + used, sizeof names - used, "%s--%s", used ? ", " : "", rules[i].name);
    }
    if (!*names)
        return;
    printf("\nAnd these, which 'man backhop' explains:\n");
    print_wrapped(names, printf("  "), 2);
}

static void help(const option_rule *rules, size_t size, const char *operands, const char *intro)
{
    char text[OPTION_TEXT_SIZE];
    int widest = 0;
    printf("Usage: %s [OPTION...]%s%s\n", name, *operands ? " " : "", operands);
    print_wrapped(intro, 0, 0);
    putchar('\n');
    for (size_t i = 0; i < size; i++) {
        int width = rules[i].help ? write_option(text, &rules[i]) : 0;
        widest = width > widest ? width : widest;
    }
    for (size_t i = 0; i < size; i++) {
        if (!rules[i].help)
            continue;
        write_option(text, &rules[i]);
        print_wrapped(rules[i].help, printf("%-*s", widest + 2, text), widest + 2);
    }
    print_names(rules, size);
    exit(output_end(EX_OK));
}

int options_read(int count, char **arguments, const option_rule *rules, size_t size, const char *operands,
                 const char *intro)
{
    struct option table[MOST_OPTIONS + 2] = {{0}};
    char letters[2 * MOST_OPTIONS + 4] = ":h";
    for (size_t i = 0; i < size && i < MOST_OPTIONS; i++) {
        int has_value = rules[i].kind != OPTION_FLAG;
        table[i] =
            (struct option){rules[i].name, has_value ? required_argument : no_argument, NULL, FIRST_CODE + (int)i};
        size_t length = strlen(letters);
        if (rules[i].letter)
            snprintf(letters + length, sizeof letters - length, "%c%s", rules[i].letter, has_value ? ":" : "");
    }
    table[size] = (struct option){"help", no_argument, NULL, 'h'};
    optind = 0; /* anew */
    opterr = 0;
    for (int code; (code = getopt_long(count, arguments, letters, table, NULL)) != -1;) {
        if (code == 'h')
            help(rules, size, operands, intro);
        if (code == ':')
            options_refuse("%s needs a value", arguments[optind - 1]);
        if (code == '?' && optopt && optopt < FIRST_CODE)
            options_refuse("there is no option -%c", optopt);
        if (code == '?')
            options_refuse("%s is no option of this command, or fits more than one, or takes no value",
                           arguments[optind - 1]);
        size_t at = (size_t)(code - FIRST_CODE);
        for (size_t i = 0; code < FIRST_CODE && i < size; i++)
            if (rules[i].letter == (char)code)
                at = i;
        set_value(&rules[at], optarg);
    }
    return optind;
}
