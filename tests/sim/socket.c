#include "worker/wire/socket.h"

#include "network.h"
#include "schedule.h"

#include <errno.h>

int bh__socket_begin(bh__socket *self, const struct addrinfo *address)
{
    (void)address;
    *self = (bh__socket){.fd = network_connect()};
    return 1;
}

bh__step bh__socket_connected(const bh__socket *self)
{
    int connected = network_connected(self->fd);
    return connected > 0 ? BH__DONE : connected == 0 ? BH__AGAIN : BH__BROKEN;
}

bh_status bh__socket_begin_tls(bh__socket *self, const bh__uri *uri, const bh__tls_files *files, bh__report *report)
{
    (void)self, (void)uri, (void)files;
    return bh__report_set(report, BH_ERR_TLS, "the simulator has no TLS");
}

bh_status bh__socket_handshake(bh__socket *self, const bh__uri *uri, bh__step *step, bh__report *report)
{
    (void)step;
    return bh__socket_begin_tls(self, uri, NULL, report);
}

ssize_t bh__socket_read(bh__socket *self, char *data, size_t size)
{
    return network_read(self->fd, data, size);
}

ssize_t bh__socket_write(bh__socket *self, const char *data, size_t size)
{
    return network_write(self->fd, data, size);
}

void bh__socket_close(bh__socket *self)
{
    if (self->fd >= 0)
        network_close(self->fd);
    *self = (bh__socket){.fd = -1};
}
