/* Bytes of a user's files: only regular ones, never more than is allowed, and none that are missing pass for an end. */
#define _POSIX_C_SOURCE 200809L

#include "host/input.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/tandem_input_XXXXXX";

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_bytes(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void refuse(const char *path, size_t bytes_max, const char *expected)
{
    struct user_error error = {.set = false};
    size_t size;
    assert_null(input_all(path, bytes_max, &size, &error));
    assert_memory_equal(error.text, path, strlen(path));
    if (strstr(error.text, expected) == NULL)
        fail_msg("%s\nexpected: %s", error.text, expected);
}

static void test_kinds(void **state)
{
    (void)state;
    alarm(20); /* to wait for a writer is to fail */
    assert_int_equal(mkfifo(path_of("fifo"), 0600), 0);
    refuse(path_of("fifo"), 100, "cannot be read: it is a pipe, expected a regular file");
    refuse("/dev/zero", 100, "cannot be read: it is a device, expected a regular file");
    refuse(folder, 100, "cannot be read: Is a directory");
    refuse(path_of("absent"), 100, "cannot be read: No such file or directory");
    struct user_error error = {.set = false};
    assert_null(input_file(path_of("fifo"), &error));
    assert_true(error.set);
    alarm(0);
    unlink(path_of("fifo"));
}

static void test_bounds(void **state)
{
    (void)state;
    static char zeros[1 << 20];
    static unsigned char packed[1 << 16];
    struct input_part part = {.bytes = zeros, .size = sizeof zeros};
    struct user_error error = {.set = false};
    size_t used = 0;
    size_t size = 0;
    assert_true(input_pack(&part, 1, 6, packed, sizeof packed, &used));
    write_bytes(path_of("zeros"), packed, used);
    char *bytes = input_all(path_of("zeros"), sizeof zeros, &size, &error);
    assert_non_null(bytes);
    assert_int_equal(size, sizeof zeros);
    free(bytes);
    refuse(path_of("zeros"), sizeof zeros - 1, "larger than such a file may be");
    for (size_t cut = used - 1; cut > 8; cut -= cut / 3) {
        write_bytes(path_of("zeros"), packed, cut);
        refuse(path_of("zeros"), sizeof zeros, "a compressed file damaged or truncated");
    }
    write_bytes(path_of("zeros"), "", 0);
    bytes = input_all(path_of("zeros"), 0, &size, &error);
    assert_non_null(bytes);
    assert_int_equal(size, 0);
    free(bytes);
    unlink(path_of("zeros"));
}

static void test_pack(void **state)
{
    (void)state;
    unsigned char packed[4096];
    struct input_part parts[] = {{.bytes = "abc", .size = 3}, {.bytes = "", .size = 0}, {.bytes = "defg", .size = 4}};
    size_t used = 0;
    assert_true(input_pack(parts, 3, 6, packed, sizeof packed, &used));
    char *bytes = input_unpack(packed, used, 7);
    assert_non_null(bytes);
    assert_memory_equal(bytes, "abcdefg", 7);
    free(bytes);
    assert_null(input_unpack(packed, used, 6));
    assert_null(input_unpack(packed, used, 8));
    assert_null(input_unpack(packed, used - 1, 7));
    assert_false(input_pack(parts, 3, 6, packed, 4, &used));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_pack),
    };
    if (mkdtemp(folder) == NULL)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
