/* A server that does what it is told, byte for byte, on a port of the loopback: for clients that must stand
 * anything. */
#ifndef TANDEM_TESTS_SUPPORT_SCRIPTED_SERVER_H
#define TANDEM_TESTS_SUPPORT_SCRIPTED_SERVER_H

#include <stdint.h>

enum script_action {
    SCRIPT_SEND = 1,   /* text */
    SCRIPT_DRIP = 2,   /* text, a byte at a time */
    SCRIPT_WAIT = 3,   /* ms */
    SCRIPT_HALF = 4,   /* shuts its side down and goes on */
    SCRIPT_RESET = 5,  /* the connection breaks */
    SCRIPT_UNREAD = 6, /* first of all: closes without reading the request */
};

/* Ends with an action of 0: the connection is closed. */
struct script_step {
    enum script_action action;
    const char *text;
    uint32_t ms;
};

struct scripted_server;

/* Each connection gets the next script, the last one again and again. Scripts end with NULL, and are borrowed. */
struct scripted_server *scripted_server_start(const struct script_step *const *scripts);
uint16_t scripted_server_port(const struct scripted_server *server);
uint32_t scripted_server_connections(struct scripted_server *server); /* so far */
void scripted_server_stop(struct scripted_server *server);

#endif
