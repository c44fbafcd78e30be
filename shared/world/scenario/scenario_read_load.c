/* Sections of a scenario: the load, with its lengths or its trace. */
#define _XOPEN_SOURCE 700

#include "world/scenario/scenario_internal.h"

#include "base/limits.h"
#include "host/input.h"
#include "host/sha256.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LENGTH(list) (sizeof(list) / sizeof((list)[0]))

static void read_uniform(const struct cursor *range, struct length_distribution *lengths)
{
    cursor_push(range, "1");
    lengths->low = (uint32_t)read_count(range, "1", 1, REQUEST_TOKENS_MAX, "REQUEST_TOKENS_MAX");
    cursor_push(range, "2");
    lengths->high = (uint32_t)read_count(range, "2", lengths->low, REQUEST_TOKENS_MAX, "REQUEST_TOKENS_MAX");
    lua_pop(range->reader->L, 2);
    lengths->kind = LENGTH_UNIFORM;
}

/* The permille keys of the table, ascending. */
static uint32_t quantile_keys(const struct cursor *table, uint32_t *keys)
{
    lua_State *L = table->reader->L;
    uint32_t count = 0;
    lua_pushnil(L);
    while (lua_next(L, table->index) != 0) {
        lua_pop(L, 1);
        lua_Integer key = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : -1;
        if (key < 0 || key > 1000)
            cursor_fail(table, NULL, "keys are permille, whole numbers from 0 to 1000, as in [500] = 1020");
        if (count == SCENARIO_QUANTILES_MAX)
            cursor_fail(table, NULL, "at most %d entries (SCENARIO_QUANTILES_MAX)", SCENARIO_QUANTILES_MAX);
        uint32_t at = count++;
        for (; at > 0 && keys[at - 1] > key; at--)
            keys[at] = keys[at - 1];
        keys[at] = (uint32_t)key;
    }
    return count;
}

static void read_quantiles(const struct cursor *table, struct length_distribution *lengths)
{
    lua_State *L = table->reader->L;
    uint32_t count = quantile_keys(table, lengths->quantile_permille);
    if (count < 2 || lengths->quantile_permille[0] != 0 || lengths->quantile_permille[count - 1] != 1000)
        cursor_fail(table, NULL, "needs [0] and [1000], the shortest and the longest");
    for (uint32_t k = 0; k < count; k++) {
        char key[16];
        snprintf(key, sizeof key, "%u", lengths->quantile_permille[k]);
        cursor_push(table, key);
        int64_t least = k == 0 ? 1 : lengths->quantile_tokens[k - 1];
        lengths->quantile_tokens[k] = (uint32_t)read_count(table, key, least, REQUEST_TOKENS_MAX, "REQUEST_TOKENS_MAX");
        lua_pop(L, 1);
    }
    lengths->kind = LENGTH_QUANTILES;
    lengths->quantile_count = count;
    lengths->low = lengths->quantile_tokens[0];
    lengths->high = lengths->quantile_tokens[count - 1];
}

static void read_lengths(const struct cursor *load, const char *key, struct length_distribution *lengths)
{
    lua_State *L = load->reader->L;
    int type = cursor_push(load, key);
    const struct word_mark *mark = scenario_word(L, -1);
    if (type == LUA_TNUMBER) {
        lengths->kind = LENGTH_CONSTANT;
        lengths->low = (uint32_t)read_count(load, key, 1, REQUEST_TOKENS_MAX, "REQUEST_TOKENS_MAX");
        lengths->high = lengths->low;
    } else if (mark != NULL && (strcmp(mark->word, "uniform") == 0 || strcmp(mark->word, "quantiles") == 0)) {
        struct cursor table = cursor_below(load, key);
        if (mark->word[0] == 'u')
            read_uniform(&table, lengths);
        else
            read_quantiles(&table, lengths);
    } else {
        cursor_fail(load, key, "%sa number of tokens, uniform(low, high) or quantiles { ... } is wanted",
                    type == LUA_TNIL ? "missing; " : "");
    }
    cursor_origin(load, key, true);
    lua_pop(L, 1);
}

/* SHA-256 of a file's bytes, however it is compressed: the identity need not read it as a trace. */
static void hash_file(const struct cursor *load, const char *path, char *hex)
{
    static const size_t size = 1 << 16;
    struct sha256 hash;
    sha256_start(&hash);
    struct user_error error = {.set = false};
    FILE *file = input_file(path, &error);
    if (file == NULL)
        cursor_fail(load, "file", "%s", error.text);
    void *buffer = lua_newuserdatauv(load->reader->L, size, 0);
    size_t length = 0;
    while ((length = fread(buffer, 1, size, file)) > 0)
        sha256_add(&hash, buffer, length);
    int reason = errno;
    bool failed = ferror(file) != 0;
    fclose(file);
    lua_pop(load->reader->L, 1);
    if (failed)
        cursor_fail(load, "file", "%s cannot be read: %s", path, strerror(reason));
    sha256_hex(&hash, hex);
}

