/* Sections of a scenario: the model, and the pools with their machines and shardings. */
#include "world/scenario/scenario_internal.h"

#include "base/limits.h"
#include "world/scenario/lua_library.h"
#include "world/scenario/lua_sandbox.h"

#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

#define LENGTH(list) (sizeof(list) / sizeof((list)[0]))

/* The model under `key`. */
static void read_model(const struct cursor *parent, const char *key, struct architecture *model)
{
    cursor_push_table(parent, key, "model");
    struct cursor cursor = cursor_below(parent, key);
    read_no_others(&cursor, &schema_model, NULL, 0);
    read_fields(&cursor, &schema_model, model);
    lua_pop(parent->reader->L, 1);
    if (model->expert_weight_format == 0)
        model->expert_weight_format = model->weight_format;
    if (model->window == 0 && model->full_layers != 0)
        cursor_fail(&cursor, "full_layers", "has a meaning only beside window");
    if (model->window == 0)
        model->full_layers = model->layers;
}

void scenario_read_model(const struct cursor *root, struct architecture *model)
{
    read_model(root, "model", model);
}

/* A GPU whose kernels are measured: a shipped one, or one with tables beside the scenario. */
static void check_gpu(const struct cursor *machine, const char *gpu)
{
    static const char *const shipped[] = {"A100", "B200", "GB200", "H100", "H200"};
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    char folder[64];
    char path[SANDBOX_PATH_SIZE];
    for (size_t k = 0; k < LENGTH(shipped); k++)
        if (strcmp(gpu, shipped[k]) == 0)
            return;
    snprintf(folder, sizeof folder, "hardware/kernels/%s", gpu);
    if (gpu[0] != '\0' && strspn(gpu, allowed) == strlen(gpu) &&
        sandbox_find_file(sandbox_of(machine->reader->L), folder, path, sizeof path))
        return;
    const char *nearest = nearest_name(gpu, shipped, LENGTH(shipped));
    cursor_fail(
        machine, "gpu",
        "no kernels of a GPU '%s' are measured; 'A100', 'B200', 'GB200', 'H100' or 'H200' is wanted, or tables in "
        "hardware/kernels/%s beside the scenario%s%s",
        gpu, gpu, nearest == NULL ? "" : "; did you mean ", nearest == NULL ? "" : nearest);
}

