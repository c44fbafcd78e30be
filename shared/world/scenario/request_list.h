/* Requests that a scenario lists one by one (`load = listed { ... }`). */
#ifndef TANDEM_WORLD_SCENARIO_REQUEST_LIST_H
#define TANDEM_WORLD_SCENARIO_REQUEST_LIST_H

#include <stdint.h>

struct listed_request {
    int64_t at_ns;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t family;        /* those of one family begin with the same blocks; 0: shares nothing */
    uint32_t shared_blocks; /* that do so; the blocks behind them are the request's own */
    int64_t leaves_ns;      /* its client goes away so long after the arrival; TIME_NEVER: never */
    int64_t deadline_ns;    /* of the first token, from the arrival; 0: none */
};

#define LISTED_REQUESTS_MAX 4096

/* Owned by the scenario that it was read from or drawn for. In order of arrival. */
struct request_list {
    uint32_t count;
    struct listed_request item[LISTED_REQUESTS_MAX];
};

#endif
