/* A pack of measured kernels, whole or damaged: it is read into a table that keeps its promises, or refused. The first
 * byte chooses: the file as it is, or, so that damage gets past the compression, a body with a head made for it. */
#include "base/check.h"
#include "world/kernels/kernel_pack.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ascending keys and knots, indices inside their tables. */
static void check_table(const struct kernel_table *table)
{
    for (uint32_t s = 0; s < table->series_count; s++) {
        uint32_t count = kernel_knot_count(table, s);
        CHECK(count > 0 && table->row_first[s + 1] <= table->row_count);
        for (uint32_t i = 1; i < count; i++)
            CHECK(kernel_knots(table, s)[i - 1] < kernel_knots(table, s)[i]);
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
    struct user_error error = {.set = false};
    struct kernel_table *table;
    if (size == 0)
        return 0;
    if (data[0] == 'b')
        table = kernel_pack_read_body(kernel_kind_at(data[size - 1] % KERNEL_KINDS), data + 1, size - 1,
                                      1 + (uint32_t)(size % 16), 1 + (uint32_t)(size % 16 + size / 4));
    else
        table = kernel_pack_read_memory(data, size, "fuzz", &error);
    if (table != NULL)
        check_table(table);
    else
        CHECK(data[0] == 'b' || error.set);
    kernel_table_free(table);
    return 0;
}
