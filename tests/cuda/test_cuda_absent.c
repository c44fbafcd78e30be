/* Without a driver the CUDA device says so in one sentence, and nothing else breaks. Linked with the real CUDA runtime;
 * where there is a GPU it has nothing to show and says that it is skipped.
 */
#include "real/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void absent_device_says_so_in_one_sentence(void **state)
{
    (void)state;
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) {
        print_message("skipped: there is a CUDA driver\n");
        skip();
    }
    struct architecture architecture = {.attention = ATTENTION_GQA,
                                        .layers = 2,
                                        .hidden = 64,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = 16,
                                        .vocab = 100,
                                        .intermediate = 96,
                                        .kv_format = FORMAT_BF16};
    struct device_config config = {.architecture = &architecture,
                                   .memory = {.pages = 4},
                                   .sequences_max = 2,
                                   .tokens_max = 16,
                                   .request_tokens_max = 32};
    struct parallelism parallelism = {1, 1, 1, 1};
    assert_int_equal(kv_geometry_make(&architecture, parallelism, 8, LAYOUT_HND, &config.memory.geometry), GEOMETRY_OK);
    struct user_error error = {.set = false};
    assert_null(device_cuda.make(&config, &error));
    assert_non_null(strstr(error.text, "no CUDA driver: cudaGetDeviceCount says "));
    assert_null(strchr(error.text, '\n'));
    assert_true(strlen(error.text) > strlen("no CUDA driver: cudaGetDeviceCount says "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(absent_device_says_so_in_one_sentence)};
    return cmocka_run_group_tests_name("cuda_absent", tests, NULL, NULL);
}
