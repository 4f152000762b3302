#include "parked/actions.h"

#include "common/output.h"
#include "worker/wire/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

/* Returns the user of this process; behind sudo, the one who called it. */
static const char *user_name(const action_options *options)
{
    if (options->user)
        return options->user;
    const char *caller = getenv("SUDO_USER");
    const struct passwd *entry = getpwuid(getuid());
    if (caller && *caller)
        return caller;
    return entry ? entry->pw_name : "";
}

/* Appends one line in one write, so that lines of several programs do not mix. */
static int write_line(const action *self, const json_t *object)
{
    char *text = must(json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII)), *line; /* see print_json */
    int size = asprintf(&line, "%s\n", text);
    must(size < 0 ? NULL : line);
    int is_written = write(self->fd, line, (size_t)size) == size && (fsync(self->fd) == 0 || errno == EINVAL);
    if (!is_written)
        complain("%s cannot be written: %s", self->file, strerror(errno));
    free(line);
    free(text);
    return is_written;
}

static json_t *line_of(const action *self, const char *event)
{
    json_t *line =
        must(json_pack("{s:s, s:s, s:I}", "event", event, "id", self->id, "time_ms", (json_int_t)bh__epoch_ms()));
    json_object_update(line, self->facts);
    return line;
}

int action_begin(action *self, const action_options *options, json_t *facts)
{
    static const char hex[] = "0123456789abcdef";
    const char *file = options->file ? options->file : getenv("BACKHOP_HISTORY");
    *self = (action){.fd = -1, .file = file, .facts = must(facts)};
    random_digits(self->id, sizeof self->id);
    if (options->id && (strlen(options->id) >= sizeof self->id || strspn(options->id, hex) != strlen(options->id)))
        options_refuse("--action-id: '%s' is not up to 16 of 0-9 and a-f", options->id);
    if (options->id)
        snprintf(self->id, sizeof self->id, "%s", options->id);
    json_object_set_new(self->facts, "user", json_text(bh_str(user_name(options))));
    if (!file || !*file)
        return EX_OK;
    self->fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (self->fd < 0)
        complain("the history %s cannot be opened: %s; nothing was done", file, strerror(errno));
    json_t *line = line_of(self, "begun");
    int is_written = self->fd >= 0 && write_line(self, line);
    json_decref(line);
    if (is_written)
        return EX_OK;
    if (self->fd >= 0)
        close(self->fd);
    json_decref(self->facts);
    *self = (action){.fd = -1};
    return EX_CANTCREAT;
}

void action_end(action *self, int code, json_t *results)
{
    if (self->facts && self->fd >= 0) {
        json_t *line = line_of(self, "ended");
        json_object_update(line, results);
        json_object_set_new(line, "code", json_integer(code));
        write_line(self, line);
        json_decref(line);
        close(self->fd);
    }
    json_decref(results);
    json_decref(self->facts);
    *self = (action){.fd = -1};
}

int action_check(const action_options *options, int64_t count)
{
    if (options->expected < 0 || options->expected == count)
        return EX_OK;
    complain("%lld messages are selected now, and not %lld: nothing was done; count them again", (long long)count,
             (long long)options->expected);
    return EX_TEMPFAIL;
}
