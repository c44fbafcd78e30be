/* See real_options.h. */
#include "real/cluster/real_options.h"

#define ROW_TEXT(field, option, argument, help, otherwise)                                                             \
    {.name = option, .kind = REAL_OPTION_TEXT, .offset = offsetof(struct real_options, field), .text = otherwise},
#define ROW_NUMBER(field, option, argument, help, lower, upper, otherwise)                                             \
    {.name = option,                                                                                                   \
     .kind = REAL_OPTION_NUMBER,                                                                                       \
     .offset = offsetof(struct real_options, field),                                                                   \
     .least = lower,                                                                                                   \
     .most = upper,                                                                                                    \
     .number = otherwise},
#define ROW_FLAG(field, option, help)                                                                                  \
    {.name = option, .kind = REAL_OPTION_FLAG, .offset = offsetof(struct real_options, field)},

const struct real_option real_option_rows[] = {REAL_OPTIONS(ROW_TEXT, ROW_TEXT, ROW_NUMBER, ROW_FLAG){.name = NULL}};

static const void *field(const struct real_options *options, const struct real_option *row)
{
    return (const char *)options + row->offset;
}

const char *real_option_text(const struct real_options *options, const struct real_option *row)
{
    return *(const char *const *)field(options, row);
}

uint32_t real_option_number(const struct real_options *options, const struct real_option *row)
{
    return *(const uint32_t *)field(options, row);
}

bool real_option_flag(const struct real_options *options, const struct real_option *row)
{
    return *(const bool *)field(options, row);
}
