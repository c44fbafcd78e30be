/* See device_model.h.
 *
 * A model is served as a list of operators; each is driven by one count of the step (a group's tokens, its sequences,
 * its decoding sequences, the tokens whose latents are decompressed, the tokens of all groups that share experts) and
 * runs once a layer, or once a step. At make time the operators of one driver are summed into one curve over that
 * count, rounded once per breakpoint; a step is then a few look-ups.
 *
 * Pipeline stages: a step is one batch, which passes the stages one after the other, so its time is that of all layers
 * and of the hand-overs between stages. Stages that hold one layer less are taken to hold as many as the others, so
 * ceil(layers / P) * P layers count. How steps overlap, each in another stage, is the simulator's to know: it is told
 * what a stage takes (struct step_time).
 */
#include "sim/cost/device_model.h"

#include "base/check.h"
#include "world/deployment.h"
#include "sim/cost/device_model_internal.h"
#include "host/memory.h"
#include "host/user_error.h"

#include <stdio.h>
#include <stdlib.h>

const char *device_gpu_names(void)
{
    return gpu_tables_names();
}

/* ---- Making ------------------------------------------------------------------------------------------------------ */

/* Much makes a measurement longer than the kernel, nothing makes it shorter: where a larger count was measured to take
 * less, the smaller one was disturbed, and takes the least that any larger one does. So no curve ever falls. */
static void curves_make(struct device_model *model)
{
    double least[OPERATORS_MAX];
    for (uint32_t breakpoint = TOKEN_CURVE_BREAKPOINTS - 1; breakpoint > 0; breakpoint--) {
        double tokens = (double)breakpoint_value(breakpoint, TOKEN_CURVE_BITS);
        double sum[DRIVERS] = {0};
        double share[DRIVERS][SHARES] = {{0}};
        double before = 0.0;
        double hops = 0.0;
        for (uint32_t i = 0; i < model->operator_count; i++) {
            const struct device_operator *o = &model->operators[i];
            struct operator_time time = operator_evaluate(model, o, tokens);
            if (breakpoint == TOKEN_CURVE_BREAKPOINTS - 1 || time.ns < least[i])
                least[i] = time.ns;
            double ns = least[i] * o->count;
            hops += o->kind == OPERATOR_STAGE_HOP ? ns : 0.0;
            double launch = time.launch_ns < least[i] ? time.launch_ns * o->count : ns;
            sum[o->driver] += ns;
            share[o->driver][time.bound] += ns - launch;
            share[o->driver][BOUND_OVERHEAD] += launch;
            if (o->before_transfer && o->driver == DRIVER_TOKENS)
                before += ns;
        }
        for (uint32_t d = 0; d < DRIVERS; d++) {
            model->curves[d].ns[breakpoint] = round_ns(sum[d]);
            for (uint32_t s = BOUND_COMPUTE; s < SHARES; s++)
                model->bounds[d][s].ns[breakpoint] = round_ns(share[d][s]);
        }
        model->before.ns[breakpoint] = round_ns(before);
        model->hops.ns[breakpoint] = round_ns(hops);
    }
}

static uint64_t line_context(uint32_t column)
{
    return column == 0 ? 0 : UINT64_C(1) << (LINE_CONTEXT_LOG2 + column - 1);
}

/* All layers' decode attention of `sequences` that have `context` tokens cached: the step reads the new ones too. */
static double decode_attention_ns(const struct device_model *model, double sequences, double context)
{
    const struct model_part *parts[2] = {&model->main, &model->draft};
    double read = context + sequences * model->queries;
    double ns = 0.0;
    for (uint32_t i = 0; i < 2; i++) {
        const struct model_part *part = parts[i];
        if (part->layers_full > 0)
            ns += part->layers_full * decode_attention_time(&model->device, &part->full, sequences, read).ns;
        if (part->layers_windowed > 0)
            ns += part->layers_windowed * decode_attention_time(&model->device, &part->windowed, sequences, read).ns;
    }
    if (model->drafting.next_layers > 0)
        ns += model->drafting.next_layers *
              decode_attention_time(&model->device, &model->drafting.next, sequences, context + sequences).ns;
    return ns;
}

