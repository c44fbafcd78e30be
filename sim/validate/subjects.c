/* See subjects.h. */
#include "sim/validate/subjects.h"

#include "base/check.h"
#include "host/memory.h"

#include <stdlib.h>
#include <string.h>

#define PARTS 3 /* of a subject: engine, system, family */
#define ANY "*"

/* Which parts are pooled over, from all of them to none: bit 0 the engine, bit 1 the system, bit 2 the family. */
static const unsigned pools[] = {7, 6, 5, 3, 4, 2, 1, 0};

struct label {
    const char *part[PARTS];
};

static struct label label_of(const struct validation_case *one, unsigned pooled)
{
    const char *const part[PARTS] = {one->subject.engine, one->subject.system, one->subject.family};
    struct label label;
    for (unsigned k = 0; k < PARTS; k++)
        label.part[k] = (pooled >> k & 1) != 0 ? ANY : part[k];
    return label;
}

static int compare_labels(const void *a, const void *b)
{
    const struct label *x = a;
    const struct label *y = b;
    int order = 0;
    for (unsigned k = 0; k < PARTS && order == 0; k++)
        order = strcmp(x->part[k], y->part[k]);
    return order;
}

static void print_one(FILE *file, const struct validation *all, const struct label *label, unsigned pooled)
{
    struct validation some = {.key = all->key};
    for (uint32_t i = 0; i < all->rows; i++) {
        const struct validation_case *one = &all->cases[i];
        struct label its = label_of(one, pooled);
        if (one->subject.engine[0] != '\0' && compare_labels(&its, label) == 0)
            validation_case(&some, one->measured, one->predicted, "%s", one->label);
    }
    validation_finish(&some);
    fprintf(file, "%s,%s,%s,%s,%u,%lld,%lld,%lld\n", label->part[0], label->part[1], label->part[2], some.key,
            some.rows, (long long)some.median_ppm, (long long)some.p90_ppm, (long long)some.bias_ppm);
    free(some.cases);
}

void subjects_print(FILE *file, const struct validation *validation)
{
    struct label *labels = memory_zeroed(validation->rows + 1, sizeof *labels);
    for (size_t p = 0; p < sizeof pools / sizeof *pools; p++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < validation->rows; i++)
            if (validation->cases[i].subject.engine[0] != '\0')
                labels[count++] = label_of(&validation->cases[i], pools[p]);
        qsort(labels, count, sizeof *labels, compare_labels);
        for (uint32_t i = 0; i < count; i++)
            if (i == 0 || compare_labels(&labels[i - 1], &labels[i]) != 0)
                print_one(file, validation, &labels[i], pools[p]);
    }
    free(labels);
}
