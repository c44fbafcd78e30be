/* A resolved scenario as text: one walk in one order for the canonical text, `explain`, and its JSON. */
#define _POSIX_C_SOURCE 200809L

#include "world/scenario/scenario_internal.h"

#include "base/check.h"
#include "host/sha256.h"
#include "world/scenario/policy_code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first line of the canonical text. It changes whenever the same scenario comes to mean something else, so that no
 * old result is taken for a new one. */
#define CANONICAL_VERSION "tandem scenario 1"

struct walk {
    scenario_visitor *visit;
    void *context;
};

void scenario_visit_schema(const char *path, const struct schema *schema, const void *base, scenario_visitor *visit,
                           void *context)
{
    char text[FIELD_TEXT_SIZE];
    char key[READ_PATH_SIZE];
    for (uint32_t k = 0; k < schema->count; k++) {
        bool later = k >= schema->count - schema->said;
        if (later && field_load(&schema->fields[k], base) == schema->fields[k].fallback)
            continue;
        snprintf(key, sizeof key, "%s%s%s", path, path[0] == '\0' ? "" : ".", schema->fields[k].key);
        field_text(&schema->fields[k], base, text);
        visit(context, key, text);
    }
}

static void visit_fields(const struct walk *walk, const char *path, const struct schema *schema, const void *base)
{
    scenario_visit_schema(path, schema, base, walk->visit, walk->context);
}

static const char *name_of(const struct field_name *names, uint32_t count, int64_t value)
{
    for (uint32_t k = 0; k < count; k++) {
        if (names[k].value == value)
            return names[k].name;
    }
    check_failed("an enum has a name", __FILE__, __LINE__);
}

/* "{1, 2, 4}", or "{ns(80), ns(95)}". */
static void visit_list(const struct walk *walk, const char *path, const char *key, const int64_t *values,
                       uint32_t count, bool times)
{
    char full[READ_PATH_SIZE];
    char text[STEP_BREAKPOINTS_MAX * 32];
    size_t used = 0;
    snprintf(full, sizeof full, "%s.%s", path, key);
    for (uint32_t k = 0; k < count; k++)
        used += (size_t)snprintf(text + used, sizeof text - used, times ? "%sns(%lld)" : "%s%lld", k == 0 ? "{" : ", ",
                                 (long long)values[k]);
    snprintf(text + used, sizeof text - used, "}");
    walk->visit(walk->context, full, text);
}

static void visit_grid(const struct walk *walk, const char *path, const char *row_key, const char *column_key,
                       const struct step_grid *grid)
{
    char key[READ_PATH_SIZE];
    int64_t rows[STEP_BREAKPOINTS_MAX];
    int64_t columns[STEP_BREAKPOINTS_MAX];
    if (grid->row_count == 0)
        return;
    for (uint32_t k = 0; k < grid->row_count; k++)
        rows[k] = grid->rows[k];
    for (uint32_t k = 0; k < grid->column_count; k++)
        columns[k] = (int64_t)grid->columns[k];
    visit_list(walk, path, row_key, rows, grid->row_count, false);
    visit_list(walk, path, column_key, columns, grid->column_count, false);
    for (uint32_t k = 0; k < grid->row_count; k++) {
        snprintf(key, sizeof key, "time.%u", k + 1);
        visit_list(walk, path, key, grid->ns[k], grid->column_count, true);
    }
}

/* Nothing where nothing was measured: what scenarios meant before there were tables, they mean still. */
static void visit_steps(const struct walk *walk, const char *machine, const struct step_tables *tables)
{
    char path[READ_PATH_SIZE];
    char part[READ_PATH_SIZE + 16];
    for (uint32_t k = 0; tables != NULL && k < tables->count; k++) {
        const struct step_table *table = &tables->item[k];
        snprintf(path, sizeof path, "%.120s.steps.%u", machine, k + 1);
        visit_fields(walk, path, &schema_steps, table);
        snprintf(part, sizeof part, "%s.sharding", path);
        visit_fields(walk, part, &schema_sharding, &table->parallelism);
        snprintf(part, sizeof part, "%s.prefill", path);
        visit_grid(walk, part, "tokens", "keys", &table->prefill);
        snprintf(part, sizeof part, "%s.decode", path);
        visit_grid(walk, part, "sequences", "context", &table->decode);
    }
}

