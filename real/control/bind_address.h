/* Which of its own addresses a process binds to. On several hosts every process is given the same command line, so what
 * is named there is a network.
 */
#ifndef TANDEM_REAL_CONTROL_BIND_ADDRESS_H
#define TANDEM_REAL_CONTROL_BIND_ADDRESS_H

#include "real/control/frame.h"
#include "host/user_error.h"

/* `text` is an IPv4 address ("10.0.0.7"), taken as it is, or a network ("10.0.0.0/24"): then the first address of this
 * host that lies in it. `address` has CONTROL_ADDRESS_BYTES. False with a sentence. */
bool bind_address(const char *text, char *address, struct user_error *error);

#endif
