/* Whole real runs on the CUDA device, over the emulation: every process of a run has an emulated GPU or several, whose
 * memory is exported, imported and staged as on real ones. Tokens are held against the host device.
 */
#define _POSIX_C_SOURCE 200809L
#include "cuda/cuda_emulation.h"
#include "cli/real/run_real.h"
#include "support/real_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GQA "scenarios/real-gqa-2p2d.lua"
#define MLA "scenarios/real-mla-dp.lua"

/* How far below the host's greatest logit a chosen one may be: see test_cuda_device.c. */
#define LOGIT_TOLERANCE 0.2f

static void run_and_compare(const char *scenario, const char *const *options, const char *gpus, uint32_t instances,
                            uint64_t completed, const char *said)
{
    struct real_run run;
    struct run_report report;
    setenv(EMULATED_GPUS_VARIABLE, gpus, 1);
    real_run_start(&run, scenario, options);
    bool seen = real_run_processes(&run, instances);
    assert_int_equal(real_run_wait(&run, 0), 0);
    unsetenv(EMULATED_GPUS_VARIABLE);
    assert_true(seen);
    real_run_read(&run, &report);
    assert_int_equal(report.completed, completed);
    run_report_free(&report);
    assert_true(real_run_logged(&run, said));
    uint32_t exact = 0;
    uint32_t tokens = real_run_check_tokens_near(&run, scenario, options, LOGIT_TOLERANCE, &exact);
    print_message("%u of %u tokens are the host's\n", exact, tokens);
    assert_true(tokens >= completed && exact * 10 >= tokens * 8);
    real_run_left_nothing(&run);
    real_run_free(&run);
}

/* Prefillers of two ranks that add up in each other's memory; two GPUs for six ranks. */
static void gqa_is_staged(void **state)
{
    (void)state;
    static const char *const options[] = {"--device=cuda",
                                          "--provider=tcp",
                                          "--verify",
                                          "--set=load.requests=6",
                                          "--set=load.prompt=uniform(1,70)",
                                          "--set=load.output=uniform(1,6)",
                                          "--set=messenger.deadline=s(100)",
                                          "--set=expect=nil",
                                          "--limit=200",
                                          NULL};
    run_and_compare(GQA, options, "2", 4, 6, "6 ranks on 2 cuda devices: several share one");
}

/* One GPU: sums go through the host. Attention groups on the decoder. */
static void mla_with_groups_is_staged(void **state)
{
    (void)state;
    static const char *const options[] = {"--device=cuda",
                                          "--provider=shm",
                                          "--verify",
                                          "--set=load.requests=4",
                                          "--set=load.prompt=uniform(1,70)",
                                          "--set=load.output=uniform(1,5)",
                                          "--set=messenger.deadline=s(100)",
                                          "--set=expect=nil",
                                          "--limit=200",
                                          NULL};
    run_and_compare(MLA, options, "1", 2, 4, "memory of devices goes through pinned memory");
}

static void absent_devices_are_said_at_once(void **state)
{
    (void)state;
    static const char *const options[] = {"--device=cuda", "--provider=shm", NULL};
    struct real_run run;
    setenv(EMULATED_GPUS_VARIABLE, "0", 1);
    real_run_start(&run, GQA, options);
    assert_int_equal(real_run_wait(&run, 2), 2);
    unsetenv(EMULATED_GPUS_VARIABLE);
    assert_true(real_run_logged(&run, "--device: cuda: no CUDA driver: cudaGetDeviceCount says"));
    real_run_free(&run);
}

int main(int argc, char **argv)
{
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gqa_is_staged),
        cmocka_unit_test(mla_with_groups_is_staged),
        cmocka_unit_test(absent_devices_are_said_at_once),
    };
    return cmocka_run_group_tests_name("cuda_run", tests, NULL, NULL);
}
