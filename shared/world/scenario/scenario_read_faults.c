/* Sections of a scenario: what goes wrong (fault.h), and requests that are listed one by one (request_list.h). */
#include "world/scenario/scenario_internal.h"

#include "base/arith.h"
#include "base/check.h"
#include "host/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(list) (sizeof(list) / sizeof((list)[0]))

/* ---- Faults ------------------------------------------------------------------------------------------------------ */

/* What each fault may say beyond when it happens. */
static const char *const fault_keys[][12] = {
    [FAULT_KILL] = {"node", "back", "lingers"},
    [FAULT_CUT] = {"node", "to"},
    [FAULT_NIC] = {"node", "rank", "back"},
    [FAULT_LATE] = {"node", "to", "skip", "count", "delay"},
    [FAULT_TWICE] = {"node", "to", "skip", "count"},
    [FAULT_SLOW] = {"node", "to", "skip", "count", "delay", "pieces"},
    [FAULT_STALL] = {"node", "to", "skip", "count", "delay"},
    [FAULT_FAIL] = {"node", "to", "skip", "count"},
    [FAULT_TICKS] = {"node", "to", "skip", "count", "delay"},
    [FAULT_LEAVE] = {"request"},
    [FAULT_DROP] = {"node", "to", "skip", "count"},
};
static const char *const when_keys[] = {"at", "on", "by", "nth"};

static enum fault_kind kind_of(const struct cursor *list, const char *key)
{
    const struct word_mark *mark = scenario_word(list->reader->L, -1);
    for (uint32_t k = 0; mark != NULL && k < fault_name_count; k++)
        if (strcmp(mark->word, fault_names[k].name) == 0)
            return (enum fault_kind)fault_names[k].value;
    cursor_fail(list, key, "kill, cut, nic, late, twice, slow, stall, fail, ticks, leave or drop { ... } is wanted");
}

static void read_fault(const struct cursor *list, const char *key, struct fault *fault)
{
    const char *keys[LENGTH(fault_keys[0]) + LENGTH(when_keys)];
    size_t count = 0;
    cursor_push(list, key);
    fault->kind = kind_of(list, key);
    cursor_origin(list, key, true);
    for (; fault_keys[fault->kind][count] != NULL; count++)
        keys[count] = fault_keys[fault->kind][count];
    for (size_t k = 0; k < LENGTH(when_keys); k++)
        keys[count++] = when_keys[k];
    struct cursor cursor = cursor_below(list, key);
    read_no_others(&cursor, NULL, keys, count);
    read_fields(&cursor, &schema_fault, fault);
    if (fault->node[0] == '\0' && (fault->kind == FAULT_KILL || fault->kind == FAULT_NIC || fault->kind == FAULT_CUT))
        cursor_fail(&cursor, "node", "missing; the name of an instance is wanted, as in 'decode-0'");
    if (fault->to[0] == '\0' && fault->kind == FAULT_CUT)
        cursor_fail(&cursor, "to", "missing; the instance on the other side is wanted, as in 'decode-0'");
    if (fault->kind == FAULT_LEAVE && fault->request == FAULT_REQUEST_ANY && fault->record == 0)
        cursor_fail(&cursor, "request", "missing; the number of a request is wanted, or `on` a record about one");
    if (fault->record == 0 && (fault->by[0] != '\0' || fault->nth != 1))
        cursor_fail(&cursor, "on", "missing; `by` and `nth` say which record of that kind is meant");
    lua_pop(list->reader->L, 1);
}

/* A request that never comes does not leave. Of a trace without a limit nobody knows yet how many there are. */
static void expect_request(const struct cursor *list, const char *key, const struct load *load,
                           const struct fault *fault)
{
    uint64_t count = load->requests;
    if (load->arrivals == ARRIVAL_LISTED && load->list != NULL)
        count = load->list->count;
    if (fault->kind != FAULT_LEAVE || fault->request == FAULT_REQUEST_ANY || count == 0 || fault->request < count)
        return;
    char path[32];
    snprintf(path, sizeof path, "%s.request", key);
    cursor_fail(list, path, "request %" PRIu32 " never arrives: the load has %" PRIu64 ", counted from 0",
                fault->request, count);
}

