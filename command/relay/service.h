/* Service: what the relay reports to systemd and to its log. */
#ifndef BACKHOP_COMMAND_SERVICE_H
#define BACKHOP_COMMAND_SERVICE_H

#include <backhop/event.h>

/* Notifies systemd if NOTIFY_SOCKET is set (sd_notify(3)). */
void service_notify(const char *state);
/* Logs an event as a JSON object, on standard output. */
void service_log_json(const bh_event *event);
/* Logs an event as a line, unless the log holds it back. In the journal, which has a time of its
 * own, the line begins with the level. */
void service_log(bh_log *log, const bh_event *event);

#endif