/* No longer sequence is measured than this, nor served. */
#define LENGTH_MAX 131072

/* Long sequences are read less efficiently than many short ones of the same sum, so measured times may fall as the
 * batch grows at the same context. Among batches that are served the longest time so far is carried on; batches whose
 * sequences would be longer than any take the time of the smallest batch that is served. */
static void lines_smooth(struct device_model *model, uint32_t column)
{
    uint32_t served = 1;
    while (served + 1 < LINE_ROWS && breakpoint_value(served, LINE_BITS) * LENGTH_MAX < line_context(column))
        served++;
    for (uint32_t row = served + 1; row < LINE_ROWS; row++)
        model->line_ns[row][column] = max_i64(model->line_ns[row][column], model->line_ns[row - 1][column]);
    for (uint32_t row = served; row-- > 1;)
        model->line_ns[row][column] = min_i64(model->line_ns[row][column], model->line_ns[row + 1][column]);
}

static void lines_make(struct device_model *model)
{
    for (uint32_t column = 0; column < LINE_COLUMNS; column++) {
        for (uint32_t row = 1; row < LINE_ROWS; row++) {
            double sequences = (double)breakpoint_value(row, LINE_BITS);
            model->line_ns[row][column] = round_ns(decode_attention_ns(model, sequences, (double)line_context(column)));
        }
        lines_smooth(model, column);
        /* A maximum of two columns that do not decrease over rows does not either. */
        for (uint32_t row = 1; column > 0 && row < LINE_ROWS; row++)
            model->line_ns[row][column] = max_i64(model->line_ns[row][column], model->line_ns[row][column - 1]);
    }
}

/* False, with a sentence in `error`, when the ranks cannot share the model. */
static bool ranks_fit(const struct architecture *a, struct parallelism p, struct user_error *error)
{
    uint32_t t = p.tensor;
    if (p.tensor == 0 || p.data == 0 || p.expert == 0 || p.pipeline == 0)
        user_error_set(error, NULL, 0, NULL, "%s: every parallelism is at least 1", a->name);
    else if (a->heads % t != 0)
        user_error_set(error, NULL, 0, NULL, "%s: %u query heads do not divide over %u tensor-parallel ranks", a->name,
                       a->heads, t);
    else if (a->attention == ATTENTION_GQA && a->kv_heads % t != 0 && t % a->kv_heads != 0)
        user_error_set(error, NULL, 0, NULL, "%s: neither %u KV heads nor %u tensor-parallel ranks divide the other",
                       a->name, a->kv_heads, t);
    else if (p.pipeline > a->layers)
        user_error_set(error, NULL, 0, NULL, "%s: %u pipeline stages for %u layers", a->name, p.pipeline, a->layers);
    else if (p.expert > 1 && a->experts == 0)
        user_error_set(error, NULL, 0, NULL, "%s: expert parallelism %u for a model without experts", a->name,
                       p.expert);
    else if (p.expert > a->experts + a->experts_redundant && a->experts > 0)
        user_error_set(error, NULL, 0, NULL, "%s: %u experts for %u expert-parallel ranks", a->name,
                       a->experts + a->experts_redundant, p.expert);
    else if (a->experts > 0 && t * p.data % p.expert != 0)
        user_error_set(error, NULL, 0, NULL, "%s: %u expert-parallel ranks do not divide the %u ranks of a stage",
                       a->name, p.expert, t * p.data);
    else
        return true;
    return false;
}

static void refuse_device(const struct architecture *architecture, struct parallelism parallelism,
                          const struct hardware *hardware, struct user_error *error)
{
    char sharding[64];
    parallelism_text(&parallelism, sharding, sizeof sharding);
    if (hardware->gpu[0] == '\0')
        user_error_set(
            error, NULL, 0, NULL,
            "%s: no steps of %s with %s were measured on it; `tandem calibrate SCENARIO --out FILE` measures those "
            "that a scenario needs",
            hardware->name, architecture->name, sharding);
    else
        user_error_set(error, NULL, 0, NULL, "%s: no measured efficiencies of GPU \"%s\"; known: %s", hardware->name,
                       hardware->gpu, gpu_tables_names());
}

