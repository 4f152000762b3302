#include "relay/service.h"

#include "common/command.h"
#include "common/output.h"
#include "worker/wire/clock.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

void service_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof address.sun_path)
        return;
    memcpy(address.sun_path, path, strlen(path));
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (sendto(descriptor, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address, size) < 0)
        complain("systemd could not be notified: %s", state);
    close(descriptor);
}

/* -------------------------------------------------------------------------------------- logging */

static int level_of(const bh_event *event)
{
    static const int levels[] = {[BH_LEVEL_DEBUG] = LOG_DEBUG,
                                 [BH_LEVEL_INFO] = LOG_INFO,
                                 [BH_LEVEL_WARNING] = LOG_WARNING,
                                 [BH_LEVEL_ERROR] = LOG_ERR};
    return levels[bh_event_level(event)];
}

void service_log_json(const bh_event *event)
{
    json_t *line = must(json_pack("{s:I, s:o}", "time_ms", (json_int_t)bh__epoch_ms(), "event",
                                  json_text(bh_event_name(bh_event_what(event)))));
    for (int each = 0; each < BH_FIELD_LAST; each++) {
        bh_field field = (bh_field)each;
        if (!bh_event_has(event, field))
            continue;
        json_t *value = bh_event_field_is_string(each) ? json_text(bh_event_string(event, field))
                                                       : must(json_integer((json_int_t)bh_event_int(event, field)));
        json_object_set_new(line, bh_event_field(each).data, value);
    }
    print_json(line);
    fflush(stdout);
}

void service_log(bh_log *log, const bh_event *event)
{
    char start[TIME_TEXT] = "";
    bh_bytes line = bh_log_line(log, event, bh__monotonic_ms());
    if (line.size == 0)
        return;
    if (getenv("JOURNAL_STREAM"))
        snprintf(start, sizeof start, "<%d>", level_of(event));
    else
        show_time(start, bh__epoch_ms());
    fprintf(stderr, "%s%s%s\n", start, start[0] == '<' ? "" : " ", line.data);
}
