/* See scenario_write.h. Follows the schemas, as reading does. */
#include "world/scenario/scenario_write.h"

#include "world/scenario/policy_code.h"

#include "base/check.h"
#include "world/scenario/scenario_schema.h"

#include <inttypes.h>
#include <string.h>

#define INDENT_MAX 16

/* "key = value, " for each that is not what it would be anyway. */
static void write_fields(FILE *out, const struct schema *schema, const void *base, const char *const *left_out)
{
    char text[FIELD_TEXT_SIZE];
    for (uint32_t k = 0; k < schema->count; k++) {
        const struct field *field = &schema->fields[k];
        bool text_field = field->kind == FIELD_TEXT;
        bool plain =
            text_field ? ((const char *)base)[field->offset] == '\0' : field_load(field, base) == field->fallback;
        bool skip = false;
        for (size_t n = 0; left_out != NULL && left_out[n] != NULL; n++)
            skip = skip || strcmp(left_out[n], field->key) == 0;
        if (skip || (plain && !field->required))
            continue;
        field_text(field, base, text);
        fprintf(out, "%s = %s, ", field->key, text);
    }
}

static void write_numbers(FILE *out, const char *key, const int64_t *values, uint32_t count, const char *unit)
{
    fprintf(out, "%s{ ", key);
    for (uint32_t k = 0; k < count; k++)
        fprintf(out, unit[0] == '\0' ? "%s%" PRId64 ", " : "%s(%" PRId64 "), ", unit, values[k]);
    fprintf(out, "}, ");
}

static void write_grid(FILE *out, const char *key, const char *row_key, const char *column_key,
                       const struct step_grid *grid)
{
    int64_t values[STEP_BREAKPOINTS_MAX];
    char text[32];
    if (grid->row_count == 0)
        return;
    fprintf(out, "\n          %s = { ", key);
    for (uint32_t k = 0; k < grid->row_count; k++)
        values[k] = grid->rows[k];
    snprintf(text, sizeof text, "%s = ", row_key);
    write_numbers(out, text, values, grid->row_count, "");
    for (uint32_t k = 0; k < grid->column_count; k++)
        values[k] = (int64_t)grid->columns[k];
    snprintf(text, sizeof text, "%s = ", column_key);
    write_numbers(out, text, values, grid->column_count, "");
    fprintf(out, "time = { ");
    for (uint32_t k = 0; k < grid->row_count; k++)
        write_numbers(out, "", grid->ns[k], grid->column_count, "ns");
    fprintf(out, "} },");
}

static void write_machine(FILE *out, const struct hardware *machine)
{
    fprintf(out, "      machine = machine {\n        ");
    write_fields(out, &schema_machine, machine, NULL);
    for (uint32_t g = 0; machine->gpu_nics[0] != 0 && g < machine->gpus_per_node; g++)
        fprintf(out, "%s%u%s", g == 0 ? "gpu_nics = { " : ", ", machine->gpu_nics[g],
                g + 1 == machine->gpus_per_node ? " }, " : "");
    fprintf(out, "\n        nic = nic { ");
    write_fields(out, &schema_nic, &machine->nic, NULL);
    fprintf(out, "},\n");
    if (machine->steps != NULL) {
        fprintf(out, "        steps = { ");
        for (uint32_t k = 0; k < machine->steps->count; k++) {
            const struct step_table *table = &machine->steps->item[k];
            fprintf(out, "steps { ");
            write_fields(out, &schema_steps, table, NULL);
            fprintf(out, "sharding = { ");
            write_fields(out, &schema_sharding, &table->parallelism, NULL);
            fprintf(out, "},");
            write_grid(out, "prefill", "tokens", "keys", &table->prefill);
            write_grid(out, "decode", "sequences", "context", &table->decode);
            fprintf(out, " }, ");
        }
        fprintf(out, "},\n");
    }
    fprintf(out, "      },\n");
}

static void write_model(FILE *out, const char *key, const struct architecture *model)
{
    /* Reading fills it in where there is no window. */
    static const char *const filled_in[] = {"full_layers", NULL};
    fprintf(out, "%s = model { ", key);
    write_fields(out, &schema_model, model, model->window == 0 ? filled_in : NULL);
    fprintf(out, "},");
}