/* faults = { kill { node = "decode-0", on = "armed" }, ..., shuffle = 3 } */
void scenario_read_faults(const struct cursor *root, struct scenario *scenario)
{
    lua_State *L = root->reader->L;
    bool present = cursor_push(root, "faults") != LUA_TNIL;
    lua_pop(L, 1);
    if (!present)
        return;
    struct fault_list *faults = memory_zeroed(1, sizeof *faults);
    *root->reader->faults = faults;
    scenario->faults = faults;
    cursor_push_table(root, "faults", NULL);
    struct cursor cursor = cursor_below(root, "faults");
    lua_Unsigned length = lua_rawlen(L, cursor.index);
    if (length > FAULTS_MAX)
        cursor_fail(&cursor, NULL, "at most %d faults (FAULTS_MAX)", FAULTS_MAX);
    faults->count = (uint32_t)length;
    lua_pushnil(L);
    while (lua_next(L, cursor.index) != 0) {
        lua_pop(L, 1);
        bool item = lua_isinteger(L, -1) && lua_tointeger(L, -1) >= 1 && lua_tointeger(L, -1) <= (lua_Integer)length;
        if (!item && (lua_type(L, -1) != LUA_TSTRING || strcmp(lua_tostring(L, -1), "shuffle") != 0))
            cursor_fail(&cursor, NULL, "a list of faults is wanted, and `shuffle` beside it");
    }
    read_fields(&cursor, &schema_faults, faults);
    for (uint32_t k = 0; k < faults->count; k++) {
        char key[16];
        snprintf(key, sizeof key, "%" PRIu32, k + 1);
        read_fault(&cursor, key, &faults->item[k]);
        expect_request(&cursor, key, &scenario->load, &faults->item[k]);
    }
    lua_pop(L, 1);
}

void scenario_visit_faults(const struct fault_list *faults, scenario_visitor *visit, void *context)
{
    scenario_visit_schema("faults", &schema_faults, faults, visit, context);
    for (uint32_t k = 0; k < faults->count; k++) {
        char path[READ_PATH_SIZE];
        uint32_t name = 0;
        while (fault_names[name].value != (int64_t)faults->item[k].kind)
            name++;
        snprintf(path, sizeof path, "faults.%" PRIu32, k + 1);
        visit(context, path, fault_names[name].name);
        scenario_visit_schema(path, &schema_fault, &faults->item[k], visit, context);
    }
}

/* "decode-2" is an instance of pool decode that has at least three; its role. */
static enum node_role role_of(const struct scenario *scenario, const char *name)
{
    const char *dash = strrchr(name, '-');
    if (dash == NULL || dash[1] == '\0' || strspn(dash + 1, "0123456789") != strlen(dash + 1) || strlen(dash + 1) > 8)
        return 0;
    for (uint32_t k = 0; k < scenario->pool_count; k++) {
        const struct pool *pool = &scenario->pools[k];
        size_t length = (size_t)(dash - name);
        if (strlen(pool->name) == length && strncmp(pool->name, name, length) == 0 &&
            strtoul(dash + 1, NULL, 10) < pool->count)
            return pool->role;
    }
    return 0;
}

static void check_name(const struct cursor *root, const struct scenario *scenario, uint32_t index, const char *key,
                       const char *name, bool front)
{
    char path[READ_PATH_SIZE];
    if (name[0] == '\0' || (front && strcmp(name, "front") == 0) || role_of(scenario, name) != 0)
        return;
    snprintf(path, sizeof path, "faults.%" PRIu32 ".%s", index + 1, key);
    scenario_fail_at(root, path, "there is no instance '%s'; the first of pool %s is '%s-0'", name,
                     scenario->pools[0].name, scenario->pools[0].name);
}