/* A trace may lie anywhere. A relative path starts at the scenario, then at the shipped scenarios. */
static void find_trace(const struct cursor *cursor, const char *file, struct load *load)
{
    const struct sandbox *sandbox = sandbox_of(cursor->reader->L);
    char path[SANDBOX_PATH_SIZE * 2];
    if (sandbox_find_anywhere(sandbox, file, path, sizeof path)) {
        char *absolute = realpath(path, NULL);
        size_t length = absolute == NULL ? sizeof load->trace_path : strlen(absolute);
        if (length < sizeof load->trace_path)
            memcpy(load->trace_path, absolute, length + 1);
        free(absolute);
        if (length >= sizeof load->trace_path)
            cursor_fail(cursor, "file", "the path is too long");
        return;
    }
    const char *folder = sandbox->folder[0] == '\0' ? "." : sandbox->folder;
    if (file[0] == '/' || sandbox->root[0] == '\0')
        cursor_fail(cursor, "file", "there is no %s%s%s", file, file[0] == '/' ? "" : " in ",
                    file[0] == '/' ? "" : folder);
    cursor_fail(cursor, "file", "there is no %s in %s or %s", file, folder, sandbox->root);
}

/* window = { from, to } */
static void read_window(const struct cursor *trace, struct load *load)
{
    lua_State *L = trace->reader->L;
    int64_t ends[2];
    bool present = cursor_push(trace, "window") != LUA_TNIL;
    lua_pop(L, 1);
    cursor_origin(trace, "window", present);
    if (!present)
        return;
    cursor_push_table(trace, "window", NULL);
    struct cursor window = cursor_below(trace, "window");
    for (int k = 0; k < 2; k++) {
        const char *key = k == 0 ? "1" : "2";
        cursor_push(&window, key);
        const struct quantity *end = lua_units_get(L, -1);
        if (end == NULL || end->kind != QUANTITY_TIME || end->value == QUANTITY_NEVER)
            cursor_fail(trace, "window", "two times are wanted, as in {minutes(0), minutes(30)}");
        ends[k] = end->value / PS_PER_NS;
        lua_pop(L, 1);
    }
    if (lua_rawlen(L, window.index) != 2 || ends[0] >= ends[1])
        cursor_fail(trace, "window", "two times are wanted, the first before the second");
    load->trace_window_start_ns = ends[0];
    load->trace_window_ns = ends[1] - ends[0];
    lua_pop(L, 1);
}

/* A name of a column, in `text`. */
static void read_column(const struct cursor *table, const char *key, char *text, size_t size)
{
    lua_State *L = table->reader->L;
    cursor_push(table, key);
    if (lua_type(L, -1) != LUA_TSTRING || lua_rawlen(L, -1) == 0 || lua_rawlen(L, -1) >= size)
        cursor_fail(table, key, "the name of a column is wanted, of at most %zu letters", size - 1);
    snprintf(text, size, "%s", lua_tostring(L, -1));
    lua_pop(L, 1);
}

/* columns = { arrival = "...", prompt = "...", output = "..." }, ignore = { "...", ... } */
static void read_names(const struct cursor *cursor, struct trace_options *options)
{
    static const char *const kinds[] = {"arrival", "prompt", "output"};
    lua_State *L = cursor->reader->L;
    bool columns = cursor_push(cursor, "columns") != LUA_TNIL;
    lua_pop(L, 1);
    if (columns) {
        if (options->format != TRACE_FORMAT_CSV)
            cursor_fail(cursor, "columns", "has a meaning with format = \"csv\"");
        cursor_push_table(cursor, "columns", NULL);
        struct cursor table = cursor_below(cursor, "columns");
        read_no_others(&table, NULL, kinds, LENGTH(kinds));
        read_column(&table, "arrival", options->arrival, sizeof options->arrival);
        read_column(&table, "prompt", options->prompt, sizeof options->prompt);
        read_column(&table, "output", options->output, sizeof options->output);
        lua_pop(L, 1);
    }
    bool ignore = cursor_push(cursor, "ignore") != LUA_TNIL;
    lua_pop(L, 1);
    if (!ignore)
        return;
    cursor_push_table(cursor, "ignore", NULL);
    struct cursor table = cursor_below(cursor, "ignore");
    options->ignore_count = (uint32_t)lua_rawlen(L, table.index);
    if (options->ignore_count < 1 || options->ignore_count > TRACE_IGNORE_MAX)
        cursor_fail(cursor, "ignore", "1 to %d names are wanted, as in { \"class\" }", TRACE_IGNORE_MAX);
    for (uint32_t i = 0; i < options->ignore_count; i++) {
        char key[16];
        snprintf(key, sizeof key, "%u", i + 1);
        read_column(&table, key, options->ignore[i], sizeof options->ignore[i]);
    }
    lua_pop(L, 1);
}

