/* What runs the steps of an instance, as the loop sees it: its executors, or something simpler in a test. One launch of
 * each microbatch at a time; when one is over, fd is readable and `outcome` says what happened, launch by launch in
 * their order.
 */
#ifndef TANDEM_REAL_EXECUTOR_STEPPER_H
#define TANDEM_REAL_EXECUTOR_STEPPER_H

#include "real/device/device.h"
#include "real/executor/step_codec.h"

struct steps_outcome {
    uint32_t ticket;
    uint32_t steps;                    /* completed */
    int64_t start_ns;                  /* CLOCK_MONOTONIC */
    const int64_t *end_ns;             /* of each step */
    const struct device_token *tokens; /* of all steps, in order */
    uint32_t token_count;
    const char *trouble; /* a sentence: the launch failed and nothing more can be launched. Else NULL */
};

struct stepper_ops {
    /* Copies what it needs. `given`: tokens for the sequences that the launch names. counter_base: of the first step;
     * each step takes `stride` ticks. */
    void (*launch)(void *self, const struct step_launch *launch, const struct step_given *given, uint32_t given_count,
                   uint64_t counter_base);
    void (*end)(void *self); /* the repetition in progress, at the next step boundary; from the loop's thread */
    const struct steps_outcome *(*outcome)(void *self); /* after fd was readable, until NULL: no more is over. Valid
                                                           until the next launch of its microbatch */
};

struct stepper {
    const struct stepper_ops *ops; /* NULL: nothing can be launched (the front) */
    void *self;
    int fd;
    uint32_t stride; /* ticks of a layer counter per step */
};

#endif
