/* See kernel_pack.h. Reading; kernel_pack_write.c is the other way. */
#include "world/kernels/kernel_pack.h"

#include "base/check.h"
#include "host/memory.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The head --------------------------------------------------------------------------------------------------- */

struct head {
    const char *name; /* of the file */
    const char *at;
    const char *end;
    int line;
    struct user_error *error;
};

static bool head_wrong(const struct head *head, const char *key, const char *what)
{
    user_error_set(head->error, head->name, head->line, key, "%s", what);
    return false;
}

/* The next line without its end; false at the end of the bytes, or where a line is too long or holds control bytes. */
static bool head_line(struct head *head, char *line, size_t size)
{
    const char *end = memchr(head->at, '\n', (size_t)(head->end - head->at));
    head->line++;
    if (end == NULL || (size_t)(end - head->at) >= size)
        return false;
    size_t length = (size_t)(end - head->at);
    memcpy(line, head->at, length);
    line[length] = '\0';
    head->at = end + 1;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            return false;
    return true;
}

static bool head_text(struct head *head, const char *key, char *text, size_t size)
{
    char line[512];
    size_t length = strlen(key);
    if (!head_line(head, line, sizeof line) || strncmp(line, key, length) != 0 || line[length] != ' ')
        return head_wrong(head, key, "missing; a line with this key and a value is wanted here");
    if (strlen(line + length + 1) >= size)
        return head_wrong(head, key, "the value is too long");
    strcpy(text, line + length + 1);
    return true;
}

static bool head_number(struct head *head, const char *key, uint32_t max, uint32_t *number)
{
    char text[16];
    if (!head_text(head, key, text, sizeof text))
        return false;
    uint64_t value = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at < '0' || *at > '9')
            return head_wrong(head, key, "a count is wanted");
        value = value * 10 + (uint64_t)(*at - '0');
    }
    if (text[0] == '\0' || value > max)
        return head_wrong(head, key, "the count is out of bounds");
    *number = (uint32_t)value;
    return true;
}

/* "gemm_dtype n k | m" */
static void columns_line(const struct kernel_kind *kind, char *text, size_t size)
{
    size_t used = 0;
    for (uint32_t c = 0; c < kind->column_count; c++)
        used += (size_t)snprintf(text + used, size - used, "%s ", kind->columns[c].name);
    snprintf(text + used, size - used, "| %s", kind->axis);
}

static bool head_read(struct head *head, struct kernel_table *table, uint32_t *body_bytes)
{
    char text[512];
    char columns[512];
    struct kernel_origin *origin = &table->origin;
    if (!head_line(head, text, sizeof text) || strcmp(text, "tandem kernel pack 1") != 0)
        return head_wrong(head, NULL, "not a kernel pack of version 1: \"tandem kernel pack 1\" is wanted");
    if (!head_text(head, "table", text, sizeof text))
        return false;
    table->kind = kernel_kind_named(text);
    if (table->kind == NULL)
        return head_wrong(head, "table", "a kind of table that this version does not know");
    columns_line(table->kind, columns, sizeof columns);
    if (!head_text(head, "gpu", origin->gpu, sizeof origin->gpu) ||
        !head_text(head, "engine", origin->engine, sizeof origin->engine) ||
        !head_text(head, "version", origin->version, sizeof origin->version) ||
        !head_text(head, "source", origin->source, sizeof origin->source) ||
        !head_text(head, "licence", origin->licence, sizeof origin->licence) ||
        !head_text(head, "source_sha256", origin->source_sha256, sizeof origin->source_sha256) ||
        !head_text(head, "columns", text, sizeof text))
        return false;
    if (strcmp(text, columns) != 0)
        return head_wrong(head, "columns", "not those of this kind of table");
    if (!head_number(head, "series", KERNEL_ROWS_MAX, &table->series_count) ||
        !head_number(head, "rows", KERNEL_ROWS_MAX, &table->row_count) ||
        !head_number(head, "merged", UINT32_MAX, &table->merged) ||
        !head_number(head, "dropped", UINT32_MAX, &table->dropped) ||
        !head_number(head, "body_bytes", (uint32_t)KERNEL_PACK_BYTES_MAX, body_bytes) ||
        !head_text(head, "body_sha256", table->content_sha256, sizeof table->content_sha256))
        return false;
    if (table->series_count == 0 || table->row_count < table->series_count)
        return head_wrong(head, "rows", "a table has at least one series, and a series at least one row");
    if (!head_line(head, text, sizeof text) || text[0] != '\0')
        return head_wrong(head, NULL, "an empty line is wanted before the body");
    return true;
}

/* ---- The body --------------------------------------------------------------------------------------------------- */

struct body {
    const unsigned char *at;
    const unsigned char *end;
    bool wrong;
};

static uint32_t body_number(struct body *body)
{
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 35; shift += 7) {
        if (body->at == body->end)
            break;
        unsigned char byte = *body->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            body->wrong |= value > UINT32_MAX;
            return (uint32_t)value;
        }
    }
    body->wrong = true;
    return 0;
}