static void read_trace(const struct cursor *cursor, struct load *load)
{
    lua_State *L = cursor->reader->L;
    bool outputs = cursor_push(cursor, "output") != LUA_TNIL;
    lua_pop(L, 1);
    if (outputs && load->trace.format != TRACE_FORMAT_MOONCAKE_JSONL)
        cursor_fail(cursor, "output", "has a meaning with format = \"mooncake\", whose lines may leave it out");
    if (load->trace.block_tokens > 0 && load->trace.format != TRACE_FORMAT_MOONCAKE_JSONL)
        cursor_fail(cursor, "block", "has a meaning with format = \"mooncake\"");
    if (load->trace.unit != 0 && load->trace.format != TRACE_FORMAT_MOONCAKE_JSONL &&
        load->trace.format != TRACE_FORMAT_CSV)
        cursor_fail(cursor, "time_unit", "has a meaning with format = \"mooncake\" or \"csv\"");
    load->trace.outputs_drawn = outputs;
    if (outputs)
        read_lengths(cursor, "output", &load->output);
    if (load->trace.prompt_permille != 1000 && load->trace.format == TRACE_FORMAT_MOONCAKE_JSONL)
        cursor_fail(cursor, "prompt_scale", "prompts that are made of blocks, which they share, cannot be scaled");
    read_names(cursor, &load->trace);
    int type = cursor_push(cursor, "file");
    if (type != LUA_TSTRING)
        cursor_fail(cursor, "file", "%sthe path of a trace is wanted", type == LUA_TNIL ? "missing; " : "");
    find_trace(cursor, lua_tostring(L, -1), load);
    lua_pop(L, 1);
    hash_file(cursor, load->trace_path, load->trace_sha256);
    cursor_origin(cursor, "file", true);
    read_window(cursor, load);
}

/* A sine by its middle in each of 48 steps, in ten-thousandths: the C library's differs between machines. */
static void make_sine(struct rate_profile *profile, int64_t period_ns, uint32_t swing_permille)
{
    static const uint16_t quarter[] = {654, 1951, 3214, 4423, 5556, 6593, 7518, 8315, 8969, 9469, 9808, 9979};
    const uint32_t steps = 4 * LENGTH(quarter);
    for (uint32_t k = 0; k < steps; k++) {
        uint32_t in_half = k % (steps / 2);
        uint32_t at = in_half < LENGTH(quarter) ? in_half : steps / 2 - 1 - in_half;
        uint32_t swing = swing_permille * quarter[at] / 10;
        int64_t before_ns = (int64_t)mul_div_floor_u64((uint64_t)period_ns, k, steps);
        profile->step[k].lasts_ns = (int64_t)mul_div_floor_u64((uint64_t)period_ns, k + 1, steps) - before_ns;
        profile->step[k].weight = (k < steps / 2 ? PROFILE_WEIGHT_MAX + swing : PROFILE_WEIGHT_MAX - swing) / 2;
    }
    profile->count = steps;
}

static int64_t profile_time(const struct cursor *cursor, int64_t most_ns)
{
    const struct quantity *time = lua_units_get(cursor->reader->L, -1);
    if (time == NULL || time->kind != QUANTITY_TIME || time->value / PS_PER_NS < NS_PER_MS ||
        time->value / PS_PER_NS > most_ns)
        cursor_fail(cursor, NULL,
                    "steps of at least a millisecond and at most 100 days together are wanted, as in "
                    "{ { minutes(10), 1 }, { minutes(5), 2.5 } }");
    return time->value / PS_PER_NS;
}

/* { { minutes(10), 1 }, { minutes(5), 2.5 } }: each so long at that part of the rate. */
static void read_profile_steps(const struct cursor *table, struct rate_profile *profile)
{
    lua_State *L = table->reader->L;
    int64_t left_ns = 100 * 86400 * NS_PER_S;
    uint64_t sum = 0;
    lua_Unsigned count = lua_rawlen(L, table->index);
    if (count < 1 || count > PROFILE_STEPS_MAX)
        cursor_fail(table, NULL, "1 to %d steps are wanted (PROFILE_STEPS_MAX)", PROFILE_STEPS_MAX);
    for (lua_Unsigned k = 0; k < count; k++) {
        lua_rawgeti(L, table->index, (lua_Integer)k + 1);
        if (!lua_istable(L, -1) || lua_rawlen(L, -1) != 2)
            cursor_fail(table, NULL, "step %u: a time and a number are wanted, as in { minutes(5), 2.5 }",
                        (unsigned)k + 1);
        lua_rawgeti(L, -1, 1);
        profile->step[k].lasts_ns = profile_time(table, left_ns);
        left_ns -= profile->step[k].lasts_ns;
        lua_rawgeti(L, -2, 2);
        double weight = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) * 1000 : -1;
        if (!(weight >= 0 && weight <= PROFILE_WEIGHT_MAX))
            cursor_fail(table, NULL, "step %u: a number from 0 to 1000 is wanted", (unsigned)k + 1);
        profile->step[k].weight = (uint32_t)(weight + 0.5);
        sum += profile->step[k].weight;
        lua_pop(L, 3);
    }
    if (sum == 0)
        cursor_fail(table, NULL, "somewhere requests have to come: a number above 0 is wanted");
    profile->count = (uint32_t)count;
}

