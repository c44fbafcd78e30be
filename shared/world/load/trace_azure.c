/* Azure's LLM inference traces: CSV with a fixed header. See trace_reader.h. */
#define _POSIX_C_SOURCE 200809L

#include "world/load/trace_format.h"

#include <strings.h>

#define AZURE_HEADER "TIMESTAMP,ContextTokens,GeneratedTokens"

bool trace_azure_read(struct trace_reading *reading)
{
    static const struct csv_columns columns = {
        .count = 3,
        .arrival = 0,
        .prompt = 1,
        .output = 2,
        .time = CSV_TIME_DATE,
        .arrival_name = "TIMESTAMP",
        .prompt_name = "ContextTokens",
        .output_name = "GeneratedTokens",
    };
    char *line = NULL;
    size_t length = 0;
    enum line_result result = trace_line(reading, &line, &length);
    if (result == LINE_FAILED)
        return false;
    if (result == LINE_END)
        return trace_wrong(reading, NULL, "the file is empty, expected the header " AZURE_HEADER);
    struct csv_cell fields[TRACE_COLUMNS_MAX];
    uint32_t count = 0;
    if (!trace_cells(reading, line, fields, &count))
        return false;
    if (count != 3 || strcasecmp(fields[0].text, columns.arrival_name) != 0 ||
        strcasecmp(fields[1].text, columns.prompt_name) != 0 || strcasecmp(fields[2].text, columns.output_name) != 0)
        return trace_wrong(reading, NULL,
                           "not the header of an Azure trace, expected " AZURE_HEADER
                           "; a file with other columns is plain CSV");
    return csv_rows(reading, &columns);
}
