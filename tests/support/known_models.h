/* Architectures of published models, as their configuration files give them, for tests with known answers. */
#ifndef TANDEM_TESTS_SUPPORT_KNOWN_MODELS_H
#define TANDEM_TESTS_SUPPORT_KNOWN_MODELS_H

#include "model/architecture.h"

/* "DeepSeek-R1", "Qwen3-235B-A22B", ...; ends the test process for a name that is not there. */
const struct architecture *known_model(const char *name);

#endif
