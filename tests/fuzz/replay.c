/* Stands in for libFuzzer where the compiler has none: runs a fuzz target over every file of the folders named on the
 * command line, in the order of their names, so that gcc and ctest replay each corpus. */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each input is copied to a block of exactly its size, so that the address sanitizer sees a read past its end. */
static void run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(2);
    }
    long end = ftell(file);
    size_t size = end < 0 ? 0 : (size_t)end;
    uint8_t *data = malloc(size > 0 ? size : 1);
    rewind(file);
    if (end < 0 || data == NULL || fread(data, 1, size, file) != size) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(2);
    }
    fclose(file);
    fprintf(stderr, "%s\n", path);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
}

int main(int argc, char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        struct dirent **entries;
        int entry_count = scandir(argv[i], &entries, NULL, alphasort);
        if (entry_count < 0) {
            fprintf(stderr, "%s: %s\n", argv[i], strerror(errno));
            return 2;
        }
        for (int entry = 0; entry < entry_count; entry++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[i], entries[entry]->d_name);
            if (entries[entry]->d_name[0] != '.') {
                run_file(path);
                count++;
            }
            free(entries[entry]);
        }
        free(entries);
    }
    /* A replay of nothing shows nothing. */
    return count > 0 ? 0 : 2;
}
