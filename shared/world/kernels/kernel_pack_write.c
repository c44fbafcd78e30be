/* See kernel_pack.h: writing. */
#include "world/kernels/kernel_pack.h"

#include "base/check.h"
#include "host/memory.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
    unsigned char *data;
    size_t size;
    size_t room;
};

static void put(struct bytes *bytes, const void *data, size_t size)
{
    if (bytes->size + size > bytes->room) {
        bytes->room = 2 * (bytes->size + size);
        bytes->data = memory_resized(bytes->data, bytes->room);
    }
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
}

static void put_number(struct bytes *bytes, uint32_t value)
{
    unsigned char byte;
    for (; value >= 0x80; value >>= 7) {
        byte = (unsigned char)(value | 0x80);
        put(bytes, &byte, 1);
    }
    byte = (unsigned char)value;
    put(bytes, &byte, 1);
}

/* Of a difference modulo 2^32 that is small in either direction. */
static uint32_t zigzag(uint32_t difference)
{
    return (difference << 1) ^ (0u - (difference >> 31));
}

static void put_rows(struct bytes *body, const struct kernel_table *table)
{
    size_t rows = table->row_count;
    unsigned char *planes = memory_get(2 * rows);
    uint32_t first = 0;
    for (uint32_t s = 0; s < table->series_count; s++) {
        uint32_t code = first;
        for (uint32_t r = table->row_first[s]; r < table->row_first[s + 1]; r++) {
            uint32_t coded = zigzag(table->codes[r] - code);
            /* Codes are below 2^15, so their differences fit 16 bits. */
            CHECK(coded <= 0xffff);
            code = table->codes[r];
            planes[r] = (unsigned char)coded;
            planes[rows + r] = (unsigned char)(coded >> 8);
            if (r == table->row_first[s])
                first = code;
        }
    }
    put(body, planes, 2 * rows);
    free(planes);
}

static void put_body(struct bytes *body, const struct kernel_table *table)
{
    const struct kernel_kind *kind = table->kind;
    for (uint32_t c = 0; c < kind->column_count; c++) {
        if (!kind->columns[c].text)
            continue;
        put_number(body, table->text_count[c]);
        for (uint32_t i = 0; i < table->text_count[c]; i++) {
            size_t length = strlen(table->texts[c][i]);
            put_number(body, (uint32_t)length);
            put(body, table->texts[c][i], length);
        }
    }
    put_number(body, table->ladder_count);
    for (uint32_t l = 0; l < table->ladder_count; l++) {
        put_number(body, table->knot_first[l + 1] - table->knot_first[l]);
        for (uint32_t i = table->knot_first[l]; i < table->knot_first[l + 1]; i++)
            put_number(body, table->knots[i] - (i > table->knot_first[l] ? table->knots[i - 1] : 0));
    }
    for (uint32_t c = 0; c < kind->column_count; c++)
        for (uint32_t s = 0; s < table->series_count; s++)
            put_number(body, zigzag(kernel_key(table, s, c) - (s > 0 ? kernel_key(table, s - 1, c) : 0)));
    for (uint32_t s = 0; s < table->series_count; s++)
        put_number(body, table->ladder[s]);
    put_rows(body, table);
}

static void put_head(struct bytes *file, const struct kernel_table *table, size_t body_bytes)
{
    const struct kernel_origin *o = &table->origin;
    char columns[512];
    char text[2048];
    size_t used = 0;
    for (uint32_t c = 0; c < table->kind->column_count; c++)
        used += (size_t)snprintf(columns + used, sizeof columns - used, "%s ", table->kind->columns[c].name);
    snprintf(columns + used, sizeof columns - used, "| %s", table->kind->axis);
    int length = snprintf(text, sizeof text,
                          "tandem kernel pack 1\ntable %s\ngpu %s\nengine %s\nversion %s\nsource %s\nlicence %s\n"
                          "source_sha256 %s\ncolumns %s\nseries %" PRIu32 "\nrows %" PRIu32 "\nmerged %" PRIu32
                          "\ndropped %" PRIu32 "\nbody_bytes %zu\nbody_sha256 %s\n\n",
                          table->kind->name, o->gpu, o->engine, o->version, o->source, o->licence, o->source_sha256,
                          columns, table->series_count, table->row_count, table->merged, table->dropped, body_bytes,
                          table->content_sha256);
    CHECK(length > 0 && (size_t)length < sizeof text);
    put(file, text, (size_t)length);
}

/* Appends the body to the file, compressed. What a compressor of another version makes of it differs; the digest in
 * the head is of the body itself. */
static bool put_compressed(struct bytes *file, const struct bytes *body, struct user_error *error)
{
    size_t room = body->size + body->size / 8 + 65536;
    unsigned char *stream = memory_get(room);
    size_t used = 0;
    struct archive *archive = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    CHECK(archive != NULL && entry != NULL);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_pathname(entry, "body");
    bool good = archive_write_set_format_raw(archive) == ARCHIVE_OK &&
                archive_write_add_filter_zstd(archive) == ARCHIVE_OK &&
                archive_write_set_filter_option(archive, "zstd", "compression-level", "19") == ARCHIVE_OK &&
                archive_write_set_bytes_in_last_block(archive, 1) == ARCHIVE_OK &&
                archive_write_open_memory(archive, stream, room, &used) == ARCHIVE_OK &&
                archive_write_header(archive, entry) == ARCHIVE_OK &&
                archive_write_data(archive, body->data, body->size) == (la_ssize_t)body->size &&
                archive_write_close(archive) == ARCHIVE_OK;
    if (good)
        put(file, stream, used);
    else
        user_error_set(error, NULL, 0, NULL, "the table cannot be compressed (%s)",
                       archive_error_string(archive) != NULL ? archive_error_string(archive) : "no reason given");
    archive_entry_free(entry);
    archive_write_free(archive);
    free(stream);
    return good;
}

static bool write_file(const struct bytes *bytes, const char *path, struct user_error *error)
{
    char temporary[1024];
    if (snprintf(temporary, sizeof temporary, "%s.part", path) >= (int)sizeof temporary) {
        user_error_set(error, path, 0, NULL, "the path is too long");
        return false;
    }
    FILE *file = fopen(temporary, "wb");
    bool good = file != NULL && fwrite(bytes->data, 1, bytes->size, file) == bytes->size;
    if (file != NULL && fclose(file) != 0)
        good = false;
    if (good && rename(temporary, path) == 0)
        return true;
    user_error_set(error, path, 0, NULL, "cannot be written: %s", strerror(errno));
    if (file != NULL)
        remove(temporary);
    return false;
}

bool kernel_pack_write(struct kernel_table *table, const char *path, struct user_error *error)
{
    struct bytes body = {0};
    struct bytes file = {0};
    struct sha256 hash;
    put_body(&body, table);
    sha256_start(&hash);
    sha256_add(&hash, body.data, body.size);
    sha256_hex(&hash, table->content_sha256);
    bool good = body.size <= KERNEL_PACK_BYTES_MAX;
    if (!good)
        user_error_set(error, path, 0, NULL, "the table is larger than a pack may be");
    put_head(&file, table, body.size);
    good = good && put_compressed(&file, &body, error) && write_file(&file, path, error);
    free(body.data);
    free(file.data);
    return good;
}
