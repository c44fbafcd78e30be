/* See profile_device.h. */
#include "sim/validate/profile_device.h"

#include "base/arith.h"
#include "world/kernels/csv_table.h"
#include "host/memory.h"

#include <stdio.h>
#include <stdlib.h>

#define AXES 4 /* chunk, cached, sequences, context: in the order of the file's columns */
#define BREAKPOINTS_MAX 64
#define CURVE_MAX 256

struct axis {
    uint32_t count;
    uint64_t at[BREAKPOINTS_MAX];
};

struct curve {
    uint32_t count;
    uint64_t at[CURVE_MAX];
    int64_t ns[CURVE_MAX];
};

struct profile_device {
    struct profile_shape shape;
    struct axis axis[AXES];
    int64_t *attention; /* by the places on the axes, the last fastest; -1: not measured */
    struct curve layer;
    struct curve once;
    struct curve head;
};

/* ---- Tables ----------------------------------------------------------------------------------------------------- */

static uint32_t axis_place(struct axis *axis, uint64_t value)
{
    uint32_t i = 0;
    while (i < axis->count && axis->at[i] < value)
        i++;
    if (i < axis->count && axis->at[i] == value)
        return i;
    CHECK(axis->count < BREAKPOINTS_MAX);
    for (uint32_t k = axis->count; k > i; k--)
        axis->at[k] = axis->at[k - 1];
    axis->at[i] = value;
    axis->count++;
    return i;
}

static size_t attention_index(const struct profile_device *device, const uint32_t *place)
{
    size_t index = 0;
    for (uint32_t a = 0; a < AXES; a++)
        index = index * device->axis[a].count + place[a];
    return index;
}

static void attention_fill(struct profile_device *device, const struct csv_table *table)
{
    size_t size = 1;
    for (uint32_t i = 0; i < table->row_count; i++)
        for (uint32_t a = 0; a < AXES; a++)
            axis_place(&device->axis[a], (uint64_t)csv_integer(table, i, a, 0));
    for (uint32_t a = 0; a < AXES; a++)
        size *= device->axis[a].count;
    device->attention = memory_get(size * sizeof *device->attention);
    for (size_t i = 0; i < size; i++)
        device->attention[i] = -1;
    for (uint32_t i = 0; i < table->row_count; i++) {
        uint32_t place[AXES];
        for (uint32_t a = 0; a < AXES; a++)
            place[a] = axis_place(&device->axis[a], (uint64_t)csv_integer(table, i, a, 0));
        device->attention[attention_index(device, place)] = csv_integer(table, i, AXES, 0);
    }
}

static void curve_fill(struct curve *curve, const struct csv_table *table, uint32_t column)
{
    CHECK(table->row_count <= CURVE_MAX);
    curve->count = table->row_count;
    for (uint32_t i = 0; i < table->row_count; i++) {
        curve->at[i] = (uint64_t)csv_integer(table, i, 0, 0);
        curve->ns[i] = csv_integer(table, i, column, 0);
    }
}

static bool load(const struct profile_shape *shape, const char *part, struct csv_table *table, struct user_error *error)
{
    char name[128];
    snprintf(name, sizeof name, "validation/profile-%s-%s", shape->name, part);
    return csv_table_load(name, table, error);
}

struct profile_device *profile_device_make(const struct profile_shape *shape, struct user_error *error)
{
    static const char *const parts[] = {"attention.csv.xz", "dense.csv", "sampling.csv"};
    struct profile_device *device = memory_zeroed(1, sizeof *device);
    device->shape = *shape;
    for (uint32_t part = 0; part < 3; part++) {
        struct csv_table table;
        if (!load(shape, parts[part], &table, error)) {
            profile_device_free(device);
            return NULL;
        }
        if (part == 0)
            attention_fill(device, &table);
        else
            curve_fill(part == 1 ? &device->layer : &device->head, &table, 1);
        if (part == 1)
            curve_fill(&device->once, &table, 2);
        csv_table_free(&table);
    }
    return device;
}

void profile_device_free(struct profile_device *device)
{
    if (device == NULL)
        return;
    free(device->attention);
    free(device);
}

/* ---- Look-ups --------------------------------------------------------------------------------------------------- */

/* Below the first breakpoint and above the last the nearest two go on. */
static uint32_t segment(const uint64_t *at, uint32_t count, double value)
{
    uint32_t i = 0;
    while (i + 2 < count && value > (double)at[i + 1])
        i++;
    return i;
}

static double curve_ns(const struct curve *curve, double value)
{
    if (curve->count == 1)
        return (double)curve->ns[0];
    uint32_t i = segment(curve->at, curve->count, value);
    double share = (value - (double)curve->at[i]) / (double)(curve->at[i + 1] - curve->at[i]);
    double ns = (double)curve->ns[i] + (double)(curve->ns[i + 1] - curve->ns[i]) * share;
    return ns > 0.0 ? ns : 0.0;
}

/* Multilinear. A corner without a measurement is one that a step without prompts, or without decoding sequences, has
 * under another name: nothing of it is at (0, 0, ...) and (..., 0, 0). */