/* False, with a sentence: a draft model that cannot be spread as the model is. */
static bool draft_fits(const struct device_request *request, struct user_error *error)
{
    struct parallelism p = request->parallelism;
    const struct architecture *draft = request->draft_model;
    if (request->draft_tokens == 0 || draft == NULL)
        return true;
    if (draft->experts == 0)
        p.expert = 1;
    if (p.data > 1 && draft->experts > 0) {
        user_error_set(error, NULL, 0, NULL, "%s: a draft model with experts is not modelled with data parallelism",
                       draft->name);
        return false;
    }
    return ranks_fit(draft, p, error);
}

static struct device_model *model_make(const struct device_request *request, const struct hardware *hardware,
                                       const struct engine *engine, struct user_error *error)
{
    const struct architecture *architecture = request->architecture;
    struct parallelism parallelism = request->parallelism;
    if (!ranks_fit(architecture, parallelism, error) || !draft_fits(request, error))
        return NULL;
    struct device_model *model = memory_zeroed(1, sizeof *model);
    /* A table does not say which draft model took part. */
    model->is_measured = request->draft_model == NULL && measured_steps_find(hardware, architecture, parallelism,
                                                                             request->draft_tokens, &model->measured);
    if (model->is_measured)
        return model;
    bool packed = kernel_store_size(kernel_store_open(hardware->kernel_folder, hardware->gpu)) > 0;
    if (!packed && gpu_tables_find(hardware->gpu) == NULL) {
        if (request->draft_tokens > 0 && hardware->gpu[0] == '\0')
            user_error_set(error, NULL, 0, NULL,
                           "%s: steps that draft tokens are modelled from kernels, or measured with draft = %u%s",
                           hardware->name, request->draft_tokens,
                           request->draft_model != NULL ? ", but not with a draft model" : "");
        else
            refuse_device(architecture, parallelism, hardware, error);
        free(model);
        return NULL;
    }
    model->own_kernels = gpu_tables_find(hardware->gpu) == NULL;
    device_init(&model->device, hardware);
    model->engine = engine != NULL && engine->kernels != 0 ? *engine : engine_neutral();
    model->engine.prefill_permille = engine_prefill_permille(&model->engine, architecture->experts);
    device_shapes_make(model, request);
    if (!device_model_measure(model, request, hardware, error)) {
        device_model_free(model);
        return NULL;
    }
    curves_make(model);
    lines_make(model);
    prefill_table_make(model);
    return model;
}

struct device_model *device_model_make(const struct architecture *architecture, struct parallelism parallelism,
                                       const struct hardware *hardware, const struct engine *engine,
                                       struct user_error *error)
{
    const struct device_request request = {.architecture = architecture, .parallelism = parallelism};
    return model_make(&request, hardware, engine, error);
}

struct device_model *device_model_of_pool(const struct scenario *scenario, const struct pool *pool,
                                          struct parallelism parallelism, struct user_error *error)
{
    const struct architecture served = scenario_served(scenario, pool);
    const struct pool *drafter = scenario_drafter(scenario, pool);
    struct device_request request = {.architecture = &served, .parallelism = parallelism};
    if (drafter != NULL) {
        request.draft_tokens = drafter->scheduler.draft_tokens;
        if (drafter->draft.head == DRAFT_MODEL)
            request.draft_model = &drafter->draft.model;
    }
    return model_make(&request, &pool->hardware, &pool->engine, error);
}

bool device_model_serves(const struct device_model *model, enum node_role role, struct user_error *error)
{
    bool prefills = !model->is_measured || model->measured.prefill.row_count > 0;
    bool decodes = !model->is_measured || model->measured.decode.row_count > 0;
    if ((role == ROLE_DECODE || prefills) && (role == ROLE_PREFILL || decodes))
        return true;
    char sharding[64];
    parallelism_text(&model->measured.parallelism, sharding, sizeof sharding);
    user_error_set(
        error, NULL, 0, NULL,
        "no %s steps of %s with %s were measured on the machine; `tandem calibrate SCENARIO --out FILE` measures "
        "those that a scenario needs",
        prefills ? "decode" : "prefill", model->measured.model, sharding);
    return false;
}