/* Nothing where nothing is drafted: what scenarios meant before they could say so, they mean still. */
static void visit_draft(const struct walk *walk, const struct pool *pool)
{
    char path[READ_PATH_SIZE];
    if (pool->scheduler.draft_tokens == 0)
        return;
    snprintf(path, sizeof path, "pools.%s.draft", pool->name);
    bool listed = pool->scheduler.place_permille[0] > 0;
    for (uint32_t k = 0; k < schema_draft.count; k++) {
        const struct schema one = {&schema_draft.fields[k], 1, 0};
        if (!listed || strcmp(one.fields->key, "acceptance") != 0)
            visit_fields(walk, path, &one, pool);
    }
    for (uint32_t k = 0; listed && k < pool->scheduler.draft_tokens; k++) {
        char text[FIELD_TEXT_SIZE];
        snprintf(path, sizeof path, "pools.%s.draft.acceptance.%u", pool->name, k + 1);
        quantity_text(QUANTITY_SHARE, pool->scheduler.place_permille[k], text);
        walk->visit(walk->context, path, text);
    }
    snprintf(path, sizeof path, "pools.%s.draft.head", pool->name);
    walk->visit(walk->context, path, pool->draft.head == DRAFT_MTP ? "\"mtp\"" : "model");
    if (pool->draft.head == DRAFT_MODEL)
        visit_fields(walk, path, &schema_model, &pool->draft.model);
}

static void visit_placement(const struct walk *walk, const struct pool *pool)
{
    char path[READ_PATH_SIZE];
    char text[PLACEMENT_TEXT_SIZE];
    snprintf(path, sizeof path, "pools.%s.placement", pool->name);
    placement_text(&pool->placement, text, sizeof text);
    walk->visit(walk->context, path, text);
}

/* Nothing where nothing is decided so. */
static void visit_policy(const struct walk *walk, const char *path, const struct policy_code *code)
{
    char text[FIELD_TEXT_SIZE];
    if (code == NULL)
        return;
    snprintf(text, sizeof text, "function %s", code->sha256);
    walk->visit(walk->context, path, text);
}

static void visit_pool(const struct walk *walk, const struct pool *pool)
{
    char path[READ_PATH_SIZE];
    char text[FIELD_TEXT_SIZE];
    snprintf(path, sizeof path, "pools.%s", pool->name);
    visit_fields(walk, path, &schema_pool, pool);
    snprintf(path, sizeof path, "pools.%s.queue", pool->name);
    visit_policy(walk, path, pool->queue_function);
    snprintf(path, sizeof path, "pools.%s.plan", pool->name);
    snprintf(text, sizeof text, "{%u, %u}", pool->count_min, pool->count_max);
    walk->visit(walk->context, path, text);
    for (uint32_t k = 0; k < pool->sharding_count; k++) {
        snprintf(path, sizeof path, "pools.%s.shardings.%u", pool->name, k + 1);
        visit_fields(walk, path, &schema_sharding, &pool->shardings[k]);
    }
    visit_draft(walk, pool);
    visit_placement(walk, pool);
    snprintf(path, sizeof path, "pools.%s.machine", pool->name);
    visit_fields(walk, path, &schema_machine, &pool->hardware);
    if (pool->hardware.gpu_nics[0] != 0) {
        int64_t nics[GPU_NICS_MAX];
        for (uint32_t g = 0; g < pool->hardware.gpus_per_node; g++)
            nics[g] = pool->hardware.gpu_nics[g];
        visit_list(walk, path, "gpu_nics", nics, pool->hardware.gpus_per_node, false);
    }
    visit_steps(walk, path, pool->hardware.steps);
    snprintf(path, sizeof path, "pools.%s.machine.nic", pool->name);
    visit_fields(walk, path, &schema_nic, &pool->hardware.nic);
    snprintf(path, sizeof path, "pools.%s.engine", pool->name);
    visit_fields(walk, path, &schema_engine, &pool->engine);
}

static void visit_lengths(const struct walk *walk, const char *path, const struct length_distribution *lengths)
{
    char text[32 * SCENARIO_QUANTILES_MAX];
    size_t used = 0;
    switch (lengths->kind) {
    case LENGTH_CONSTANT:
        snprintf(text, sizeof text, "%u", lengths->low);
        break;
    case LENGTH_UNIFORM:
        snprintf(text, sizeof text, "uniform(%u, %u)", lengths->low, lengths->high);
        break;
    case LENGTH_QUANTILES:
        used = (size_t)snprintf(text, sizeof text, "quantiles {");
        for (uint32_t k = 0; k < lengths->quantile_count; k++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s[%u] = %u", k == 0 ? "" : ", ",
                                     lengths->quantile_permille[k], lengths->quantile_tokens[k]);
        snprintf(text + used, sizeof text - used, "}");
        break;
    }
    walk->visit(walk->context, path, text);
}