/* A number of things of at least one byte each: more than there are bytes left is wrong, and nothing is allocated. */
static uint32_t body_count(struct body *body)
{
    uint32_t count = body_number(body);
    if (count > (size_t)(body->end - body->at))
        body->wrong = true;
    return body->wrong ? 0 : count;
}

static uint32_t unzigzag(uint32_t coded)
{
    return (coded >> 1) ^ (0u - (coded & 1));
}

static void body_texts(struct body *body, struct kernel_table *table, uint32_t column)
{
    uint32_t count = body_count(body);
    if (count == 0 || count > KERNEL_TEXTS_MAX) {
        body->wrong = true;
        return;
    }
    table->texts[column] = memory_zeroed(count, sizeof table->texts[column][0]);
    table->text_count[column] = count;
    for (uint32_t i = 0; i < count && !body->wrong; i++) {
        char *text = table->texts[column][i];
        uint32_t length = body_count(body);
        if (body->wrong || length == 0 || length >= KERNEL_TEXT_SIZE || memchr(body->at, 0, length) != NULL) {
            body->wrong = true;
            return;
        }
        memcpy(text, body->at, length);
        body->at += length;
        body->wrong |= i > 0 && strcmp(table->texts[column][i - 1], text) >= 0;
        for (uint32_t c = 0; c < length; c++)
            body->wrong |= (unsigned char)text[c] < 0x20 || text[c] == 0x7f;
    }
}

static void body_ladders(struct body *body, struct kernel_table *table)
{
    uint32_t count = body_count(body);
    if (body->wrong || count == 0 || count > table->series_count) {
        body->wrong = true;
        return;
    }
    table->ladder_count = count;
    table->knot_first = memory_zeroed((size_t)count + 1, sizeof table->knot_first[0]);
    table->knots = memory_zeroed((size_t)(body->end - body->at) + 1, sizeof table->knots[0]); /* a byte each at least */
    for (uint32_t l = 0; l < count && !body->wrong; l++) {
        uint32_t length = body_count(body);
        body->wrong |= length == 0 || length > table->row_count;
        uint64_t knot = 0;
        for (uint32_t i = 0; i < length && !body->wrong; i++) {
            uint32_t step = body_number(body);
            knot += step;
            body->wrong |= knot > UINT32_MAX || step == 0;
            table->knots[table->knot_count++] = (uint32_t)knot;
        }
        table->knot_first[l + 1] = table->knot_count;
    }
}

static void body_keys(struct body *body, struct kernel_table *table)
{
    uint32_t columns = table->kind->column_count;
    for (uint32_t c = 0; c < columns; c++) {
        uint32_t key = 0;
        for (uint32_t s = 0; s < table->series_count && !body->wrong; s++) {
            key += unzigzag(body_number(body));
            table->keys[s * columns + c] = key;
            body->wrong |= table->kind->columns[c].text && key >= table->text_count[c];
            body->wrong |= kernel_is_dimension(table->kind, c) && key == 0;
        }
    }
    /* In ascending order, so that a place occurs once. */
    for (uint32_t s = 1; s < table->series_count && !body->wrong; s++) {
        const uint32_t *before = table->keys + (size_t)(s - 1) * columns;
        const uint32_t *keys = before + columns;
        uint32_t c = 0;
        while (c < columns && before[c] == keys[c])
            c++;
        body->wrong |= c == columns || before[c] > keys[c];
    }
}

static void body_rows(struct body *body, struct kernel_table *table)
{
    uint64_t rows = 0;
    for (uint32_t s = 0; s < table->series_count && !body->wrong; s++) {
        uint32_t ladder = body_number(body);
        body->wrong |= ladder >= table->ladder_count;
        if (body->wrong)
            return;
        table->ladder[s] = ladder;
        rows += table->knot_first[ladder + 1] - table->knot_first[ladder];
        body->wrong |= rows > table->row_count;
        table->row_first[s + 1] = (uint32_t)rows;
    }
    if (body->wrong || rows != table->row_count || (size_t)(body->end - body->at) != 2 * (size_t)rows) {
        body->wrong = true;
        return;
    }
    const unsigned char *low = body->at;
    const unsigned char *high = body->at + rows;
    uint32_t first = 0; /* code of the first row of the series before */
    for (uint32_t s = 0; s < table->series_count; s++) {
        uint32_t code = first;
        for (uint32_t r = table->row_first[s]; r < table->row_first[s + 1]; r++) {
            uint32_t coded = low[r] | (uint32_t)high[r] << 8;
            code = (code + unzigzag(coded)) & 0xffff;
            table->codes[r] = (uint16_t)code;
            if (r == table->row_first[s])
                first = code;
        }
    }
}