static void read_profile(const struct cursor *load, struct rate_profile *profile)
{
    lua_State *L = load->reader->L;
    bool present = cursor_push(load, "profile") != LUA_TNIL;
    const struct word_mark *mark = scenario_word(L, -1);
    bool sine = mark != NULL && strcmp(mark->word, "sine") == 0;
    cursor_origin(load, "profile", present);
    if (present && !lua_istable(L, -1))
        cursor_fail(load, "profile", "a list of steps or sine(period, swing) is wanted");
    if (present) {
        struct cursor table = cursor_below(load, "profile");
        if (sine) {
            lua_rawgeti(L, table.index, 2);
            int64_t swing = lua_units_get(L, -1)->value;
            lua_pop(L, 1);
            if (swing > 1000)
                cursor_fail(load, "profile", "a swing of at most percent(100) is wanted: no rate is below 0");
            lua_rawgeti(L, table.index, 1);
            make_sine(profile, profile_time(&table, 100 * 86400 * NS_PER_S), (uint32_t)swing);
            lua_pop(L, 1);
        } else {
            read_profile_steps(&table, profile);
        }
    }
    lua_pop(L, 1);
}

static void read_conversations(const struct cursor *cursor, struct load *load)
{
    lua_State *L = cursor->reader->L;
    if ((load->rate_micro_per_s > 0) == (load->concurrency > 0))
        cursor_fail(cursor, "rate",
                    "either a rate, at which conversations begin, or concurrency, so many at a time, is "
                    "wanted%s",
                    load->concurrency > 0 ? ", not both" : "");
    read_lengths(cursor, "turns", &load->session_turns);
    bool first = cursor_push(cursor, "first") != LUA_TNIL;
    lua_pop(L, 1);
    if (first)
        read_lengths(cursor, "first", &load->session_first);
}

void scenario_read_load(const struct cursor *root, struct load *load)
{
    static const char *const generated[] = {"prompt", "output", "profile"};
    static const char *const conversed[] = {"turns", "first", "prompt", "output", "profile"};
    static const char *const recorded[] = {"file", "window", "columns", "ignore", "output"};
    static const char *const listed[] = {"requests"};
    lua_State *L = root->reader->L;
    cursor_push(root, "load");
    const struct word_mark *mark = scenario_word(L, -1);
    for (uint32_t k = 0; mark != NULL && k < load_name_count; k++) {
        if (strcmp(mark->word, load_names[k].name) == 0)
            load->arrivals = (enum arrival_kind)load_names[k].value;
    }
    if (load->arrivals == 0)
        cursor_fail(root, "load", "%spoisson, evenly, burst, closed, sessions, trace or listed { ... } is wanted",
                    lua_isnil(L, -1) ? "missing; " : "");
    cursor_origin(root, "load", true);
    struct cursor cursor = cursor_below(root, "load");
    const struct schema *schema = schema_of_load(load->arrivals);
    load->trace_repeat = 1;
    if (load->arrivals == ARRIVAL_TRACE) {
        read_no_others(&cursor, schema, recorded, LENGTH(recorded));
        read_fields(&cursor, schema, load);
        read_trace(&cursor, load);
    } else if (load->arrivals == ARRIVAL_LISTED) {
        read_no_others(&cursor, schema, listed, LENGTH(listed));
        read_fields(&cursor, schema, load);
        scenario_read_requests(&cursor, load);
    } else {
        bool sessions = load->arrivals == ARRIVAL_SESSIONS;
        read_no_others(&cursor, schema, sessions ? conversed : generated,
                       sessions ? LENGTH(conversed) : LENGTH(generated));
        read_fields(&cursor, schema, load);
        read_profile(&cursor, &load->profile);
        if (load->profile.count > 0 && load_is_closed(load))
            cursor_fail(&cursor, "profile", "has a meaning where requests come at a rate");
        if (sessions)
            read_conversations(&cursor, load);
        read_lengths(&cursor, "prompt", &load->prompt);
        read_lengths(&cursor, "output", &load->output);
    }
    lua_pop(L, 1);
}
