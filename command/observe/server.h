/*
 * Server: answers GET and HEAD of one path over HTTP/1.1, one request a connection.
 *
 * It reads at most 32 connections at once, so that one that sends nothing delays no other. A request is bounded in bytes
 * and time; only its first line counts.
 */
#ifndef BACKHOP_COMMAND_SERVER_H
#define BACKHOP_COMMAND_SERVER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { SERVER_MOST_CLIENTS = 32, SERVER_MOST_REQUEST = 8192 };

typedef struct server_client {
    int fd; /* -1: a free place */
    size_t used;
    int64_t until_ms; /* monotonic: when it is closed without an answer */
    char request[SERVER_MOST_REQUEST + 1];
} server_client;

typedef struct server {
    const char *path;                     /* as "/metrics" */
    const char *type;                     /* the answer's content type */
    void (*write)(void *data, FILE *out); /* writes an answer's body */
    void *data;                           /* for `write` */
    int socket;
    server_client *clients; /* owned */
} server;

/* Listens at host:port, [address]:port, or :port for this machine alone. Returns 0 after it complained. */
int server_open(server *self, const char *address);
void server_close(server *self);
/* Prints the URL that it serves to standard error. */
void server_print_url(const server *self);
/* Waits for requests, or until `other_fd` (-1: none) is readable, at most `limit_ms`; answers complete requests. */
void server_poll(server *self, int other_fd, int limit_ms);

#endif
