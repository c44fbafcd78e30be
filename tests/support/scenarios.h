/* Scenarios in plain numbers for tests of what stands behind the loader. */
#ifndef TANDEM_TESTS_SUPPORT_SCENARIOS_H
#define TANDEM_TESTS_SUPPORT_SCENARIOS_H

#include "world/scenario/scenario.h"

/* Llama-3.1-70B in fp8 on H100 TP4, `prefill` prefillers and `decode` decoders; Poisson arrivals at `rate` a second,
 * prompts uniform in 512..2048, outputs in 128..256. */
void scenario_llama_70b(struct scenario *scenario, uint32_t prefill, uint32_t decode, uint32_t rate, uint32_t requests);

/* The same machines in one pool that prefills and decodes. */
void scenario_llama_70b_mixed(struct scenario *scenario, uint32_t mixed, uint32_t rate, uint32_t requests);

#endif
