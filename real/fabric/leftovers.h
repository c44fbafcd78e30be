/* The shm provider keeps 16 MiB an endpoint in /dev/shm and leaves it there when its process is killed. */
#ifndef TANDEM_REAL_FABRIC_LEFTOVERS_H
#define TANDEM_REAL_FABRIC_LEFTOVERS_H

#include <stdint.h>
#include <sys/types.h>

/* Removes regions of processes of this user that are no more. Returns how many. */
uint32_t leftovers_remove(void);

/* Removes the regions of one process, which must be dead or past its last use of the fabric. */
uint32_t leftovers_remove_of(pid_t process);

#endif