/* Nothing where the rate is constant. */
static void visit_profile(const struct walk *walk, const struct rate_profile *profile)
{
    char path[READ_PATH_SIZE];
    char lasts[QUANTITY_TEXT_SIZE];
    char text[FIELD_TEXT_SIZE];
    for (uint32_t k = 0; k < profile->count; k++) {
        snprintf(path, sizeof path, "load.profile.%u", k + 1);
        quantity_text(QUANTITY_TIME, profile->step[k].lasts_ns * PS_PER_NS, lasts);
        snprintf(text, sizeof text, "{%s, %u.%03u}", lasts, profile->step[k].weight / 1000,
                 profile->step[k].weight % 1000);
        walk->visit(walk->context, path, text);
    }
}

static void visit_load(const struct walk *walk, const struct load *load)
{
    char text[FIELD_TEXT_SIZE];
    char from[QUANTITY_TEXT_SIZE];
    char to[QUANTITY_TEXT_SIZE];
    walk->visit(walk->context, "load", name_of(load_names, load_name_count, load->arrivals));
    visit_fields(walk, "load", schema_of_load(load->arrivals), load);
    if (load->arrivals == ARRIVAL_LISTED) {
        scenario_visit_requests(load->list, walk->visit, walk->context);
        return;
    }
    if (load->arrivals != ARRIVAL_TRACE) {
        if (load->arrivals == ARRIVAL_SESSIONS)
            visit_lengths(walk, "load.turns", &load->session_turns);
        if (load->session_first.kind != 0)
            visit_lengths(walk, "load.first", &load->session_first);
        visit_lengths(walk, "load.prompt", &load->prompt);
        visit_lengths(walk, "load.output", &load->output);
        visit_profile(walk, &load->profile);
        return;
    }
    if (load->trace.outputs_drawn)
        visit_lengths(walk, "load.output", &load->output);
    if (load->trace.arrival[0] != '\0') {
        walk->visit(walk->context, "load.columns.arrival", load->trace.arrival);
        walk->visit(walk->context, "load.columns.prompt", load->trace.prompt);
        walk->visit(walk->context, "load.columns.output", load->trace.output);
    }
    for (uint32_t i = 0; i < load->trace.ignore_count; i++) {
        char path[READ_PATH_SIZE];
        snprintf(path, sizeof path, "load.ignore.%u", i + 1);
        walk->visit(walk->context, path, load->trace.ignore[i]);
    }
    snprintf(text, sizeof text, "sha256 %s", load->trace_sha256);
    walk->visit(walk->context, "load.file", text);
    quantity_text(QUANTITY_TIME, load->trace_window_start_ns * PS_PER_NS, from);
    quantity_text(QUANTITY_TIME,
                  load->trace_window_ns == 0 ? QUANTITY_NEVER
                                             : (load->trace_window_start_ns + load->trace_window_ns) * PS_PER_NS,
                  to);
    snprintf(text, sizeof text, "{%s, %s}", from, to);
    walk->visit(walk->context, "load.window", text);
}

static void visit_targets(const struct walk *walk, const struct targets *targets)
{
    char path[READ_PATH_SIZE];
    for (uint32_t k = 0; k < targets->count; k++) {
        snprintf(path, sizeof path, "targets.%u", k + 1);
        walk->visit(walk->context, path, name_of(target_names, target_name_count, targets->item[k].metric));
        visit_fields(walk, path, &schema_target, &targets->item[k]);
    }
    visit_fields(walk, "targets", &schema_targets, targets);
}

void scenario_visit(const struct scenario *scenario, scenario_visitor *visit, void *context)
{
    const struct walk walk = {.visit = visit, .context = context};
    visit_fields(&walk, "model", &schema_model, &scenario->model);
    for (uint32_t k = 0; k < scenario->pool_count; k++)
        visit_pool(&walk, &scenario->pools[k]);
    visit_load(&walk, &scenario->load);
    visit_fields(&walk, "routing", &schema_routing, scenario);
    visit_policy(&walk, "routing.prefill", scenario->functions[POLICY_PREFILL]);
    visit_policy(&walk, "routing.decode", scenario->functions[POLICY_DECODE]);
    visit_fields(&walk, "admission", &schema_admission, &scenario->admission);
    visit_policy(&walk, "admission.admit", scenario->functions[POLICY_ADMISSION]);
    visit_fields(&walk, "messenger", &schema_messenger, &scenario->messenger);
    visit_targets(&walk, &scenario->targets);
    visit_fields(&walk, "plan", &schema_plan, &scenario->plan);
    /* Nothing where nothing goes wrong: what scenarios meant before there were faults, they mean still. */
    if (scenario->faults != NULL)
        scenario_visit_faults(scenario->faults, visit, context);
}

void scenario_visit_head(const struct scenario *scenario, scenario_visitor *visit, void *context)
{
    const struct walk walk = {.visit = visit, .context = context};
    visit_fields(&walk, "", &schema_top, scenario);
}

