/* See input.h. */
#define _POSIX_C_SOURCE 200809L

#include "host/input.h"
#include "host/memory.h"

#include "base/arith.h"
#include "base/check.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES ((size_t)64 * 1024)

struct input {
    struct archive *archive;
    uint64_t left; /* of the bound */
    int fd;        /* -1: memory */
    bool ended;
    char name[]; /* for errors */
};

/* ---- Files ----------------------------------------------------------------------------------------------------- */

static const char *kind_of(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a pipe";
    if (S_ISCHR(mode) || S_ISBLK(mode))
        return "a device";
    return "a socket";
}

/* A descriptor of a regular file. Opening waits for nobody, be it a FIFO without a writer. */
static int open_regular(const char *path, struct user_error *error)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &status) != 0) {
        user_error_set(error, path, 0, NULL, "cannot be read: %s", strerror(errno));
    } else if (S_ISDIR(status.st_mode)) {
        user_error_set(error, path, 0, NULL, "cannot be read: %s", strerror(EISDIR));
    } else if (!S_ISREG(status.st_mode)) {
        user_error_set(error, path, 0, NULL, "cannot be read: it is %s, expected a regular file",
                       kind_of(status.st_mode));
    } else {
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

FILE *input_file(const char *path, struct user_error *error)
{
    int fd = open_regular(path, error);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");
    CHECK(fd < 0 || file != NULL);
    return file;
}

/* ---- Readings -------------------------------------------------------------------------------------------------- */

/* Of bytes that do not come, even the first: opening looks into a compressed file. */
static void unreadable(const struct input *input, int line, struct user_error *error)
{
    const char *reason = archive_error_string(input->archive);
    user_error_set(error, input->name, line, NULL, "cannot be read, a compressed file damaged or truncated (%s)",
                   reason != NULL ? reason : "no reason given");
}

static struct input *input_new(const char *name, int fd, uint64_t bytes_max)
{
    size_t length = strlen(name) + 1;
    struct input *input = memory_get(sizeof *input + length);
    *input = (struct input){.archive = archive_read_new(), .left = bytes_max, .fd = fd};
    memcpy(input->name, name, length);
    CHECK(input->archive != NULL);
    archive_read_support_filter_xz(input->archive);
    archive_read_support_filter_gzip(input->archive);
    archive_read_support_filter_zstd(input->archive);
    archive_read_support_format_raw(input->archive);
    archive_read_support_format_empty(input->archive);
    return input;
}

/* Reads the head after an archive_read_open_*() that returned `opened`. */
static struct input *begin(struct input *input, int opened, struct user_error *error)
{
    struct archive_entry *entry = NULL;
    int head = opened == ARCHIVE_OK ? archive_read_next_header(input->archive, &entry) : opened;
    input->ended = head == ARCHIVE_EOF; /* an empty file */
    if (head == ARCHIVE_EOF || head >= ARCHIVE_WARN)
        return input;
    unreadable(input, 0, error);
    input_close(input);
    return NULL;
}

struct input *input_open(const char *path, uint64_t bytes_max, struct user_error *error)
{
    int fd = open_regular(path, error);
    if (fd < 0)
        return NULL;
    struct input *input = input_new(path, fd, bytes_max);
    return begin(input, archive_read_open_fd(input->archive, fd, BLOCK_BYTES), error);
}

struct input *input_open_memory(const void *bytes, size_t size, const char *name, struct user_error *error)
{
    struct input *input = input_new(name, -1, UINT64_MAX);
    return begin(input, archive_read_open_memory(input->archive, bytes, size), error);
}

int64_t input_read(struct input *input, void *buffer, size_t size, int line, struct user_error *error)
{
    la_ssize_t got = input->ended ? 0 : archive_read_data(input->archive, buffer, size);
    if (got < 0) {
        unreadable(input, line, error);
        return -1;
    }
    input->ended = got == 0;
    if ((uint64_t)got > input->left) {
        user_error_set(error, input->name, line, NULL, "cannot be read: larger than such a file may be");
        return -1;
    }
    input->left -= (uint64_t)got;
    return got;
}

void input_close(struct input *input)
{
    if (input == NULL)
        return;
    archive_read_free(input->archive);
    if (input->fd >= 0)
        close(input->fd);
    free(input);
}

/* What is left of the input, with a NUL behind it; NULL where it ends in an error. */
static char *read_rest(struct input *input, size_t *size, struct user_error *error)
{
    char *bytes = NULL;
    size_t room = 0;
    int64_t got;
    *size = 0;
    do {
        if (room - *size < BLOCK_BYTES + 1) {
            room += room + 2 * BLOCK_BYTES;
            bytes = memory_resized(bytes, room);
        }
        got = input_read(input, bytes + *size, BLOCK_BYTES, 0, error);
        *size += got > 0 ? (size_t)got : 0;
    } while (got > 0);
    bytes[*size] = '\0';
    if (got == 0)
        return bytes;
    free(bytes);
    return NULL;
}

char *input_all(const char *path, size_t bytes_max, size_t *size, struct user_error *error)
{
    struct input *input = input_open(path, bytes_max, error);
    char *bytes = input == NULL ? NULL : read_rest(input, size, error);
    input_close(input);
    return bytes;
}

/* ---- Packed by the program itself ------------------------------------------------------------------------------ */

bool input_pack(const struct input_part *parts, size_t count, unsigned level, void *packed, size_t room, size_t *used)
{
    struct archive *archive = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    char text[16];
    CHECK(archive != NULL && entry != NULL);
    snprintf(text, sizeof text, "%u", level);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_pathname(entry, "data");
    bool good = archive_write_set_format_raw(archive) == ARCHIVE_OK &&
                archive_write_add_filter_zstd(archive) == ARCHIVE_OK &&
                archive_write_set_filter_option(archive, "zstd", "compression-level", text) == ARCHIVE_OK &&
                archive_write_set_bytes_in_last_block(archive, 1) == ARCHIVE_OK &&
                archive_write_open_memory(archive, packed, room, used) == ARCHIVE_OK &&
                archive_write_header(archive, entry) == ARCHIVE_OK;
    for (size_t i = 0; i < count; i++)
        good = good && archive_write_data(archive, parts[i].bytes, parts[i].size) == (la_ssize_t)parts[i].size;
    good = good && archive_write_close(archive) == ARCHIVE_OK;
    archive_entry_free(entry);
    archive_write_free(archive);
    return good;
}

void *input_unpack(const void *packed, size_t packed_size, size_t size)
{
    struct user_error error = {.set = false};
    struct input *input = input_open_memory(packed, packed_size, "packed bytes", &error);
    if (input == NULL)
        return NULL;
    input->left = size;
    size_t got = 0;
    char *bytes = read_rest(input, &got, &error);
    input_close(input);
    if (bytes != NULL && got == size)
        return bytes;
    free(bytes);
    return NULL;
}