void device_model_free(struct device_model *model)
{
    if (model == NULL)
        return;
    for (uint32_t i = 0; i < model->slice_count; i++)
        kernel_slice_free(&model->slices[i]);
    free(model);
}

bool device_model_is_measured(const struct device_model *model)
{
    return model->is_measured || model->own_kernels;
}

uint32_t device_stages(const struct device_model *model)
{
    return model->is_measured ? model->measured.stages : model->stages;
}

/* ---- Decode ------------------------------------------------------------------------------------------------------ */

/* Every group runs the same graph: all are padded to the largest one's. */
int64_t device_launch_ns(const struct device_model *model)
{
    return model->is_measured ? model->measured.launch_ns : 0;
}

int64_t device_decode_fixed_ns(const struct device_model *model, const struct step_group *groups, uint32_t group_count)
{
    if (model->is_measured)
        return 0;
    uint64_t most = 0;
    uint64_t shared = 0;
    for (uint32_t g = 0; g < group_count; g++) {
        most = max_u64(most, groups[g].decode_sequences);
        shared += groups[g].decode_sequences;
    }
    uint64_t batch = engine_batch(&model->engine, most);
    int64_t host = host_ns(model, most);
    if (batch > most) {
        most = batch;
        shared = batch * group_count;
    }
    const struct token_curve *curves = model->curves;
    uint64_t tokens = most * model->queries;
    int64_t ns = host + token_curve_ns(&curves[DRIVER_TOKENS], tokens) +
                 token_curve_ns(&curves[DRIVER_SEQUENCES], tokens) + token_curve_ns(&curves[DRIVER_DECODE], tokens);
    if (model->wide)
        ns += token_curve_ns(&curves[DRIVER_WIDE_DECODE], tokens) +
              token_curve_ns(&curves[DRIVER_WIDE_DECODE_ALL], shared * model->queries);
    else if (model->experts_shared)
        ns += token_curve_ns(&curves[DRIVER_SHARED], shared * model->queries);
    if (model->drafting.tokens > 0)
        ns += token_curve_ns(&curves[DRIVER_DRAFT], most) + token_curve_ns(&curves[DRIVER_DRAFT_ALL], shared);
    return ns;
}

/* Attention time at a column of the table, between its rows. */
static int64_t line_column_ns(const struct device_model *model, const struct breakpoint_position *row, uint32_t column)
{
    int64_t low = model->line_ns[row->index][column];
    int64_t high = model->line_ns[row->index + 1][column];
    return breakpoint_between(row, low, high);
}

void device_decode_line(const struct device_model *model, uint32_t decode_sequences, uint64_t decode_context,
                        struct decode_line *line)
{
    if (model->is_measured) {
        measured_decode_line(&model->measured, decode_sequences, decode_context, line);
        return;
    }
    if (decode_sequences == 0) {
        *line = (struct decode_line){.context_max = UINT64_MAX};
        return;
    }
    struct breakpoint_position row = breakpoint_locate(decode_sequences, LINE_BITS, LINE_OCTAVE_LAST);
    uint32_t column = 0;
    if (decode_context >= line_context(1)) {
        column = 63u - (uint32_t)__builtin_clzll(decode_context) - LINE_CONTEXT_LOG2 + 1;
        column = min_u32(column, LINE_COLUMNS - 2);
    }
    uint64_t first = line_context(column);
    uint64_t last = line_context(column + 1);
    int64_t low = line_column_ns(model, &row, column);
    int64_t high = line_column_ns(model, &row, column + 1);
    uint64_t slope = ((uint64_t)(high - low) << 32) / (last - first);
    *line = (struct decode_line){
        .context_min = first,
        .context_max = column == LINE_COLUMNS - 2 ? UINT64_MAX : last,
        .base_ns = low - (int64_t)((uint128)first * slope >> 32),
        .slope_q32 = slope,
    };
}

