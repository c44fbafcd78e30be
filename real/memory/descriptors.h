/* Descriptors of device memory on their way between an instance and an executor: over a socket pair of the kind
 * SOCK_SEQPACKET, one to a message, with a number that says whose it is.
 */
#ifndef TANDEM_REAL_MEMORY_DESCRIPTORS_H
#define TANDEM_REAL_MEMORY_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

#define DESCRIPTOR_END UINT32_MAX /* a number for "no more come" */

/* -1 is sent as nothing. The descriptor stays the caller's. */
bool descriptor_send(int socket, uint32_t number, int descriptor);

/* *descriptor becomes the caller's to close, or -1. False when the other end is gone. */
bool descriptor_receive(int socket, uint32_t *number, int *descriptor);

#endif
