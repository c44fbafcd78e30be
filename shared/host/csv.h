/* Cells of CSV as RFC 4180 has them: separated by commas, those in double quotes may hold commas, ends of lines and
 * quotes (written twice). Beyond it, blanks around a cell are dropped. */
#ifndef TANDEM_HOST_CSV_H
#define TANDEM_HOST_CSV_H

#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct csv_cell {
    char *text; /* NUL-terminated */
    size_t length;
};

/* Splits a record in place into at most `max` cells. False: described, at `line` of `file`. */
bool csv_split(char *record, struct csv_cell *cells, uint32_t max, uint32_t *count, const char *file, int line,
               struct user_error *error);

/* Bytes of the first record of `text`, without the '\n' that ends it; SIZE_MAX: none of the `length` bytes does. */
size_t csv_record(const char *text, size_t length);

#endif
