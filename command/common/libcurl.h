/* libcurl's header, if it is installed. Internal. */
#ifndef BACKHOP_COMMAND_LIBCURL_H
#define BACKHOP_COMMAND_LIBCURL_H

#if __has_include(<curl/curl.h>)
#include <curl/curl.h>
#define HAS_LIBCURL 1
#else
#define HAS_LIBCURL 0
#endif

#endif
