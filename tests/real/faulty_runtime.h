/* A runtime over the real one that makes things go wrong, drawn from a seed: in every process of a run whose
 * environment has TANDEM_FAULT_SEED, the node is made on it and entered through it. Its program is linked with
 * real_runtime_make() and real_runtime_seam() wrapped (tests/CMakeLists.txt); the product knows nothing of it.
 *
 * What goes wrong, and when, is the list of faults that the swarm draws from the same seed, as far as real_draw.h
 * leaves it: each process plays those that are about itself.
 */
#ifndef TANDEM_TESTS_REAL_FAULTY_RUNTIME_H
#define TANDEM_TESTS_REAL_FAULTY_RUNTIME_H

#define INJECT_SEED "TANDEM_FAULT_SEED"

#endif
