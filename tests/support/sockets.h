/* Breaking a TCP connection between two other processes, as a NIC that fails does. */
#ifndef TANDEM_TESTS_SUPPORT_SOCKETS_H
#define TANDEM_TESTS_SUPPORT_SOCKETS_H

#include <stdint.h>
#include <sys/types.h>

/* Shuts down the connections of process `from` to one of the ports that process `to` listens at: the lowest to which
 * there is one. Both must be descendants of the caller. Returns how many connections were broken. */
uint32_t sockets_break_one(pid_t from, pid_t to);

#endif
