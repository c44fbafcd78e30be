/* tandem pack: a measured table from CSV files, for a GPU of one's own or a new version of an engine. */
#include "world/kernels/kernel_csv.h"
#include "cli/commands.h"

#include "base/check.h"
#include "host/input.h"
#include "host/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct option pack_options[] = {
    {"out", "FILE", "the table to write: KIND.ENGINE-VERSION.csv in a folder named after the GPU", OPTION_TEXT},
    {"table", "KIND", "what was measured, see below", OPTION_TEXT},
    {"gpu", "NAME", "on which GPU, as in a machine's `gpu`", OPTION_TEXT},
    {"engine", "NAME", "whose kernels: vllm, sglang, trtllm, nccl, ...", OPTION_TEXT},
    {"engine-version", "TEXT", "of the engine", OPTION_TEXT},
    {"source", "TEXT", "where the rows come from", OPTION_TEXT},
    {"licence", "TEXT", "of the rows", OPTION_TEXT},
    {NULL, NULL, NULL, OPTION_FLAG},
};

/* A text of the table's head: given, of one line, and short enough. */
static bool head_value(const struct arguments *arguments, const char *option, char *value, size_t size,
                       struct user_error *error)
{
    const char *text = argument_text(arguments, option);
    char flag[32];
    snprintf(flag, sizeof flag, "--%s", option);
    if (text == NULL || text[0] == '\0' || strlen(text) >= size) {
        user_error_set(error, NULL, 0, flag, "a text of 1 to %zu bytes is wanted", size - 1);
        return false;
    }
    for (const char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            user_error_set(error, NULL, 0, flag, "one line without control characters is wanted");
            return false;
        }
    }
    snprintf(value, size, "%s", text);
    return true;
}

static const struct kernel_kind *kind_wanted(const struct arguments *arguments, struct user_error *error)
{
    const char *name = argument_text(arguments, "table");
    const char *known[KERNEL_KINDS];
    char list[1024] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < KERNEL_KINDS; i++) {
        known[i] = kernel_kind_at(i)->name;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", known[i]);
    }
    const struct kernel_kind *kind = name == NULL ? NULL : kernel_kind_named(name);
    const char *nearest = name == NULL || kind != NULL ? NULL : nearest_name(name, known, KERNEL_KINDS);
    if (kind == NULL && nearest != NULL)
        user_error_set(error, NULL, 0, "--table", "'%s' is no kind of table; did you mean '%s'?", name, nearest);
    else if (kind == NULL)
        user_error_set(error, NULL, 0, "--table", "one of these is wanted: %s", list);
    return kind;
}

static int pack_run(const struct command_context *context, const struct arguments *arguments, struct user_error *error)
{
    struct kernel_origin origin = {0};
    size_t count = operand_count(arguments);
    const char *out = argument_text(arguments, "out");
    const struct kernel_kind *kind = kind_wanted(arguments, error);
    if (kind == NULL || !head_value(arguments, "gpu", origin.gpu, sizeof origin.gpu, error) ||
        !head_value(arguments, "engine", origin.engine, sizeof origin.engine, error) ||
        !head_value(arguments, "engine-version", origin.version, sizeof origin.version, error) ||
        !head_value(arguments, "source", origin.source, sizeof origin.source, error) ||
        !head_value(arguments, "licence", origin.licence, sizeof origin.licence, error))
        return EXIT_USER;
    size_t length = out == NULL ? 0 : strlen(out);
    if (length < 5 || strcmp(out + length - 4, ".csv") != 0) {
        user_error_set(error, NULL, 0, "--out", "the file to write is wanted, FILE.csv");
        return EXIT_USER;
    }
    struct csv_table *files = memory_zeroed(count, sizeof *files);
    struct sha256 hash;
    struct kernel_table *table = NULL;
    bool good = true;
    sha256_start(&hash);
    for (size_t i = 0; i < count && good; i++) {
        size_t size;
        char *text = input_all(operand(arguments, i), CSV_BYTES_MAX, &size, error);
        if (text != NULL)
            sha256_add(&hash, text, size);
        good = text != NULL && csv_table_parse(operand(arguments, i), text, size, &files[i], error);
    }
    sha256_hex(&hash, origin.source_sha256);
    if (good)
        table = kernel_rows_read(files, count, kind, &origin, error);
    if (table != NULL && kernel_table_write(table, out, error))
        fprintf(context->out,
                "%s: %" PRIu32 " rows in %" PRIu32 " series; %" PRIu32 " merged with a row of the same place, %" PRIu32
                " left out\n",
                out, table->row_count, table->series_count, table->merged, table->dropped);
    kernel_table_free(table);
    for (size_t i = 0; i < count; i++)
        csv_table_free(&files[i]);
    free(files);
    return error->set ? EXIT_USER : EXIT_OK;
}

const struct command command_pack = {
    .name = "pack",
    .operands = "CSV...",
    .operands_min = 1,
    .operands_max = 64,
    .summary = "make a table of measured kernels from the rows of a benchmark",
    .description =
        "Reads CSV files with the column names of ai-dynamo/aiconfigurator's perf files, plain or compressed with\n"
        "xz, gzip or zstd, and writes one table, which may be compressed likewise. Tables are looked for in "
        "hardware/kernels/GPU beside the scenario,\n"
        "then in the scenario library. Kinds of tables, with their columns and axis: scenarios/hardware/kernels.",
    .options = pack_options,
    .run = pack_run,
};