void scenario_check_faults(const struct cursor *root, const struct scenario *scenario)
{
    for (uint32_t k = 0; scenario->faults != NULL && k < scenario->faults->count; k++) {
        const struct fault *fault = &scenario->faults->item[k];
        char path[READ_PATH_SIZE];
        bool message = fault->kind == FAULT_LATE || fault->kind == FAULT_TWICE || fault->kind == FAULT_DROP;
        check_name(root, scenario, k, "node", fault->node, message);
        check_name(root, scenario, k, "to", fault->to, message);
        check_name(root, scenario, k, "by", fault->by, true);
        enum node_role from = role_of(scenario, fault->node);
        enum node_role to = role_of(scenario, fault->to);
        bool pair = (from == ROLE_PREFILL && to == ROLE_DECODE) || (from == ROLE_DECODE && to == ROLE_PREFILL);
        snprintf(path, sizeof path, "faults.%" PRIu32 ".to", k + 1);
        if (fault->kind == FAULT_CUT && !pair)
            scenario_fail_at(root, path, "a prefiller and a decoder are wanted: no others are connected");
        snprintf(path, sizeof path, "faults.%" PRIu32, k + 1);
        if (fault->kind == FAULT_DROP && scenario->messenger.deadline_ns == TIME_NEVER)
            scenario_fail_at(root, path, "what is dropped only messenger.deadline makes good, which is never");
    }
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

void scenario_read_requests(const struct cursor *load_cursor, struct load *load)
{
    lua_State *L = load_cursor->reader->L;
    cursor_push_table(load_cursor, "requests", NULL);
    struct cursor list = cursor_below(load_cursor, "requests");
    uint32_t count = read_list_length(&list, LISTED_REQUESTS_MAX, "LISTED_REQUESTS_MAX");
    struct request_list *requests = memory_zeroed(1, sizeof *requests);
    *load_cursor->reader->requests = requests;
    load->list = requests;
    load->requests = requests->count = count;
    load->prompt.kind = load->output.kind = LENGTH_UNIFORM;
    load->prompt.low = load->output.low = 1;
    for (uint32_t k = 0; k < count; k++) {
        struct listed_request *request = &requests->item[k];
        char key[16];
        snprintf(key, sizeof key, "%" PRIu32, k + 1);
        cursor_push_table(&list, key, NULL);
        struct cursor cursor = cursor_below(&list, key);
        read_no_others(&cursor, &schema_request, NULL, 0);
        read_fields(&cursor, &schema_request, request);
        if (k > 0 && request->at_ns < requests->item[k - 1].at_ns)
            cursor_fail(&cursor, "at", "must not be before that of the request above");
        if (request->family != 0 && load->block_tokens == 0)
            cursor_fail(&cursor, "family", "has a meaning only where the load says how long a `block` is");
        load->prompt.high = max_u32(load->prompt.high, request->prompt_tokens);
        load->output.high = max_u32(load->output.high, request->output_tokens);
        lua_pop(L, 1);
    }
    if (load->block_tokens != 0 && load->prompt.high / load->block_tokens >= REQUEST_BLOCKS_MAX)
        cursor_fail(load_cursor, "block", "the longest prompt has more than %d blocks (REQUEST_BLOCKS_MAX)",
                    REQUEST_BLOCKS_MAX);
    lua_pop(L, 1);
}

void scenario_visit_requests(const struct request_list *list, scenario_visitor *visit, void *context)
{
    for (uint32_t k = 0; k < list->count; k++) {
        char path[READ_PATH_SIZE];
        snprintf(path, sizeof path, "load.requests.%" PRIu32, k + 1);
        scenario_visit_schema(path, &schema_request, &list->item[k], visit, context);
    }
}
