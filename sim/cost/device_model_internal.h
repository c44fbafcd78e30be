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

    /* Where experts are spread over machines, prompts and decoding tokens go other ways: of a step with prompts, and of
     * one without, the tokens of a group and those of all groups. */
    DRIVER_WIDE_PREFILL = 5,
    DRIVER_WIDE_PREFILL_ALL = 6,
    DRIVER_WIDE_DECODE = 7,
    DRIVER_WIDE_DECODE_ALL = 8,

    DRIVER_DRAFT = 9, /* decoding sequences of a group, and of all that share the experts: one drafted token of each */
    DRIVER_DRAFT_ALL = 10,
    DRIVERS = 11,
};

enum operator_kind {
    OPERATOR_GEMM = 1,
    OPERATOR_ELEMENTWISE = 2,
    OPERATOR_EXPERTS = 3,
    OPERATOR_ALL_REDUCE = 4,
    OPERATOR_EXCHANGE = 5,
    OPERATOR_STAGE_HOP = 6,
    OPERATOR_GATHER_SCATTER = 7,
};

/* A product with an absorbed half of latent attention, which tables of its own are measured for. */
enum absorbed { ABSORBED_NOT = 0, ABSORBED_QUERY = 1, ABSORBED_OUTPUT = 2 };

struct device_operator {
    char name[56];
    enum operator_kind kind;
    enum driver driver;
    enum number_format format;
    uint32_t count;       /* times in a step */
    bool before_transfer; /* done when the layer's KV is complete and its attention output reduced */
    double n;             /* columns of a product, bytes a token of a pass, ranks of a collective */
    double k;             /* rows of a product, kernels of a pass, elements a token of a collective */
    enum absorbed absorbed;
    const struct model_part *part;       /* whose experts and exchange */
    bool prefill;                        /* of these, those of steps with prompts */
    const struct kernel_slice *measured; /* NULL: by distilled efficiencies, or by a formula */
    const struct kernel_slice *nccl;     /* of an all-reduce, beyond the engine's own; of a gather, the scatter */
};

/* Layers of one kind: those of the model, and those that draft. */
struct model_part {
    uint32_t layers; /* as counted in a step: ceil(layers / P) * P over P pipeline stages */
    uint32_t layers_full;
    uint32_t layers_windowed;
    struct attention_shape full;
    struct attention_shape windowed;
    struct moe_shape moe;              /* where experts lie inside a machine, or of steps with prompts */
    struct moe_shape moe_wide;         /* of steps without prompts, where they do not */
    struct exchange_shape exchange[2]; /* without prompts, with prompts */
};

/* Draft layers run once over the tokens that the step verified, which brings their KV up to date and drafts the first
 * token (with several layers, one token each), and then for every further token over it alone. */
struct drafting_shape {
    uint32_t tokens;             /* drafted a step and sequence; 0: none */
    uint32_t next_layers;        /* layers that run over further tokens, in all */
    struct attention_shape next; /* their attention, of one query a sequence */
};

/* Sequences of the decode table: 8 breakpoints an octave up to 2^15. Contexts: none, then powers of two from 64 to 64
 * Mi. */
#define LINE_BITS 3
#define LINE_OCTAVE_LAST 14
#define LINE_ROWS BREAKPOINT_COUNT(LINE_BITS, LINE_OCTAVE_LAST)
#define LINE_CONTEXT_LOG2 6
#define LINE_COLUMNS 22

/* Prefill attention over (tokens, pairs): two breakpoints an octave up to 2^21 tokens and 2^41 pairs. */
#define PREFILL_BITS 1
#define PREFILL_TOKENS_OCTAVE_LAST 21
#define PREFILL_PAIRS_OCTAVE_LAST 41
#define PREFILL_ROWS BREAKPOINT_COUNT(PREFILL_BITS, PREFILL_TOKENS_OCTAVE_LAST)
#define PREFILL_COLUMNS BREAKPOINT_COUNT(PREFILL_BITS, PREFILL_PAIRS_OCTAVE_LAST)

#define SLICES_MAX (3 * OPERATORS_MAX)