/* ---- Any step ------------------------------------------------------------------------------------------------------
 */

/* The largest counts over the groups, and the attention of the slowest group. */
void step_count(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                bool decode_too, struct step_counts *counts)
{
    *counts = (struct step_counts){.prefill = false};
    int64_t slowest = -1;
    for (uint32_t g = 0; g < group_count; g++) {
        const struct step_group *group = &groups[g];
        uint32_t decode = decode_too ? group->decode_sequences : 0;
        uint64_t context = decode_too ? group->decode_context : 0;
        uint64_t verified = (uint64_t)decode * model->queries;
        uint64_t tokens = verified + group->prefill_tokens;
        uint64_t *most = counts->driver;
        counts->sequences = max_u64(counts->sequences, (uint64_t)decode + group->prefill_sequences);
        counts->decode = max_u64(counts->decode, decode);
        most[DRIVER_TOKENS] = max_u64(most[DRIVER_TOKENS], tokens);
        most[DRIVER_SEQUENCES] = max_u64(most[DRIVER_SEQUENCES], verified + group->prefill_sequences);
        most[DRIVER_DECODE] = max_u64(most[DRIVER_DECODE], verified);
        most[DRIVER_DECOMPRESS] = max_u64(most[DRIVER_DECOMPRESS], group->prefill_tokens + group->prefill_context);
        most[DRIVER_SHARED] += model->experts_shared ? tokens : 0;
        most[DRIVER_DRAFT_ALL] += model->drafting.tokens > 0 ? decode : 0;
        struct decode_line line;
        device_decode_line(model, decode, context, &line);
        int64_t decode_ns = decode_line_ns(&line, context);
        int64_t prefill_ns = prefill_table_ns(model, group->prefill_tokens, group->prefill_pairs);
        counts->prefill = counts->prefill || group->prefill_tokens > 0;
        if (decode_ns + prefill_ns > slowest) {
            slowest = decode_ns + prefill_ns;
            counts->decode_attention_ns = decode_ns;
            counts->prefill_attention_ns = prefill_ns;
        }
    }
    if (model->drafting.tokens > 0)
        counts->driver[DRIVER_DRAFT] = counts->decode;
    if (model->wide) {
        counts->driver[counts->prefill ? DRIVER_WIDE_PREFILL : DRIVER_WIDE_DECODE] = counts->driver[DRIVER_TOKENS];
        counts->driver[counts->prefill ? DRIVER_WIDE_PREFILL_ALL : DRIVER_WIDE_DECODE_ALL] =
            counts->driver[DRIVER_SHARED];
        counts->driver[DRIVER_SHARED] = 0;
    }
}

static enum step_bound step_bound(const struct device_model *model, const struct step_counts *counts)
{
    int64_t share[SHARES] = {0};
    for (uint32_t d = 0; d < DRIVERS; d++) {
        uint32_t breakpoint = breakpoint_locate(counts->driver[d], TOKEN_CURVE_BITS, TOKEN_CURVE_OCTAVE_LAST).index;
        for (uint32_t s = BOUND_COMPUTE; s < SHARES && breakpoint > 0; s++)
            share[s] += model->bounds[d][s].ns[breakpoint];
    }
    share[model->decode_attention_bound] += counts->decode_attention_ns;
    share[BOUND_COMPUTE] += counts->prefill_attention_ns;
    share[BOUND_OVERHEAD] += host_ns(model, counts->sequences);
    enum step_bound largest = BOUND_COMPUTE;
    for (uint32_t s = BOUND_COMPUTE; s < SHARES; s++)
        if (share[s] > share[largest])
            largest = (enum step_bound)s;
    return largest;
}

/* The device's part of the step, with or without its decoding sequences. */
static int64_t prefill_step_ns(const struct device_model *model, const struct step_counts *counts)
{
    int64_t ns = 0;
    for (uint32_t d = 0; d < DRIVERS; d++)
        if (counts->driver[d] > 0)
            ns += token_curve_ns(&model->curves[d], counts->driver[d]);
    return ns + counts->decode_attention_ns + counts->prefill_attention_ns;
}

