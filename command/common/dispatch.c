/* backhop: finds the sub-command that the arguments name, and prints the list of them. */
#include "common/command.h"

#include "common/options.h"
#include "common/output.h"

#include <stdio.h>
#include <string.h>
#include <sysexits.h>

static void print_table(const command *table, size_t size)
{
    for (size_t i = 0; i < size; i++)
        print_wrapped(table[i].summary, printf("  %-9s ", table[i].name), 12);
}

static int help(const char *whole, const char *first, const command *table, size_t size, const char *last)
{
    printf("Usage: %s COMMAND [OPTION...]\n", whole);
    print_wrapped(first, 0, 0);
    putchar('\n');
    print_table(table, size);
    printf("\n'%s COMMAND --help' shows the options of each.\n", whole);
    print_wrapped(last, 0, 0);
    return output_end(EX_OK);
}

int command_dispatch(const char *whole, const char *first, const command *table, size_t size, const char *last,
                     int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return help(whole, first, table, size, last);
    for (size_t i = 0; i < size; i++)
        if (strcmp(name, table[i].name) == 0) {
            char typed[128];
            snprintf(typed, sizeof typed, "%s %s", whole, name);
            options_name(typed);
            return table[i].run(count - 1, arguments + 1);
        }
    if (*name)
        complain("there is no command '%s'", name);
    else
        complain("which command?");
    fprintf(stderr, "'%s --help' lists them.\n", whole);
    return EX_USAGE;
}
