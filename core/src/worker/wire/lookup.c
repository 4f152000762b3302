#include "worker/wire/lookup.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PENDING, DONE, GIVEN_UP };

struct bh__lookup {
    pthread_mutex_t mutex; /* of `state`; valgrind's helgrind cannot follow an atomic */
    int state;             /* the last one that leaves frees the lookup */
    int done;              /* closed when it is done, which makes the other end readable */
    int error;
    struct addrinfo *addresses;
    char port[8];
    char host[];
};

static void destroy_lookup(bh__lookup *self)
{
    if (self->addresses)
        freeaddrinfo(self->addresses);
    pthread_mutex_destroy(&self->mutex);
    free(self);
}

static int state_of(bh__lookup *self)
{
    pthread_mutex_lock(&self->mutex);
    int state = self->state;
    pthread_mutex_unlock(&self->mutex);
    return state;
}

/* Sets the state, and returns the one before. */
static int change_state(bh__lookup *self, int state)
{
    pthread_mutex_lock(&self->mutex);
    int before = self->state;
    self->state = state;
    pthread_mutex_unlock(&self->mutex);
    return before;
}

static void *look_up(void *lookup)
{
    bh__lookup *self = lookup;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    int done = self->done;
    self->error = getaddrinfo(self->host, self->port, &hints, &self->addresses);
    if (change_state(self, DONE) == GIVEN_UP)
        destroy_lookup(self);
    close(done);
    return NULL;
}

static int start_lookup_thread(bh__lookup *self)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, look_up, self) != 0)
        return 0;
    pthread_detach(thread);
    return 1;
}

bh__lookup *bh__lookup_begin(int *fd, const bh__uri *uri)
{
    int ends[2];
    size_t size = strlen(uri->host) + 1;
    bh__lookup *self = calloc(1, sizeof *self + size);
    if (!self || pipe2(ends, O_CLOEXEC) != 0) {
        free(self);
        return NULL;
    }
    pthread_mutex_init(&self->mutex, NULL);
    self->done = ends[1];
    snprintf(self->port, sizeof self->port, "%d", uri->port);
    memcpy(self->host, uri->host, size);
    if (!start_lookup_thread(self)) {
        close(ends[0]);
        close(ends[1]);
        destroy_lookup(self);
        return NULL;
    }
    *fd = ends[0];
    return self;
}

int bh__lookup_is_done(bh__lookup *self)
{
    return state_of(self) == DONE;
}

int bh__lookup_end(bh__lookup *self, struct addrinfo **out)
{
    *out = NULL;
    if (change_state(self, GIVEN_UP) != DONE)
        return EAI_AGAIN; /* the thread frees it */
    int error = self->error;
    *out = self->addresses;
    self->addresses = NULL;
    destroy_lookup(self);
    return error;
}