static void write_draft(FILE *out, const struct pool *pool)
{
    if (pool->scheduler.draft_tokens == 0)
        return;
    fprintf(out, "      draft = { ");
    static const char *const by_place[] = {"acceptance", NULL};
    const struct scheduler_policy *scheduler = &pool->scheduler;
    bool listed = scheduler->place_permille[0] > 0;
    write_fields(out, &schema_draft, pool, listed ? by_place : NULL);
    for (uint32_t k = 0; listed && k < scheduler->draft_tokens; k++) {
        char share[QUANTITY_TEXT_SIZE];
        quantity_text(QUANTITY_SHARE, scheduler->place_permille[k], share);
        fprintf(out, "%s%s%s", k == 0 ? "acceptance = { " : "", share,
                k + 1 == scheduler->draft_tokens ? " }, " : ", ");
    }
    if (pool->draft.head == DRAFT_MODEL)
        write_model(out, "head", &pool->draft.model);
    fprintf(out, "},\n");
}

/* A function can be written where it is a module of its own. */
static void write_policy(FILE *out, const char *key, const struct policy_code *code)
{
    CHECK(code == NULL || code->module[0] != '\0');
    if (code != NULL)
        fprintf(out, "%s = require \"%s\", ", key, code->module);
}

static void write_pool(FILE *out, const struct pool *pool)
{
    static const char *const function[] = {"queue", NULL};
    fprintf(out, "    [\"%s\"] = pool {\n      ", pool->name);
    write_fields(out, &schema_pool, pool, pool->queue_function != NULL ? function : NULL);
    write_policy(out, "queue", pool->queue_function);
    if (pool->count_min != pool->count || pool->count_max != pool->count)
        fprintf(out, "plan = { %" PRIu32 ", %" PRIu32 " }, ", pool->count_min, pool->count_max);
    if (pool->placement.kind != PLACEMENT_APART) {
        char text[PLACEMENT_TEXT_SIZE];
        placement_text(&pool->placement, text, sizeof text);
        fprintf(out, "placement = %s, ", text);
    }
    fprintf(out, "\n      shardings = { ");
    for (uint32_t k = 0; k < pool->sharding_count; k++) {
        fprintf(out, "{ ");
        write_fields(out, &schema_sharding, &pool->shardings[k], NULL);
        fprintf(out, "}, ");
    }
    fprintf(out, "},\n");
    write_draft(out, pool);
    fprintf(out, "      engine = engine { ");
    write_fields(out, &schema_engine, &pool->engine, NULL);
    fprintf(out, "},\n");
    write_machine(out, &pool->hardware);
    fprintf(out, "    },\n");
}

static void write_lengths(FILE *out, const char *key, const struct length_distribution *lengths)
{
    fprintf(out, "%s = ", key);
    if (lengths->kind == LENGTH_CONSTANT) {
        fprintf(out, "%" PRIu32 ", ", lengths->low);
    } else if (lengths->kind == LENGTH_UNIFORM) {
        fprintf(out, "uniform(%" PRIu32 ", %" PRIu32 "), ", lengths->low, lengths->high);
    } else {
        fprintf(out, "quantiles { ");
        for (uint32_t k = 0; k < lengths->quantile_count; k++)
            fprintf(out, "[%" PRIu32 "] = %" PRIu32 ", ", lengths->quantile_permille[k], lengths->quantile_tokens[k]);
        fprintf(out, "}, ");
    }
}

static const char *name_of(const struct field_name *names, uint32_t count, int64_t value)
{
    uint32_t k = 0;
    while (k < count && names[k].value != value)
        k++;
    CHECK(k < count);
    return names[k].name;
}

static void write_profile(FILE *out, const struct rate_profile *profile)
{
    char lasts[QUANTITY_TEXT_SIZE];
    for (uint32_t k = 0; k < profile->count; k++) {
        quantity_text(QUANTITY_TIME, profile->step[k].lasts_ns * PS_PER_NS, lasts);
        fprintf(out, "%s{ %s, %" PRIu32 ".%03" PRIu32 " }, %s", k == 0 ? "profile = { " : "", lasts,
                profile->step[k].weight / 1000, profile->step[k].weight % 1000, k + 1 == profile->count ? "}, " : "");
    }
}