/* The device's part of a mixed step: of its decoding sequences alone, and what the prompt tokens add to it. */
static void mixed_parts(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                        const struct step_counts *counts, int64_t *decode, int64_t *more)
{
    *decode = 0;
    if (counts->decode > 0)
        *decode = device_decode_fixed_ns(model, groups, group_count) - host_ns(model, counts->decode) +
                  counts->decode_attention_ns;
    if (model->engine.mixes) {
        /* What is padded, or exchanged otherwise, may take longer alone than with a few tokens more. */
        *more = max_i64(counts->prefill_attention_ns, prefill_step_ns(model, counts) - *decode);
    } else {
        struct step_counts alone;
        step_count(model, groups, group_count, false, &alone);
        *more = prefill_step_ns(model, &alone) + (*decode > 0 ? host_ns(model, counts->sequences) : 0);
    }
}

/* What the prompt tokens add is scaled as the engine's prefill is. */
static int64_t mixed_step_ns(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                             const struct step_counts *counts)
{
    int64_t decode, more;
    mixed_parts(model, groups, group_count, counts, &decode, &more);
    return host_ns(model, counts->sequences) + decode + more * model->engine.prefill_permille / 1000;
}

int64_t device_prefill_factor_ns(const struct device_model *model, const struct step_group *groups,
                                 uint32_t group_count, const struct step_counts *counts)
{
    int64_t decode, more;
    if (!counts->prefill)
        return 0;
    mixed_parts(model, groups, group_count, counts, &decode, &more);
    return more * model->engine.prefill_permille / 1000 - more;
}

void device_step(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                 struct step_time *time)
{
    if (model->is_measured) {
        measured_step(&model->measured, groups, group_count, time);
        return;
    }
    struct step_counts counts;
    *time = (struct step_time){.stage_ns = 0};
    step_count(model, groups, group_count, true, &counts);
    int64_t attention = counts.decode_attention_ns + counts.prefill_attention_ns;
    int64_t logits = token_curve_ns(&model->curves[DRIVER_SEQUENCES], counts.driver[DRIVER_SEQUENCES]);
    int64_t decompress = token_curve_ns(&model->curves[DRIVER_DECOMPRESS], counts.driver[DRIVER_DECOMPRESS]);
    int64_t absorb = token_curve_ns(&model->curves[DRIVER_DECODE], counts.driver[DRIVER_DECODE]);
    if (!counts.prefill)
        time->total_ns = device_decode_fixed_ns(model, groups, group_count) + attention;
    else
        time->total_ns = mixed_step_ns(model, groups, group_count, &counts);
    /* The host's part comes before the first layer, the logits after the last; layers are alike. */
    int64_t layers = model->layers_real;
    int64_t host = host_ns(model, counts.sequences);
    int64_t hops = model->stages == 1 ? 0 : token_curve_ns(&model->hops, counts.driver[DRIVER_TOKENS]);
    int64_t stages = model->stages;
    time->layer_ns = max_i64(0, time->total_ns - host - logits - hops) / layers;
    int64_t before = token_curve_ns(&model->before, counts.driver[DRIVER_TOKENS]) + absorb + decompress + attention;
    /* A layer's KV is there no later than this says: all hand-overs are counted before the first. */
    time->first_layer_ns = host + hops + min_i64(before / layers, time->layer_ns);
    if (stages > 1) {
        time->entry_ns = host;
        time->hop_ns = hops / (stages - 1);
        time->stage_ns = max_i64(1, (time->total_ns - host - logits - hops) / stages);
        time->exit_ns = max_i64(0, time->total_ns - host - stages * time->stage_ns - (stages - 1) * time->hop_ns);
        time->total_ns = host + stages * time->stage_ns + (stages - 1) * time->hop_ns + time->exit_ns;
    }
    time->bound = step_bound(model, &counts);
}
