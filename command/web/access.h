/* Access: which requests are let in, decided from their headers. Pure: no socket, no clock. Headers
 * are untrusted input. */
#ifndef BACKHOP_COMMAND_WEB_ACCESS_H
#define BACKHOP_COMMAND_WEB_ACCESS_H

#include "common/options.h"

/*
 * Returns 1 if the value of a Host header may reach this program: localhost, an address in digits,
 * or one of `names`. A page that rebinds its own name to this machine sends that name. Ports do not
 * count.
 *
 * host: NULL if the header is missing, which is refused.
 */
int access_allows_host(const char *host, const texts *names);
/* Returns 1 if the value of an Origin header is http:// or https:// and the value of the Host
 * header. */
int access_is_same_origin(const char *origin, const char *host);
/*
 * Returns 1 if a page of this program made the request: Sec-Fetch-Site is "same-origin". If that
 * header is missing, Origin has to be of the same host. A request that changes nothing may lack
 * both, or may be typed by the user ("none").
 *
 * Missing headers are NULL.
 */
int access_is_own_page(const char *fetch_site, const char *origin, const char *host, int is_change);
/* Returns 1 if both texts are the same. Takes as long for each text of this length. NULL fits
 * nothing. */
int access_is_secret(const char *text, const char *secret);

#endif
