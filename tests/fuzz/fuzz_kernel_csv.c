/* Tables of measured kernels, whole or damaged: what is read keeps the promises of a table, or is refused. The first
 * byte chooses: a table's file, or a benchmark's rows of the kind that the next byte chooses. */
#include "base/check.h"
#include "world/kernels/kernel_csv.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ascending keys and knots, indices inside their tables. */
static void check_table(const struct kernel_table *table)
{
    for (uint32_t s = 0; s < table->series_count; s++) {
        uint32_t count = kernel_point_count(table, s);
        CHECK(count > 0 && table->row_first[s + 1] <= table->row_count);
        for (uint32_t i = 1; i < count; i++)
            CHECK(kernel_points(table, s)[i - 1] < kernel_points(table, s)[i]);
        for (uint32_t c = 0; c < table->kind->column_count; c++) {
            uint32_t key = kernel_key(table, s, c);
            CHECK(!table->kind->columns[c].text || key < table->text_count[c]);
            CHECK(!kernel_is_dimension(table->kind, c) || key > 0);
        }
    }
    CHECK(table->row_first[table->series_count] == table->row_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct kernel_origin origin = {
        .gpu = "X", .engine = "vllm", .version = "1", .source = "-", .licence = "-"};
    struct user_error error = {.set = false};
    struct csv_table file;
    size_t head = size >= 2 && data[0] == 'r' ? 2 : 0;
    char *text = malloc(size + 1);
    CHECK(text != NULL);
    memcpy(text, data + head, size - head);
    text[size - head] = '\0';
    if (!csv_table_parse("fuzz", text, size - head, &file, &error)) {
        CHECK(error.set);
        return 0;
    }
    struct kernel_table *table =
        head > 0 ? kernel_rows_read(&file, 1, kernel_kind_at(data[1] % KERNEL_KINDS), &origin, &error)
                 : kernel_table_parse(&file, &error);
    CHECK((table == NULL) == error.set);
    if (table != NULL)
        check_table(table);
    kernel_table_free(table);
    csv_table_free(&file);
    return 0;
}
