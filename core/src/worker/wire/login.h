/* Login: the methods between the protocol header and connection.open. Internal. */
#ifndef BACKHOP_WORKER_WIRE_LOGIN_H
#define BACKHOP_WORKER_WIRE_LOGIN_H

#include "worker/wire/link.h"
#include "worker/wire/uri.h"

/* Answers connection.start, which is in link->reply: records the broker's version, and sends the
 * user. With a client certificate and a URI without a user, the mechanism is EXTERNAL, else PLAIN.
 * Fails the link with BH_ERR_ACCESS if the broker does not offer it. name: of the connection. */
void bh__login_introduce(bh__link *link, const bh__uri *uri, int has_certificate, const char *name);
/* Answers connection.tune, which is in link->reply. channel_max: the most channels. */
void bh__login_tune(bh__link *link, const bh__uri *uri, int channel_max);
/* Explains a failed login, from what the report has already. Returns BH_ERR_CONNECTION if only a
 * limit or a stopped vhost refuses it, BH_ERR_ACCESS, or the report's status. */
bh_status bh__login_explain(const bh__link *link, const bh__uri *uri, bh__report *problem);

#endif
