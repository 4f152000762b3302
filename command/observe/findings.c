/* backhop doctor: prints findings, as text or as JSON. */
#include "observe/findings.h"

#include "common/output.h"

#include <stdio.h>

static void print_painted(ink colour, const char *word)
{
    printf("%s%s%s", paint(colour), word, paint(PLAIN));
}

void doctor_find(doctor *self, int is_serious, const char *what, const char *meaning, const char *advice)
{
    self->findings++;
    self->serious += is_serious;
    if (self->json) {
        print_json(must(json_pack("{s:s, s:o, s:o, s:o}", "severity", is_serious ? "problem" : "note", "finding",
                                  json_text(bh_str(what)), "meaning", json_text(bh_str(meaning)), "advice",
                                  json_text(bh_str(advice)))));
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
    char advice[400];
    snprintf(advice, sizeof advice, "run 'backhop topology declare %s'", bh_topology_queue(topology).data);
    doctor_find(self, 1, what, meaning, advice);
}

void doctor_praise(const doctor *self, const char *what)
{
    if (self->json)
        return;
    print_painted(GREEN, "ok");
    say(" %s\n", what);
}