#define PASSES 3 /* the model's layers; the draft layers over verified tokens, and over further ones */

/* Kernels of attention: of both kinds of layers and steps, of the model's and the draft's layers, and of further
 * drafted tokens. */
#define ATTENTIONS_MAX 9

#define SHARES (BOUND_OVERHEAD + 1) /* arrays indexed by enum step_bound */

struct device_model {
    bool is_measured; /* then `measured` stands for everything below it */
    struct measured_steps measured;
    bool own_kernels; /* of a GPU that is not shipped */
    bool altered;     /* of a shipped one at other rates than the tables were measured at */
    struct device device;
    struct engine engine;
    struct model_part main;
    struct model_part draft;
    struct drafting_shape drafting;
    uint32_t layers_real; /* whose KV is handed over */
    uint32_t queries;     /* tokens of a sequence in a decode step: 1, and those drafted before */
    bool experts_shared;  /* the routed experts are spread over the ranks of several groups, */
    bool wide;            /* of several machines */
    uint32_t stages;
    enum step_bound decode_attention_bound;
    uint32_t operator_count;
    uint32_t attention_place[PASSES]; /* operators that the attention kernels of a pass precede */
    struct device_operator operators[OPERATORS_MAX];

    struct token_curve curves[DRIVERS];
    struct token_curve hops;   /* likewise, between pipeline stages */
    struct token_curve before; /* of curves[DRIVER_TOKENS], the part before a layer's transfer may start */
    struct token_curve bounds[DRIVERS][SHARES];
    int64_t line_ns[LINE_ROWS][LINE_COLUMNS];
    int64_t prefill_ns[PREFILL_ROWS][PREFILL_COLUMNS];

    uint32_t slice_count;
    struct kernel_slice slices[SLICES_MAX]; /* measured kernels of the operators */
};

static inline int64_t round_ns(double ns)
{
    return (int64_t)(ns + 0.5);
}

/* Shapes and operators of a model so served. `draft` is what the draft layers are like, NULL: there are none. */
struct device_request {
    const struct architecture *architecture;
    const struct architecture *draft_model; /* NULL: the model's own draft layers, if any */
    struct parallelism parallelism;
    uint32_t draft_tokens;
};
void device_shapes_make(struct device_model *model, const struct device_request *request);
void device_operators_make(struct device_model *model, const struct device_request *request);

/* The projections of one layer of latent attention alone, of model->main. */
void device_attention_make(struct device_model *model, const struct architecture *architecture,
                           struct parallelism parallelism);

struct operator_time operator_evaluate(const struct device_model *model, const struct device_operator *o,
                                       double tokens);

/* Finds the measured tables of the model's shapes, makes its operators, which depend on them, and finds theirs. False:
 * a pack is damaged, and `error` says which. */
bool device_model_measure(struct device_model *model, const struct device_request *request,
                          const struct hardware *hardware, struct user_error *error);

/* Fills the table of prefill attention. */
void prefill_table_make(struct device_model *model);

/* One layer kind after the other, all layers, of a group's new tokens and pairs. */
int64_t prefill_table_ns(const struct device_model *model, uint64_t tokens, uint64_t pairs);

/* What a step's operators are driven by. */
struct step_counts {
    uint64_t driver[DRIVERS];
    uint64_t sequences; /* of the largest group */
    uint64_t decode;    /* of these, decoding */
    int64_t decode_attention_ns;
    int64_t prefill_attention_ns; /* of the group whose attention is slowest */
    bool prefill;
};

/* `decode_too` false: as if only the prompts were there. */
void step_count(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                bool decode_too, struct step_counts *counts);

/* What the factor on the engine's prefill makes of the step, beside what its kernels take. */
int64_t device_prefill_factor_ns(const struct device_model *model, const struct step_group *groups,
                                 uint32_t group_count, const struct step_counts *counts);

/* What the device waits for in a step of so many sequences of the largest group. */
static inline int64_t host_ns(const struct device_model *model, uint64_t sequences)
{
    return model->engine.host_ns + model->engine.host_sequence_ns * (int64_t)sequences;
}

#endif
