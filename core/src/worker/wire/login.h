/* Login: what is said between the protocol header and connection.open. Internal. */
#ifndef BACKHOP_WORKER_WIRE_LOGIN_H
#define BACKHOP_WORKER_WIRE_LOGIN_H

#include "wire/link.h"
#include "wire/uri.h"

/* connection.start has come, as link->reply: keeps who the broker is, and writes who we are; `name` is the connection's. */
void bh__login_introduce(bh__link *link, const bh__uri *uri, const char *name);
/* connection.tune has come, as link->reply: agrees, on `channel_max` channels at most. */
void bh__login_tune(bh__link *link, const bh__uri *uri, int channel_max);
/* Puts into words why there is no login, from what the report says already. Returns BH_ERR_ACCESS, or the report's status. */
bh_status bh__login_explain(const bh__link *link, const bh__uri *uri, bh__report *problem);

#endif
