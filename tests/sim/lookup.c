#include "worker/wire/lookup.h"

#include "network.h"
#include "schedule.h"

#include <stdlib.h>

struct bh__lookup {
    int fd;
    int is_unknown;
};

bh__lookup *bh__lookup_begin(int *fd, const bh__uri *uri)
{
    (void)uri;
    bh__lookup *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->fd = *fd = network_look_up();
    self->is_unknown = network_weather_now.is_unknown;
    return self;
}

int bh__lookup_is_done(bh__lookup *self)
{
    return network_is_done(self->fd);
}

int bh__lookup_end(bh__lookup *self, struct addrinfo **out)
{
    /* freeaddrinfo frees what only getaddrinfo makes. A number needs no name service. */
    static const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    int is_done = bh__lookup_is_done(self), is_unknown = self->is_unknown;
    *out = NULL;
    free(self);
    if (!is_done)
        return EAI_AGAIN;
    return is_unknown ? EAI_NONAME : getaddrinfo("127.0.0.1", "5672", &hints, out);
}
