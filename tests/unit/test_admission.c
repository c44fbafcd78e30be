/* Whether a request may enter: the limits, alone and together, at their edges. */
#include "serve/admission.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/arith.h"

static enum reject_reason check(const struct admission_policy *policy, uint64_t queued, uint32_t own)
{
    return admission_check(policy,
                           &(struct admission_outlook){.queued_tokens = queued, .tokens_to_first = queued + own});
}

static void test_no_policy_admits_all(void **state)
{
    (void)state;
    const struct admission_policy policy = {0};
    assert_int_equal(check(&policy, 0, 1), REJECT_NONE);
    assert_int_equal(check(&policy, UINT64_MAX - 1, UINT32_MAX), REJECT_NONE);
}

static void test_queued_tokens(void **state)
{
    (void)state;
    const struct admission_policy policy = {.queued_tokens_max = 1000};
    assert_int_equal(check(&policy, 1000, UINT32_MAX), REJECT_NONE); /* its own prompt does not count */
    assert_int_equal(check(&policy, 1001, 1), REJECT_ADMISSION);
    assert_int_equal(check(&policy, UINT64_MAX - 1, 1), REJECT_ADMISSION);
}

static void test_the_expected_wait(void **state)
{
    (void)state;
    /* A thousand tokens a second: a millisecond a token. */
    const struct admission_policy policy = {.ttft_limit_ns = 2 * NS_PER_S, .prefill_tokens_per_s = 1000};
    assert_int_equal(check(&policy, 0, 2000), REJECT_NONE); /* exactly the limit */
    assert_int_equal(check(&policy, 0, 2001), REJECT_ADMISSION);
    assert_int_equal(check(&policy, 1500, 500), REJECT_NONE); /* the queue and its own prompt */
    assert_int_equal(check(&policy, 1501, 500), REJECT_ADMISSION);
}

static void test_a_wait_is_rounded_up(void **state)
{
    (void)state;
    /* A token takes 333 333 333 1/3 ns. */
    struct admission_policy policy = {.ttft_limit_ns = 333333333, .prefill_tokens_per_s = 3};
    assert_int_equal(check(&policy, 0, 1), REJECT_ADMISSION);
    policy.ttft_limit_ns++;
    assert_int_equal(check(&policy, 0, 1), REJECT_NONE);
}

static void test_a_limit_without_a_rate_expects_nothing(void **state)
{
    (void)state;
    const struct admission_policy policy = {.ttft_limit_ns = 1};
    assert_int_equal(check(&policy, 1000000, 1000), REJECT_NONE);
}

static void test_either_limit_turns_away(void **state)
{
    (void)state;
    const struct admission_policy policy = {
        .ttft_limit_ns = NS_PER_S,
        .prefill_tokens_per_s = 1000,
        .queued_tokens_max = 500,
    };
    assert_int_equal(check(&policy, 500, 500), REJECT_NONE);
    assert_int_equal(check(&policy, 501, 1), REJECT_ADMISSION);
    assert_int_equal(check(&policy, 500, 501), REJECT_ADMISSION);
}

static void test_the_load_of_decoders(void **state)
{
    (void)state;
    const struct admission_policy policy = {.decode_load_max_permille = 900};
    assert_int_equal(admission_check(&policy, &(struct admission_outlook){.decode_load_permille = 900}), REJECT_NONE);
    assert_int_equal(admission_check(&policy, &(struct admission_outlook){.decode_load_permille = 901}),
                     REJECT_ADMISSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_policy_admits_all),
        cmocka_unit_test(test_queued_tokens),
        cmocka_unit_test(test_the_expected_wait),
        cmocka_unit_test(test_a_wait_is_rounded_up),
        cmocka_unit_test(test_a_limit_without_a_rate_expects_nothing),
        cmocka_unit_test(test_either_limit_turns_away),
        cmocka_unit_test(test_the_load_of_decoders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