static void print_canonical_line(void *context, const char *path, const char *value)
{
    fprintf(context, "%s = %s\n", path, value);
}

char *scenario_canonical(const struct scenario *scenario)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    CHECK(out != NULL);
    fprintf(out, CANONICAL_VERSION "\n");
    scenario_visit(scenario, print_canonical_line, out);
    CHECK(fclose(out) == 0);
    return text;
}

void scenario_identify(struct scenario *scenario)
{
    struct sha256 hash;
    char *text = scenario_canonical(scenario);
    sha256_start(&hash);
    sha256_add(&hash, text, strlen(text));
    sha256_hex(&hash, scenario->identity);
    free(text);
}

struct explanation {
    const struct scenario_loaded *loaded;
    FILE *out;    /* or */
    json_t *rows; /* a list */
    int path_width;
    int value_width;
};

/* Where the value came from: "default", "--set", or "file:line". */
static void origin_text(const struct scenario_loaded *loaded, const char *path, char *text, size_t size)
{
    for (size_t k = 0; k < loaded->origins.count; k++) {
        const struct origin *origin = &loaded->origins.items[k];
        if (strcmp(origin->path, path) != 0)
            continue;
        if (origin->kind == ORIGIN_FILE && origin->line > 0)
            snprintf(text, size, "%s:%d", loaded->sandbox.sources[origin->source].name, origin->line);
        else
            snprintf(text, size, "%s",
                     origin->kind == ORIGIN_FILE  ? loaded->sandbox.sources[origin->source].name
                     : origin->kind == ORIGIN_SET ? "--set"
                                                  : "default");
        return;
    }
    check_failed("every value has an origin", __FILE__, __LINE__);
}

static void measure_row(void *context, const char *path, const char *value)
{
    struct explanation *e = context;
    int path_length = (int)strlen(path);
    int value_length = (int)strlen(value);
    if (path_length > e->path_width)
        e->path_width = path_length;
    /* One long text must not push every origin off the screen. */
    if (value_length > e->value_width && value_length <= 40)
        e->value_width = value_length;
}

static void print_row(void *context, const char *path, const char *value)
{
    struct explanation *e = context;
    char origin[SANDBOX_PATH_SIZE + 16];
    origin_text(e->loaded, path, origin, sizeof origin);
    fprintf(e->out, "%-*s  %-*s  %s\n", e->path_width, path, e->value_width, value, origin);
}

static void add_row(void *context, const char *path, const char *value)
{
    struct explanation *e = context;
    char origin[SANDBOX_PATH_SIZE + 16];
    origin_text(e->loaded, path, origin, sizeof origin);
    json_array_append_new(e->rows, json_pack("{s:s, s:s, s:s}", "path", path, "value", value, "origin", origin));
}

static void visit_all(struct explanation *e, scenario_visitor *visit)
{
    scenario_visit_head(&e->loaded->scenario, visit, e);
    scenario_visit(&e->loaded->scenario, visit, e);
}

void scenario_explain(const struct scenario *scenario, FILE *out)
{
    struct explanation e = {.loaded = (const struct scenario_loaded *)(const void *)scenario, .out = out};
    visit_all(&e, measure_row);
    fprintf(out, "%s\n", scenario->question);
    fprintf(out, "identity %s\n\n", scenario->identity);
    visit_all(&e, print_row);
    for (uint32_t k = 0; k < scenario->vary_count; k++) {
        fprintf(out, "%svary %s:", k == 0 ? "\n" : "", scenario->vary[k].path);
        for (uint32_t v = 0; v < scenario->vary[k].count; v++)
            fprintf(out, " %s", scenario->vary[k].values[v]);
        fprintf(out, "\n");
    }
}

json_t *scenario_explain_json(const struct scenario *scenario)
{
    struct explanation e = {.loaded = (const struct scenario_loaded *)(const void *)scenario, .rows = json_array()};
    visit_all(&e, add_row);
    json_t *vary = json_array();
    for (uint32_t k = 0; k < scenario->vary_count; k++) {
        json_t *values = json_array();
        for (uint32_t v = 0; v < scenario->vary[k].count; v++)
            json_array_append_new(values, json_string(scenario->vary[k].values[v]));
        json_array_append_new(vary, json_pack("{s:s, s:o}", "path", scenario->vary[k].path, "values", values));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:o, s:o}", "scenario", scenario->path, "name", scenario->name,
                     "question", scenario->question, "identity", scenario->identity, "seed", (json_int_t)scenario->seed,
                     "variants", (json_int_t)scenario_variant_count(scenario), "vary", vary, "values", e.rows);
}