static double attention_ns(const struct profile_device *device, const double *value)
{
    uint32_t low[AXES];
    double share[AXES];
    for (uint32_t a = 0; a < AXES; a++) {
        const struct axis *axis = &device->axis[a];
        low[a] = segment(axis->at, axis->count, value[a]);
        share[a] = (value[a] - (double)axis->at[low[a]]) / (double)(axis->at[low[a] + 1] - axis->at[low[a]]);
    }
    double sum = 0.0;
    for (uint32_t corner = 0; corner < 1u << AXES; corner++) {
        uint32_t place[AXES];
        double weight = 1.0;
        for (uint32_t a = 0; a < AXES; a++) {
            bool upper = (corner >> a & 1) != 0;
            place[a] = low[a] + upper;
            weight *= upper ? share[a] : 1.0 - share[a];
        }
        if (weight == 0.0)
            continue;
        if (place[0] == 0)
            place[1] = 0;
        if (place[2] == 0)
            place[3] = 0;
        else if (place[3] == 0)
            place[3] = 1;
        if (place[0] == 0 && place[2] == 0)
            continue;
        int64_t ns = device->attention[attention_index(device, place)];
        CHECK(ns >= 0);
        sum += weight * (double)ns;
    }
    return sum > 0.0 ? sum : 0.0;
}

/* Everything but attention. */
static double rest_ns(const struct profile_device *device, double tokens, double sequences)
{
    return (double)device->shape.host_ns + curve_ns(&device->once, tokens) + curve_ns(&device->head, sequences) +
           device->shape.layers * curve_ns(&device->layer, tokens);
}

static double decode_attention_at(const struct profile_device *device, uint32_t sequences, double context)
{
    const double value[AXES] = {0, 0, sequences, (context + sequences) / sequences};
    return device->shape.layers * attention_ns(device, value);
}

/* ---- As a device ------------------------------------------------------------------------------------------------ */

static int64_t whole(double ns)
{
    return (int64_t)(ns + 0.5);
}

static int64_t decode_fixed_ns(const void *model, const struct step_group *groups, uint32_t group_count)
{
    CHECK(group_count == 1);
    return whole(rest_ns(model, groups->decode_sequences, groups->decode_sequences));
}

/* The line between the breakpoints of the context of one sequence, times the sequences. */
static void decode_line(const void *model, uint32_t sequences, uint64_t context, struct decode_line *line)
{
    const struct profile_device *device = model;
    if (sequences == 0) {
        *line = (struct decode_line){.context_max = UINT64_MAX};
        return;
    }
    const struct axis *axis = &device->axis[3];
    uint64_t mean = context / sequences + 1;
    uint32_t i = 1;
    while (i + 2 < axis->count && mean >= axis->at[i + 1])
        i++;
    bool first = i == 1;
    uint64_t from = first ? 0 : (axis->at[i] - 1) * sequences;
    uint64_t to = (axis->at[i + 1] - 1) * sequences;
    double low = decode_attention_at(device, sequences, (double)from);
    double high = decode_attention_at(device, sequences, (double)to);
    high = high > low ? high : low;
    uint64_t slope = (uint64_t)((high - low) / (double)(to - from) * 4294967296.0);
    *line = (struct decode_line){
        .context_min = from,
        .context_max = i + 2 == axis->count ? UINT64_MAX : to,
        .base_ns = whole(low) - (int64_t)((uint128)from * slope >> 32),
        .slope_q32 = slope,
    };
}

static void step(const void *model, const struct step_group *groups, uint32_t group_count, struct step_time *time)
{
    const struct profile_device *device = model;
    const struct step_group *group = &groups[0];
    CHECK(group_count == 1);
    *time = (struct step_time){.bound = BOUND_BANDWIDTH};
    if (group->prefill_tokens == 0) {
        struct decode_line line;
        decode_line(model, group->decode_sequences, group->decode_context, &line);
        time->total_ns = decode_fixed_ns(model, groups, 1) + decode_line_ns(&line, group->decode_context);
    } else {
        double chunk = (double)group->prefill_tokens;
        double cached = (double)group->prefill_pairs / chunk - (chunk + 1.0) / 2.0;
        double sequences = group->decode_sequences;
        double context = sequences > 0.0 ? ((double)group->decode_context + sequences) / sequences : 0.0;
        const double value[AXES] = {chunk, cached > 0.0 ? cached : 0.0, sequences, context};
        time->total_ns = whole(rest_ns(device, chunk + sequences, sequences + group->prefill_sequences) +
                               device->shape.layers * attention_ns(device, value));
        time->bound = BOUND_COMPUTE;
    }
    time->layer_ns = (time->total_ns - device->shape.host_ns) / (int64_t)device->shape.layers;
    time->first_layer_ns = device->shape.host_ns;
}

struct device profile_device_of(const struct profile_device *device)
{
    static const struct device_ops ops = {.step = step, .decode_fixed_ns = decode_fixed_ns, .decode_line = decode_line};
    return (struct device){.ops = &ops, .model = device};
}
