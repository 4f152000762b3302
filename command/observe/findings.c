/* backhop doctor: prints findings, as text or as JSON. */
#include "observe/findings.h"

#include "common/output.h"
#include "topology/internal.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_KEY = 3500 };

static void print_painted(ink colour, const char *word)
{
    printf("%s%s%s", paint(colour), word, paint(PLAIN));
}

/* Returns the first command that the advice has in quotation marks; NULL: none. A quotation mark of
 * a name is escaped. */
static json_t *command_of(const char *advice)
{
    static const char *const programs[] = {"'backhop ", "'rabbitmqctl "};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        const char *at = strstr(advice, programs[i]);
        first = at && (!first || at < first) ? at : first;
    }
    size_t size = 0;
    while (first && first[1 + size] && first[1 + size] != '\'')
        size += first[1 + size] == '\\' && first[2 + size] ? 2 : 1;
    return first ? json_text((bh_bytes){first + 1, size}) : json_null();
}

int doctor_is_new(doctor *self, const char *kind, const char *name)
{
    char key[LONGEST_KEY];
    snprintf(key, sizeof key, "%s %s", kind, name);
    if (json_object_get(self->examined, key))
        return 0;
    json_object_set_new(self->examined, key, json_true());
    return 1;
}

void doctor_find(doctor *self, int is_serious, const char *what, const char *meaning, const char *advice)
{
    self->findings++;
    self->serious += is_serious;
    if (self->json) {
        print_json(must(json_pack("{s:s, s:o, s:o, s:o, s:o}", "severity", is_serious ? "problem" : "note", "finding",
                                  json_text(bh_str(what)), "meaning", json_text(bh_str(meaning)), "advice",
                                  json_text(bh_str(advice)), "command", command_of(advice))));
        return;
    }
    print_painted(is_serious ? RED : YELLOW, is_serious ? "problem" : "note");
    say(" %s\n", what);
    if (*meaning)
        say("  %s\n", meaning);
    if (*advice)
        say("  What to do: %s\n", advice);
}

void doctor_find_missing(doctor *self, const bh_topology *topology, const char *what, const char *meaning)
{
    char advice[ARGUMENT_TEXT + 160], name[ARGUMENT_TEXT];
    snprintf(advice, sizeof advice, "run 'backhop topology declare %s'%s",
             show_argument(name, bh__topology_queue(topology).data),
             self->policy.file
                 ? ""
                 : "; first, if its policy is not the default one, check with --policy FILE: other delays "
                   "have other wait queues");
    doctor_find(self, 1, what, meaning, advice);
}

void doctor_praise(const doctor *self, const char *what)
{
    if (self->json)
        return;
    print_painted(GREEN, "ok");
    say(" %s\n", what);
}