/* gpu_nics = {1, 2, 1, 2}: which NIC each GPU uses. One that says what `nics` can say is taken for that. */
static void read_gpu_nics(const struct cursor *machine, struct hardware *hardware)
{
    lua_State *L = machine->reader->L;
    bool listed = cursor_push(machine, "gpu_nics") != LUA_TNIL;
    lua_pop(L, 1);
    cursor_origin(machine, "gpu_nics", listed);
    if (!listed)
        return;
    if (hardware->nics_per_node != 0)
        cursor_fail(machine, "gpu_nics", "either nics, which neighbours share, or gpu_nics is wanted");
    cursor_push_table(machine, "gpu_nics", NULL);
    struct cursor list = cursor_below(machine, "gpu_nics");
    uint32_t gpus = hardware->gpus_per_node;
    uint32_t count = read_list_length(&list, GPU_NICS_MAX, "GPU_NICS_MAX");
    if (count != gpus)
        cursor_fail(machine, "gpu_nics", "%u entries for %u GPUs; a NIC for each is wanted", count, gpus);
    bool used[GPU_NICS_MAX + 1] = {false};
    for (uint32_t g = 0; g < gpus; g++) {
        char key[16];
        snprintf(key, sizeof key, "%u", g + 1);
        cursor_push(&list, key);
        hardware->gpu_nics[g] = (uint8_t)read_count(&list, key, 1, gpus, NULL);
        used[hardware->gpu_nics[g]] = true;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    struct hardware counted = {.gpus_per_node = gpus, .nics_per_node = hardware_nics(hardware)};
    bool same = true;
    for (uint32_t g = 0; g < gpus; g++)
        same = same && hardware_nic_of(&counted, g) == hardware_nic_of(hardware, g);
    for (uint32_t nic = 1; nic <= counted.nics_per_node; nic++)
        if (!used[nic])
            cursor_fail(machine, "gpu_nics", "no GPU uses NIC %u; they are counted from 1 without a gap", nic);
    if (!same)
        return;
    memset(hardware->gpu_nics, 0, sizeof hardware->gpu_nics);
    hardware->nics_per_node = counted.nics_per_node == gpus ? 0 : counted.nics_per_node;
}

void scenario_read_machine(const struct cursor *machine, struct hardware *hardware)
{
    static const char *const others[] = {"gpu_nics", "nic", "steps"};
    read_no_others(machine, &schema_machine, others, LENGTH(others));
    read_fields(machine, &schema_machine, hardware);
    if (hardware->nics_per_node > hardware->gpus_per_node)
        cursor_fail(machine, "nics", "at most one NIC a GPU (%u) is wanted; several beside one GPU are one faster nic",
                    hardware->gpus_per_node);
    read_gpu_nics(machine, hardware);
    cursor_push_table(machine, "nic", "nic");
    struct cursor nic = cursor_below(machine, "nic");
    read_no_others(&nic, &schema_nic, NULL, 0);
    read_fields(&nic, &schema_nic, &hardware->nic);
    lua_pop(machine->reader->L, 1);
}

static void read_machine(const struct cursor *pool, struct hardware *machine)
{
    lua_State *L = pool->reader->L;
    cursor_push_table(pool, "machine", "machine");
    struct cursor cursor = cursor_below(pool, "machine");
    scenario_read_machine(&cursor, machine);
    if (machine->gpu[0] != '\0') {
        /* Packs beside the scenario, for a GPU of one's own or newer measurements; the library has its own. */
        const struct sandbox *sandbox = sandbox_of(L);
        check_gpu(&cursor, machine->gpu);
        snprintf(machine->kernel_folder, sizeof machine->kernel_folder, "%.900s%shardware/kernels/%s", sandbox->folder,
                 sandbox->folder[0] == '\0' ? "" : "/", machine->gpu);
    }
    scenario_read_steps(&cursor, machine);
    lua_pop(L, 1);
}

/* engine = "vllm" is short for require "engines.vllm". */
static void push_named_engine(const struct cursor *pool)
{
    static const char *const names[] = {"neutral", "vllm", "sglang", "trtllm"};
    lua_State *L = pool->reader->L;
    const char *name = lua_tostring(L, -1);
    bool known = false;
    for (size_t k = 0; k < LENGTH(names); k++)
        known = known || strcmp(name, names[k]) == 0;
    const char *nearest = known ? NULL : nearest_name(name, names, LENGTH(names));
    if (!known)
        cursor_fail(pool, "engine",
                    "'%.60s' is no engine that is shipped; 'neutral', 'vllm', 'sglang', 'trtllm' or engine "
                    "{ ... } is wanted%s%s",
                    name, nearest == NULL ? "" : "; did you mean ", nearest == NULL ? "" : nearest);
    lua_library_environment(L);
    lua_getfield(L, -1, "require");
    lua_pushfstring(L, "engines.%s", name);
    lua_call(L, 1, 1);
    lua_replace(L, -3);
    lua_pop(L, 1);
}

static void read_engine(const struct cursor *pool, struct engine *engine)
{
    lua_State *L = pool->reader->L;
    if (cursor_push(pool, "engine") == LUA_TSTRING)
        push_named_engine(pool);
    const struct word_mark *mark = scenario_word(L, -1);
    if (!lua_isnil(L, -1) && (mark == NULL || strcmp(mark->word, "engine") != 0))
        cursor_fail(pool, "engine", "the name of an engine or engine { ... } is wanted");
    struct cursor cursor = cursor_below(pool, "engine");
    if (!lua_isnil(L, -1))
        read_no_others(&cursor, &schema_engine, NULL, 0);
    read_fields(&cursor, &schema_engine, engine);
    lua_pop(L, 1);
}

/* acceptance = { percent(76), percent(62), ... }: a share for each place. Read so, what is left for the schema is 0. */
static bool read_places(const struct cursor *draft, uint16_t *places, uint32_t *count)
{
    static const struct field share = {
        .kind = FIELD_QUANTITY, .quantity = QUANTITY_SHARE, .width = 2, .required = true, .min = 0, .max = 1000};
    lua_State *L = draft->reader->L;
    bool listed = cursor_push(draft, "acceptance") == LUA_TTABLE && lua_units_get(L, -1) == NULL;
    lua_pop(L, 1);
    if (!listed)
        return false;
    cursor_push_table(draft, "acceptance", NULL);
    struct cursor list = cursor_below(draft, "acceptance");
    *count = read_list_length(&list, DRAFT_TOKENS_MAX, "DRAFT_TOKENS_MAX");
    for (uint32_t k = 0; k < *count; k++) {
        char key[16];
        snprintf(key, sizeof key, "%u", k + 1);
        struct field field = share;
        field.key = key;
        const struct schema one = {&field, 1, 0};
        read_fields(&list, &one, &places[k]);
        if (k > 0 && places[k] > places[k - 1])
            cursor_fail(&list, key, "more than the place before it, without which it is not accepted");
    }
    lua_pop(L, 1);
    return true;
}

/* draft = { tokens = 3, acceptance = percent(80), head = "mtp" or model { ... } }; absent: nothing is drafted. */
static void read_draft(const struct cursor *pool, struct pool *result)
{
    static const char *const others[] = {"head"};
    lua_State *L = pool->reader->L;
    result->draft.head = DRAFT_MTP;
    bool present = cursor_push(pool, "draft") != LUA_TNIL;
    lua_pop(L, 1);
    if (!present)
        return;
    cursor_push_table(pool, "draft", NULL);
    struct cursor cursor = cursor_below(pool, "draft");
    read_no_others(&cursor, &schema_draft, others, LENGTH(others));
    struct scheduler_policy *scheduler = &result->scheduler;
    uint32_t places = 0;
    bool listed = read_places(&cursor, scheduler->place_permille, &places);
    cursor_push(&cursor, "acceptance"); /* back in its place afterwards: other pools may share the table */
    if (listed) {
        lua_units_push(L, QUANTITY_SHARE, 0);
        lua_setfield(L, -3, "acceptance");
    }
    read_fields(&cursor, &schema_draft, result);
    lua_setfield(L, -2, "acceptance");
    if (listed && places != scheduler->draft_tokens)
        cursor_fail(&cursor, "acceptance", "%u places for %u tokens; one share, or one for each token, is wanted",
                    places, scheduler->draft_tokens);
    int type = cursor_push(&cursor, "head");
    const struct word_mark *mark = scenario_word(L, -1);
    bool mtp = type == LUA_TNIL || (type == LUA_TSTRING && strcmp(lua_tostring(L, -1), "mtp") == 0);
    if (!mtp && (mark == NULL || strcmp(mark->word, "model") != 0))
        cursor_fail(&cursor, "head", "\"mtp\", the model's own draft layers, or model { ... } is wanted");
    lua_pop(L, 1);
    cursor_origin(&cursor, "head", type != LUA_TNIL);
    if (!mtp) {
        result->draft.head = DRAFT_MODEL;
        read_model(&cursor, "head", &result->draft.model);
    }
    lua_pop(L, 1);
}

static void read_shardings(const struct cursor *pool, struct pool *result)
{
    lua_State *L = pool->reader->L;
    cursor_push_table(pool, "shardings", NULL);
    struct cursor list = cursor_below(pool, "shardings");
    result->sharding_count = read_list_length(&list, SCENARIO_SHARDINGS_MAX, "SCENARIO_SHARDINGS_MAX");
    for (uint32_t k = 0; k < result->sharding_count; k++) {
        char key[16];
        snprintf(key, sizeof key, "%u", k + 1);
        cursor_push_table(&list, key, NULL);
        struct cursor sharding = cursor_below(&list, key);
        read_no_others(&sharding, &schema_sharding, NULL, 0);
        read_fields(&sharding, &schema_sharding, &result->shardings[k]);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* plan = { least, most }: the counts that the planner tries; absent: only `count`. */
static void read_plan_range(const struct cursor *pool, struct pool *result)
{
    lua_State *L = pool->reader->L;
    result->count_min = result->count;
    result->count_max = result->count;
    bool present = cursor_push(pool, "plan") != LUA_TNIL;
    lua_pop(L, 1);
    cursor_origin(pool, "plan", present);
    if (!present)
        return;
    cursor_push_table(pool, "plan", NULL);
    struct cursor range = cursor_below(pool, "plan");
    if (read_list_length(&range, 2, "least and most") != 2)
        cursor_fail(&range, NULL, "two counts are wanted, as in {1, 4}");
    cursor_push(&range, "1");
    result->count_min = (uint32_t)read_count(&range, "1", 1, NODES_MAX - 1, "NODES_MAX");
    cursor_push(&range, "2");
    result->count_max = (uint32_t)read_count(&range, "2", result->count_min, NODES_MAX - 1, "NODES_MAX");
    lua_pop(L, 3);
}

/* A name, or a name and that of a pool. False: it is neither. */
static bool placement_named(const char *text, struct placement *placement)
{
    static const struct {
        const char *text;
        enum placement_kind kind;
        bool of_pool;
    } names[] = {{"apart", PLACEMENT_APART, false},
                 {"packed", PLACEMENT_PACKED, false},
                 {"spread", PLACEMENT_SPREAD, false},
                 {"apart from ", PLACEMENT_APART_FROM, true},
                 {"beside ", PLACEMENT_BESIDE, true}};
    for (size_t k = 0; k < LENGTH(names); k++) {
        size_t length = strlen(names[k].text);
        const char *pool = text + length;
        if (strncmp(text, names[k].text, length) != 0 || (*pool != '\0') != names[k].of_pool ||
            strlen(pool) >= sizeof placement->pool)
            continue;
        placement->kind = names[k].kind;
        memcpy(placement->pool, pool, strlen(pool) + 1);
        return true;
    }
    return false;
}

/* placement = "packed", "apart from decode", or a machine for each instance, as in {1, 1, 2}. */
static void read_placement(const struct cursor *pool, struct placement *placement)
{
    lua_State *L = pool->reader->L;
    int type = cursor_push(pool, "placement");
    cursor_origin(pool, "placement", type != LUA_TNIL);
    if (type == LUA_TTABLE) {
        lua_pop(L, 1);
        cursor_push_table(pool, "placement", NULL);
        struct cursor list = cursor_below(pool, "placement");
        placement->kind = PLACEMENT_LISTED;
        placement->machine_count = read_list_length(&list, SCENARIO_PLACES_MAX, "SCENARIO_PLACES_MAX");
        for (uint32_t k = 0; k < placement->machine_count; k++) {
            char key[16];
            snprintf(key, sizeof key, "%u", k + 1);
            cursor_push(&list, key);
            placement->machines[k] = (uint16_t)read_count(&list, key, 1, NODES_MAX, "NODES_MAX");
            lua_pop(L, 1);
        }
    } else if (type != LUA_TNIL && (type != LUA_TSTRING || !placement_named(lua_tostring(L, -1), placement))) {
        cursor_fail(pool, "placement",
                    "\"apart\", \"packed\", \"spread\", \"apart from POOL\", \"beside POOL\" or a machine for each "
                    "instance, as in {1, 1, 2}, is wanted");
    }
    lua_pop(L, 1);
}

static void read_pool(const struct cursor *pools, const char *name, struct pool *pool)
{
    static const char *const others[] = {"draft", "engine", "machine", "placement", "plan", "shardings"};
    lua_State *L = pools->reader->L;
    cursor_push_table(pools, name, "pool");
    struct cursor cursor = cursor_below(pools, name);
    snprintf(pool->name, sizeof pool->name, "%s", name);
    read_no_others(&cursor, &schema_pool, others, LENGTH(others));
    read_fields(&cursor, &schema_pool, pool);
    pool->queue_function = read_policy(&cursor, "queue");
    read_plan_range(&cursor, pool);
    read_shardings(&cursor, pool);
    read_draft(&cursor, pool);
    read_placement(&cursor, &pool->placement);
    read_machine(&cursor, &pool->hardware);
    read_engine(&cursor, &pool->engine);
    lua_pop(L, 1);
}

static void check_pool_name(const struct cursor *pools, const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    if (strlen(name) >= sizeof((struct pool *)0)->name || strspn(name, allowed) != strlen(name) ||
        (name[0] >= '0' && name[0] <= '9'))
        cursor_fail(pools, NULL, "the name of a pool is at most %zu letters, digits, '_' and '-', a letter first",
                    sizeof((struct pool *)0)->name - 1);
}

/* Pools are numbered by role, then by name: a Lua table has no order of its own. */
void scenario_read_pools(const struct cursor *root, struct scenario *scenario)
{
    lua_State *L = root->reader->L;
    const char *names[SCENARIO_POOLS_MAX];
    struct pool pool;
    cursor_push_table(root, "pools", NULL);
    struct cursor pools = cursor_below(root, "pools");
    size_t count = read_sorted_keys(&pools, names, SCENARIO_POOLS_MAX, "SCENARIO_POOLS_MAX");
    if (count == 0)
        cursor_fail(&pools, NULL, "at least one pool is wanted, as in prefill = pool { ... }");
    for (size_t k = 0; k < count; k++) {
        check_pool_name(&pools, names[k]);
        memset(&pool, 0, sizeof pool);
        read_pool(&pools, names[k], &pool);
        size_t at = k;
        for (; at > 0 && scenario->pools[at - 1].role > pool.role; at--)
            scenario->pools[at] = scenario->pools[at - 1];
        scenario->pools[at] = pool;
    }
    scenario->pool_count = (uint32_t)count;
    lua_pop(L, 1);
}
