/* Leave-one-out errors of every shipped table, as they were last accepted: interpolation that gets worse, or a pack
 * that changes, shows here. Tables beyond the targets (median 4 %, p90 15 %) are marked. */
#include "sim/cost/kernel_store.h"
#include "sim/validate/kernels.h"
#include "support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define ROWS_MAX 2000
#define TEXT_SIZE ((size_t)1 << 16)

static void test_errors(void **state)
{
    (void)state;
    static const char *const gpus[] = {"A100", "B200", "GB200", "H100", "H200"};
    char *text = malloc(TEXT_SIZE);
    assert_non_null(text);
    size_t used = (size_t)snprintf(text, TEXT_SIZE, "%-5s %-24s %-24s %7s %7s %7s %6s %6s\n", "GPU", "table", "engine",
                                   "rows", "tested", "median", "p90", "bias");
    for (size_t g = 0; g < sizeof gpus / sizeof gpus[0]; g++) {
        const struct kernel_store *store = kernel_store_open("", gpus[g]);
        assert_true(kernel_store_size(store) >= 10);
        for (uint32_t i = 0; i < kernel_store_size(store); i++) {
            struct user_error error = {.set = false};
            struct kernel_errors errors;
            const struct kernel_table *table = kernel_store_at(store, i, &error);
            if (table == NULL)
                fail_msg("%s", error.text);
            kernel_errors_of(table, ROWS_MAX, &errors);
            bool met = errors.median_permille <= 40 && errors.p90_permille <= 150;
            char engine[64];
            snprintf(engine, sizeof engine, "%s %s", table->origin.engine, table->origin.version);
            used += (size_t)snprintf(
                text + used, TEXT_SIZE - used, "%-5s %-24s %-24s %7u %7u %6.1f%% %5.1f%% %+5.1f%%%s\n", gpus[g],
                table->kind->name, engine, table->row_count, errors.tested, errors.median_permille / 10.0,
                errors.p90_permille / 10.0, errors.bias_permille / 10.0, met ? "" : "  beyond the target");
            assert_true(used < TEXT_SIZE);
        }
    }
    assert_golden("kernel_errors", text);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