static void write_load(FILE *out, const struct load *load)
{
    CHECK(load->arrivals != ARRIVAL_TRACE);
    fprintf(out, "  load = %s { ", name_of(load_names, load_name_count, load->arrivals));
    write_fields(out, schema_of_load(load->arrivals), load, NULL);
    if (load->arrivals != ARRIVAL_LISTED) {
        if (load->arrivals == ARRIVAL_SESSIONS)
            write_lengths(out, "turns", &load->session_turns);
        if (load->session_first.kind != 0)
            write_lengths(out, "first", &load->session_first);
        write_lengths(out, "prompt", &load->prompt);
        write_lengths(out, "output", &load->output);
        write_profile(out, &load->profile);
        fprintf(out, "},\n");
        return;
    }
    fprintf(out, "requests = {\n");
    for (uint32_t k = 0; k < load->list->count; k++) {
        fprintf(out, "    { ");
        write_fields(out, &schema_request, &load->list->item[k], NULL);
        fprintf(out, "},\n");
    }
    fprintf(out, "  } },\n");
}

static void write_section(FILE *out, const char *key, const struct schema *schema, const void *base)
{
    fprintf(out, "  %s = { ", key);
    write_fields(out, schema, base, NULL);
    fprintf(out, "},\n");
}

static void write_policies(FILE *out, const struct scenario *scenario)
{
    const char *functions[3] = {NULL, NULL, NULL};
    size_t count = 0;
    if (scenario->functions[POLICY_PREFILL] != NULL)
        functions[count++] = "prefill";
    if (scenario->functions[POLICY_DECODE] != NULL)
        functions[count++] = "decode";
    fprintf(out, "  routing = { ");
    write_fields(out, &schema_routing, scenario, functions);
    write_policy(out, "prefill", scenario->functions[POLICY_PREFILL]);
    write_policy(out, "decode", scenario->functions[POLICY_DECODE]);
    fprintf(out, "},\n  admission = { ");
    write_fields(out, &schema_admission, &scenario->admission, NULL);
    write_policy(out, "admit", scenario->functions[POLICY_ADMISSION]);
    fprintf(out, "},\n");
}

static void write_faults(FILE *out, const struct fault_list *faults)
{
    if (faults == NULL)
        return;
    fprintf(out, "  faults = { ");
    write_fields(out, &schema_faults, faults, NULL);
    fprintf(out, "\n");
    for (uint32_t k = 0; k < faults->count; k++) {
        fprintf(out, "    %s { ", name_of(fault_names, fault_name_count, (int64_t)faults->item[k].kind));
        write_fields(out, &schema_fault, &faults->item[k], NULL);
        fprintf(out, "},\n");
    }
    fprintf(out, "  },\n");
}

static void write_targets(FILE *out, const struct targets *targets)
{
    fprintf(out, "  targets = { ");
    for (uint32_t k = 0; k < targets->count; k++) {
        fprintf(out, "%s { ", name_of(target_names, target_name_count, (int64_t)targets->item[k].metric));
        write_fields(out, &schema_target, &targets->item[k], NULL);
        fprintf(out, "}, ");
    }
    write_fields(out, &schema_targets, targets, NULL);
    fprintf(out, "},\n");
}

bool scenario_write(const struct scenario *scenario, FILE *out)
{
    fprintf(out, "return scenario {\n  ");
    write_fields(out, &schema_top, scenario, NULL);
    fprintf(out, "\n  ");
    write_model(out, "model", &scenario->model);
    fprintf(out, "\n  pools = {\n");
    for (uint32_t k = 0; k < scenario->pool_count; k++)
        write_pool(out, &scenario->pools[k]);
    fprintf(out, "  },\n");
    write_load(out, &scenario->load);
    write_policies(out, scenario);
    write_section(out, "messenger", &schema_messenger, &scenario->messenger);
    write_targets(out, &scenario->targets);
    write_section(out, "plan", &schema_plan, &scenario->plan);
    write_faults(out, scenario->faults);
    fprintf(out, "}\n");
    return ferror(out) == 0;
}