static bool body_read(struct body *body, struct kernel_table *table)
{
    for (uint32_t c = 0; c < table->kind->column_count && !body->wrong; c++)
        if (table->kind->columns[c].text)
            body_texts(body, table, c);
    if (!body->wrong)
        body_ladders(body, table);
    /* A byte a series in every column, and two a row: nothing larger than the body is allocated for long. */
    size_t left = (size_t)(body->end - body->at);
    if (body->wrong || table->series_count > left || 2 * (size_t)table->row_count > left)
        return false;
    table->keys = memory_zeroed((size_t)table->series_count * table->kind->column_count, sizeof table->keys[0]);
    table->ladder = memory_zeroed(table->series_count, sizeof table->ladder[0]);
    table->row_first = memory_zeroed((size_t)table->series_count + 1, sizeof table->row_first[0]);
    table->codes = memory_zeroed(table->row_count, sizeof table->codes[0]);
    body_keys(body, table);
    if (!body->wrong)
        body_rows(body, table);
    return !body->wrong;
}

/* The stream's `size` bytes, and not one more. */
static bool decompress(const void *bytes, size_t size, unsigned char *body, size_t body_size, char *why,
                       size_t why_size)
{
    struct archive *archive = archive_read_new();
    struct archive_entry *entry;
    CHECK(archive != NULL);
    bool good = false;
    unsigned char more;
    snprintf(why, why_size, "the body is damaged or truncated");
    if (archive_read_support_filter_zstd(archive) == ARCHIVE_OK &&
        archive_read_support_filter_xz(archive) == ARCHIVE_OK &&
        archive_read_support_format_raw(archive) == ARCHIVE_OK &&
        archive_read_open_memory(archive, bytes, size) == ARCHIVE_OK &&
        archive_read_next_header(archive, &entry) == ARCHIVE_OK) {
        size_t got = 0;
        la_ssize_t part = 1;
        while (got < body_size && (part = archive_read_data(archive, body + got, body_size - got)) > 0)
            got += (size_t)part;
        good = got == body_size && archive_read_data(archive, &more, 1) == 0;
    } else if (archive_error_string(archive) != NULL) {
        snprintf(why, why_size, "the body cannot be read (%s)", archive_error_string(archive));
    }
    archive_read_free(archive);
    return good;
}

struct kernel_table *kernel_pack_read_memory(const void *bytes, size_t size, const char *name, struct user_error *error)
{
    const char *text = bytes;
    struct head head = {.name = name, .at = text, .end = text + size, .error = error};
    struct kernel_table *table = memory_zeroed(1, sizeof *table);
    uint32_t body_bytes = 0;
    if (!head_read(&head, table, &body_bytes)) {
        kernel_table_free(table);
        return NULL;
    }
    unsigned char *body = memory_get((size_t)body_bytes + 1);
    char why[256];
    char digest[SHA256_HEX_SIZE];
    bool good = decompress(head.at, (size_t)(head.end - head.at), body, body_bytes, why, sizeof why);
    if (good) {
        struct sha256 hash;
        sha256_start(&hash);
        sha256_add(&hash, body, body_bytes);
        sha256_hex(&hash, digest);
        good = strcmp(digest, table->content_sha256) == 0;
        snprintf(why, sizeof why, "the body is not what body_sha256 says");
    }
    if (good) {
        struct body reading = {.at = body, .end = body + body_bytes};
        good = body_read(&reading, table);
        snprintf(why, sizeof why, "the body does not hold the table that the head announces");
    }
    free(body);
    if (good)
        return table;
    user_error_set(error, name, 0, NULL, "%s", why);
    kernel_table_free(table);
    return NULL;
}

struct kernel_table *kernel_pack_read_body(const struct kernel_kind *kind, const void *bytes, size_t size,
                                           uint32_t series_count, uint32_t row_count)
{
    struct body reading = {.at = bytes, .end = (const unsigned char *)bytes + size};
    struct kernel_table *table = memory_zeroed(1, sizeof *table);
    CHECK(series_count > 0 && series_count <= row_count);
    table->kind = kind;
    table->series_count = series_count;
    table->row_count = row_count;
    if (body_read(&reading, table))
        return table;
    kernel_table_free(table);
    return NULL;
}

struct kernel_table *kernel_pack_read(const char *path, struct user_error *error)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        user_error_set(error, path, 0, NULL, "cannot be opened: %s", strerror(errno));
        return NULL;
    }
    struct kernel_table *table = NULL;
    long size = -1;
    char *bytes = NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 && (size_t)size <= KERNEL_PACK_BYTES_MAX &&
        fseek(file, 0, SEEK_SET) == 0) {
        bytes = memory_get((size_t)size + 1);
        if (fread(bytes, 1, (size_t)size, file) == (size_t)size)
            table = kernel_pack_read_memory(bytes, (size_t)size, path, error);
    }
    if (table == NULL)
        user_error_set(error, path, 0, NULL, "cannot be read, or is larger than any pack");
    free(bytes);
    fclose(file);
    return table;
}
