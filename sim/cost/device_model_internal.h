/* Between the files of the device model; see device_model.h. Not for others. */
#ifndef TANDEM_SIM_COST_DEVICE_MODEL_INTERNAL_H
#define TANDEM_SIM_COST_DEVICE_MODEL_INTERNAL_H

#include "sim/cost/device_model.h"
#include "sim/cost/kernel_choice.h"
#include "sim/cost/measured_steps.h"
#include "sim/cost/operators.h"
#include "sim/cost/token_curve.h"

enum driver {
    DRIVER_TOKENS = 0,     /* new tokens of a group, decode and prefill */
    DRIVER_SEQUENCES = 1,  /* sequences of a group: each gets logits once */
    DRIVER_DECODE = 2,     /* decoding sequences of a group */
    DRIVER_DECOMPRESS = 3, /* tokens of prefilling sequences, cached and new */
    DRIVER_SHARED = 4,     /* tokens of all groups, where they share the routed experts */
    DRIVERS = 5,
};

enum operator_kind {
    OPERATOR_GEMM = 1,
    OPERATOR_ELEMENTWISE = 2,
    OPERATOR_EXPERTS = 3,
    OPERATOR_ALL_REDUCE = 4,
    OPERATOR_ALL_TO_ALL = 5,
    OPERATOR_STAGE_HOP = 6,
    OPERATOR_GATHER_SCATTER = 7,
};

/* A product with an absorbed half of latent attention, which tables of its own are measured for. */
enum absorbed { ABSORBED_NOT = 0, ABSORBED_QUERY = 1, ABSORBED_OUTPUT = 2 };

struct operator
{
    const char *name;
    enum operator_kind kind;
    enum driver driver;
    enum number_format format;
    uint32_t count;       /* times in a step */
    bool before_transfer; /* done when the layer's KV is complete and its attention output reduced */
    double n;             /* columns of a product, bytes a token of a pass, ranks of a collective */
    double k;             /* rows of a product, kernels of a pass, elements a token of a collective */
    enum absorbed absorbed;
    const struct kernel_sheet *measured; /* NULL: by distilled efficiencies, or by a formula */
    const struct kernel_sheet *nccl;     /* of an all-reduce, beyond the engine's own; of a gather, the scatter */
};

/* Sequences of the decode table: 8 knots an octave up to 2^15. Contexts: none, then powers of two from 64 to 64 Mi. */
#define LINE_BITS 3
#define LINE_OCTAVE_LAST 14
#define LINE_ROWS KNOT_COUNT(LINE_BITS, LINE_OCTAVE_LAST)
#define LINE_CONTEXT_LOG2 6
#define LINE_COLUMNS 22

/* Prefill attention over (tokens, pairs): two knots an octave up to 2^21 tokens and 2^41 pairs. */
#define PREFILL_BITS 1
#define PREFILL_TOKENS_OCTAVE_LAST 21
#define PREFILL_PAIRS_OCTAVE_LAST 41
#define PREFILL_ROWS KNOT_COUNT(PREFILL_BITS, PREFILL_TOKENS_OCTAVE_LAST)
#define PREFILL_COLUMNS KNOT_COUNT(PREFILL_BITS, PREFILL_PAIRS_OCTAVE_LAST)

#define SHEETS_MAX (2 * OPERATORS_MAX)

#define SHARES (BOUND_OVERHEAD + 1) /* arrays indexed by enum step_bound */

struct device_model {
    bool is_measured; /* then `measured` stands for everything below it */
    struct measured_steps measured;
    struct device device;
    struct engine engine;
    struct attention_shape full;
    struct attention_shape windowed;
    struct moe_shape moe;
    uint32_t layers; /* as counted in a step: ceil(layers / P) * P */
    uint32_t layers_real;
    uint32_t layers_full; /* of `layers`, those without a window */
    uint32_t layers_windowed;
    bool experts_shared; /* the routed experts are spread over the ranks of several groups */
    double stages;
    bool reduces; /* tensor-parallel ranks sum after attention and after the MLP */
    enum step_bound decode_attention_bound;
    uint32_t operator_count;
    uint32_t attention_place; /* the operator that the attention kernels precede */
    struct operator operators[OPERATORS_MAX];

    struct token_curve curves[DRIVERS];
    struct token_curve before; /* of curves[DRIVER_TOKENS], the part before a layer's transfer may start */
    struct token_curve bounds[DRIVERS][SHARES];
    int64_t line_ns[LINE_ROWS][LINE_COLUMNS];
    int64_t prefill_ns[PREFILL_ROWS][PREFILL_COLUMNS];

    uint32_t sheet_count;
    struct kernel_sheet sheets[SHEETS_MAX]; /* measured kernels of the operators */
};

static inline int64_t round_ns(double ns)
{
    return (int64_t)(ns + 0.5);
}

struct operator_time operator_evaluate(const struct device_model *model, const struct operator* o, double tokens);

/* Finds the measured tables of the model's operators. False: a pack is damaged, and `error` says which. */
bool device_model_measure(struct device_model *model, const struct architecture *architecture,
                          const struct hardware *hardware, struct user_error *error);

/* Fills the table of prefill attention. */
void prefill_table_make(struct device_model *model);

/* One layer kind after the other, all layers, of a group's new tokens and pairs. */
int64_t prefill_table_ns(const struct device_model *model, uint64_t tokens, uint64_t pairs);

/* What a step's operators are driven by. */
struct step_counts {
    uint64_t driver[DRIVERS];
    int64_t decode_attention_ns;
    int64_t prefill_attention_ns; /* of the group whose attention is slowest */
    bool prefill;
};

/* `decode_too` false: as if only the prompts were there. */
void step_count(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                bool decode_too, struct step_counts *counts);

/* What the device waits for in a step of so many sequences of the largest group. */
static inline int64_t host_ns(const struct device_model *model, uint64_t sequences)
{
    return model->engine.host_ns + model->engine.host_sequence_ns * (int64_t)sequences;
}

#endif
