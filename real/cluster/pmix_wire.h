/* Wire-up under mpirun or srun: the ranks of the job are the processes of the run. Rank 0 is the launcher, rank i the
 * instance of node i. PMIx carries one thing, the address of the front and the join token; everything else goes over
 * the control plane.
 */
#ifndef TANDEM_REAL_CLUSTER_PMIX_WIRE_H
#define TANDEM_REAL_CLUSTER_PMIX_WIRE_H

#include "real/control/frame.h"
#include "host/user_error.h"

struct pmix_wire {
    bool joined; /* this process is one of several of a job */
    uint32_t rank;
    uint32_t size;
    char near[4096]; /* ranks of the job on this machine, separated by commas */
};

/* Nothing joined where no PMIx server is named in the environment, or the job has one process. False with a sentence
 * when there is one and it does not answer. */
bool pmix_wire_join(struct pmix_wire *wire, struct user_error *error);
void pmix_wire_leave(struct pmix_wire *wire);

/* Whether a rank of the job is on this machine, as far as PMIx tells. */
bool pmix_wire_near(const struct pmix_wire *wire, uint32_t rank);

/* Both are called once, by rank 0 and by all others: they meet in it. */
bool pmix_wire_publish(void *wire, const char *address, uint16_t port, const unsigned char *token,
                       struct user_error *error);
bool pmix_wire_receive(struct pmix_wire *wire, char *address, uint16_t *port, unsigned char *token,
                       struct user_error *error);

#endif
