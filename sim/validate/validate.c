/* See validate.h. */
#include "sim/validate/validate.h"

#include "base/check.h"
#include "host/memory.h"
#include "host/stats.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define PPM INT64_C(1000000)

static void *grow(void *array, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity == 0 ? 16 : *capacity * 2;
    void *larger = memory_resized(array, *capacity * size);
    return larger;
}

struct validation *validation_add(struct validation_set *set, const char *key, const char *source,
                                  int64_t target_median_ppm, int64_t target_p90_ppm)
{
    set->items = grow(set->items, set->count, &set->capacity, sizeof *set->items);
    struct validation *validation = &set->items[set->count++];
    *validation = (struct validation){
        .key = key, .source = source, .target_median_ppm = target_median_ppm, .target_p90_ppm = target_p90_ppm};
    return validation;
}

void validation_case(struct validation *validation, int64_t measured, int64_t predicted, const char *format, ...)
{
    CHECK(measured > 0);
    validation->cases = grow(validation->cases, validation->rows, &validation->capacity, sizeof *validation->cases);
    struct validation_case *one = &validation->cases[validation->rows++];
    *one = (struct validation_case){0};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(one->label, sizeof one->label, format, arguments);
    va_end(arguments);
    one->measured = measured;
    one->predicted = predicted;
    one->error_ppm = (int64_t)((double)(predicted - measured) * (double)PPM / (double)measured);
}

void validation_subject(struct validation *validation, const char *engine, const char *system, const char *family)
{
    CHECK(validation->rows > 0);
    struct validation_subject *subject = &validation->cases[validation->rows - 1].subject;
    snprintf(subject->engine, sizeof subject->engine, "%s", engine);
    snprintf(subject->system, sizeof subject->system, "%s", system);
    snprintf(subject->family, sizeof subject->family, "%s", family);
}

void validation_excluded(struct validation *validation, const char *rule, const char *why, uint32_t rows)
{
    if (rows == 0)
        return;
    CHECK(validation->exclusion_count < VALIDATION_EXCLUSIONS_MAX);
    struct validation_exclusion *exclusion = &validation->exclusions[validation->exclusion_count++];
    snprintf(exclusion->rule, sizeof exclusion->rule, "%s", rule);
    snprintf(exclusion->why, sizeof exclusion->why, "%s", why);
    exclusion->rows = rows;
}

static int64_t magnitude(int64_t value)
{
    return value < 0 ? -value : value;
}

static void keep_worst(struct validation *validation, const struct validation_case *one)
{
    uint32_t at = validation->worst_count;
    while (at > 0 && magnitude(validation->worst[at - 1].error_ppm) < magnitude(one->error_ppm))
        at--;
    if (at == VALIDATION_WORST)
        return;
    if (validation->worst_count < VALIDATION_WORST)
        validation->worst_count++;
    for (uint32_t i = validation->worst_count - 1; i > at; i--)
        validation->worst[i] = validation->worst[i - 1];
    validation->worst[at] = *one;
}

void validation_finish(struct validation *validation)
{
    uint32_t count = validation->rows;
    if (count == 0)
        return;
    int64_t *errors = memory_zeroed(count, sizeof *errors);
    for (uint32_t i = 0; i < count; i++) {
        errors[i] = validation->cases[i].error_ppm;
        keep_worst(validation, &validation->cases[i]);
    }
    stats_sort(errors, count);
    validation->bias_ppm = stats_percentile(errors, count, 500);
    for (uint32_t i = 0; i < count; i++)
        errors[i] = magnitude(errors[i]);
    stats_sort(errors, count);
    validation->median_ppm = stats_percentile(errors, count, 500);
    validation->p90_ppm = stats_percentile(errors, count, 900);
    free(errors);
}

void validation_set_free(struct validation_set *set)
{
    for (uint32_t i = 0; i < set->count; i++)
        free(set->items[i].cases);
    free(set->items);
    *set = (struct validation_set){0};
}
