/* A resolved scenario: what the Lua file says, checked, in plain numbers. Everything behind it (planner, simulator,
 * real runtime, results) reads this and never Lua. Units are in the names; shares are in permille.
 */
#ifndef TANDEM_WORLD_SCENARIO_SCENARIO_H
#define TANDEM_WORLD_SCENARIO_SCENARIO_H

#include "base/arith.h"
#include "world/scenario/engine.h"
#include "world/scenario/fault.h"
#include "world/scenario/hardware.h"
#include "world/scenario/request_list.h"
#include "model/architecture.h"
#include "model/kv_geometry.h"
#include "node.h"
#include "serve/policy.h"

#include <stdbool.h>
#include <stdint.h>

#define SCENARIO_POOLS_MAX 8     /* pools of one scenario: a few roles on a few kinds of machine */
#define SCENARIO_SHARDINGS_MAX 8 /* shardings offered for one pool */
#define SCENARIO_TARGETS_MAX 8
#define SCENARIO_VARY_MAX 4 /* swept parameters */
#define SCENARIO_VARY_VALUES_MAX 64
#define SCENARIO_QUANTILES_MAX 64
#define SCENARIO_PLACES_MAX 64 /* machines that a placement lists */

enum length_kind { LENGTH_CONSTANT = 1, LENGTH_UNIFORM = 2, LENGTH_QUANTILES = 3 };

/* Lengths in tokens, drawn per request. Quantiles: (permille, tokens) pairs from 0 to 1000, linear in between. */
struct length_distribution {
    enum length_kind kind;
    uint32_t low;
    uint32_t high;
    uint32_t quantile_count;
    uint32_t quantile_permille[SCENARIO_QUANTILES_MAX];
    uint32_t quantile_tokens[SCENARIO_QUANTILES_MAX];
};

enum arrival_kind {
    ARRIVAL_POISSON = 1,
    ARRIVAL_UNIFORM = 2, /* evenly spaced */
    ARRIVAL_BURST = 3,   /* groups of burst_size at once, groups Poisson at rate / burst_size */
    ARRIVAL_CLOSED = 4,  /* `concurrency` clients, each sends its next request when its last one ends */
    ARRIVAL_TRACE = 5,
    ARRIVAL_SESSIONS = 6, /* conversations: each turn follows the answer to the last one */
    ARRIVAL_LISTED = 7,   /* one by one in the scenario */
};

enum trace_format {
    TRACE_FORMAT_AZURE_CSV = 1,
    TRACE_FORMAT_MOONCAKE_JSONL = 2,
    TRACE_FORMAT_CSV = 3,
    TRACE_FORMAT_SERVEGEN = 4, /* clients, from which requests are drawn */
};

enum trace_unit { TRACE_UNIT_S = 1, TRACE_UNIT_MS = 2, TRACE_UNIT_US = 3, TRACE_UNIT_NS = 4 };

#define TRACE_IGNORE_MAX 8

/* Tokens of a prefix block in the Mooncake traces (kvcache-ai/Mooncake, FAST25-release). */
#define MOONCAKE_BLOCK_TOKENS 512

/* How a trace is to be read. */
struct trace_options {
    enum trace_format format;
    uint32_t block_tokens;    /* mooncake: tokens of a prefix block; 0: 512 */
    uint32_t blocks_together; /* so many blocks of the file are one prefix block; 0: each by itself. Derived: pages of
                                 the pools may be larger than blocks, and prefixes are shared in whole pages */
    enum trace_unit unit;     /* of times that are bare numbers; 0: as the format or the column's name has it */
    char arrival[64];         /* csv: which columns; "": those whose names are known */
    char prompt[64];
    char output[64];
    uint32_t prompt_permille; /* what lengths become, of what is recorded; 0: as they are */
    uint32_t output_permille;
    bool outputs_drawn;    /* rows without an output are allowed: the load's `output` says how long it is */
    uint32_t ignore_count; /* columns or keys that are passed over */
    char ignore[TRACE_IGNORE_MAX][48];
};

static inline uint32_t trace_block_tokens(const struct trace_options *options)
{
    return options->block_tokens != 0 ? options->block_tokens : MOONCAKE_BLOCK_TOKENS;
}

/* How the rate of a load changes: so long at so many thousandths, over and over; only their ratios count. */
#define PROFILE_STEPS_MAX 288 /* five minutes of a day */
#define PROFILE_WEIGHT_MAX 1000000
struct rate_profile {
    uint32_t count; /* 0: it does not */
    struct {
        int64_t lasts_ns;
        uint32_t weight;
    } step[PROFILE_STEPS_MAX];
};

struct load {
    enum arrival_kind arrivals;
    uint64_t rate_micro_per_s;   /* requests per 1e6 s. For a trace: what it is scaled to; 0: as recorded */
    struct rate_profile profile; /* of generated loads with a rate, which is its mean */
    uint32_t concurrency;        /* of clients; of conversations at a time: 0 where they begin at the rate */
    uint32_t burst_size;
    /* Of conversations, where `prompt` is what a turn adds: */
    struct length_distribution session_turns;
    struct length_distribution session_first; /* what the first turn says instead; kind 0: as any */
    int64_t session_think_ns;                 /* mean, from an answer to the next turn */
    uint32_t session_system_tokens;
    uint32_t session_block_tokens; /* of a prefix block */
    uint32_t requests;             /* how many in all; 0: until duration_ns or the end of the trace */
    int64_t duration_ns;           /* 0: no limit */
    int64_t warmup_ns;             /* arrivals before this count for no statistic */
    uint32_t warmup_requests;      /* nor do the first so many */
    struct length_distribution prompt;
    struct length_distribution output;
    char trace_path[1024]; /* resolved, absolute */
    char trace_sha256[65]; /* of the file's bytes, hex: part of the identity in the path's stead */
    struct trace_options trace;
    int64_t trace_window_start_ns;   /* from the first arrival of the file */
    int64_t trace_window_ns;         /* 0: to the end */
    uint32_t trace_repeat;           /* how often the window is played, at least 1 */
    uint32_t abort_permille;         /* share of requests whose client goes away at a random instant */
    int64_t abort_after_ns;          /* uniformly within this time of the arrival */
    int64_t deadline_ns;             /* of the first token, from the arrival; 0: none */
    uint32_t block_tokens;           /* listed: of a prefix block; 0: nothing is shared */
    const struct request_list *list; /* listed, else NULL */
};

/* Most tokens of a request of conversations, prompt and answer: of the last turn of the longest. */
static inline uint64_t load_session_tokens_max(const struct load *load)
{
    return load->session_system_tokens +
           (uint64_t)(load->session_first.high > load->prompt.high ? load->session_first.high - load->prompt.high : 0) +
           (uint64_t)load->session_turns.high * ((uint64_t)load->prompt.high + load->output.high);
}

/* Whether requests come when others have ended, not at a rate. */
static inline bool load_is_closed(const struct load *load)
{
    return load->arrivals == ARRIVAL_CLOSED || (load->arrivals == ARRIVAL_SESSIONS && load->concurrency > 0);
}

enum draft_head {
    DRAFT_MTP = 1,   /* the checkpoint's own draft layers */
    DRAFT_MODEL = 2, /* another model */
};

/* How a pool drafts tokens; how many, and how likely they are accepted, its scheduler says. */
struct draft {
    enum draft_head head;
    uint32_t reuse;            /* 1: more tokens than draft layers, the last of which runs again */
    struct architecture model; /* DRAFT_MODEL */
};

/* On which machines instances of a pool stand. DistServe's two cases are among them: with high node affinity instances
 * go anywhere, for the network is fast (apart); with low, both ends of a hand-over share a machine (packed, beside). */
enum placement_kind {
    PLACEMENT_APART = 0,      /* share no machine with pools that they exchange KV with */
    PLACEMENT_PACKED = 1,     /* share machines with whoever lets them */
    PLACEMENT_SPREAD = 2,     /* a machine each, among themselves */
    PLACEMENT_APART_FROM = 3, /* share no machine with instances of `pool` */
    PLACEMENT_BESIDE = 4,     /* on machines of `pool` as long as there is room, evenly */
    PLACEMENT_LISTED = 5,     /* instance i on machines[i] */
};

struct placement {
    enum placement_kind kind;
    uint32_t machine_count;
    char pool[32];
    uint16_t machines[SCENARIO_PLACES_MAX]; /* from 1 */
};

struct policy_code;

struct pool {
    char name[32];
    enum node_role role;
    uint32_t count;     /* instances, for `run` */
    uint32_t count_min; /* range the planner searches */
    uint32_t count_max;
    struct hardware hardware;
    struct placement placement;
    struct engine engine;
    uint32_t sharding_count;
    struct parallelism shardings[SCENARIO_SHARDINGS_MAX]; /* [0] is used by `run` */
    uint32_t page_tokens;
    enum kv_layout layout;
    uint32_t memory_utilization_permille; /* of GPU memory for weights, activations and KV */
    uint32_t queue_max;                   /* requests that may wait here; 0: DEPLOYMENT_QUEUE_MAX (deployment.h) */
    uint32_t experts_redundant;           /* copies of routed experts that an instance holds beside the experts */
    struct scheduler_policy scheduler;
    const struct policy_code *queue_function; /* of QUEUE_FUNCTION */
    struct draft draft;                       /* has a meaning where scheduler.draft_tokens > 0 */
    int64_t replace_ns; /* from when the loss of an instance is known to the start of another in its place */
};

/* Whether lost instances of the pool are replaced: not where nobody said when. */
static inline bool pool_replaces(const struct pool *pool)
{
    return pool->replace_ns > 0 && pool->replace_ns != TIME_NEVER;
}

enum target_metric { TARGET_TTFT = 1, TARGET_TPOT = 2, TARGET_E2E = 3, TARGET_ITL = 4 };

struct target {
    enum target_metric metric;
    uint32_t percentile_permille; /* 950 = p95 */
    int64_t limit_ns;
};

struct targets {
    uint32_t count;
    struct target item[SCENARIO_TARGETS_MAX];
    uint32_t attainment_permille; /* share of requests that must meet every limit at once; 0: not asked */
};

enum plan_goal {
    PLAN_HIGHEST_RATE = 1, /* per GPU, within a budget of nodes */
    PLAN_SERVE_RATE = 2,   /* fewest dollars that serve `rate` */
};

struct plan_space {
    enum plan_goal goal;
    uint64_t rate_micro_per_s; /* PLAN_SERVE_RATE */
    uint32_t nodes_max;        /* machines in all; 0: only the pools' own ranges limit */
    uint32_t requests;         /* requests of one probing run */
    uint32_t seeds;            /* runs per probed rate, at least 2 */
    uint32_t compare_mixed;    /* 1: also plan aggregated serving on the same machines */
};

struct vary {
    char path[96]; /* "load.rate", "pools.prefill.count" */
    uint32_t count;
    char values[SCENARIO_VARY_VALUES_MAX][48]; /* as `--set path=value` would take them */
};

struct scenario {
    char path[1024];
    char name[64];
    char question[512];
    struct architecture model;
    uint32_t pool_count;
    struct pool pools[SCENARIO_POOLS_MAX];
    struct load load;
    enum router_policy decode_router;
    enum router_policy prefill_router;
    const struct policy_code *functions[POLICY_KINDS]; /* of ROUTER_FUNCTION, and of admission; NULL: none */
    struct conditional_policy conditional;
    uint32_t pending_tokens_max; /* of a prefiller, before mixed instances are asked; where there are both */
    uint32_t node_affinity;      /* 1: hand-overs stay in their NVLink domain where it has decoders */
    struct admission_policy admission;
    struct messenger_policy messenger;
    struct targets targets;
    struct plan_space plan;
    uint32_t vary_count;
    struct vary vary[SCENARIO_VARY_MAX];
    const struct fault_list *faults; /* NULL: nothing is to go wrong, and nothing is checked all along */
    uint64_t seed;
    bool has_expect;   /* the file defines expect(r) */
    char identity[65]; /* SHA-256 of the canonical text, hex */
};

/* Whether instances of the pool compute prompts. */
static inline bool scenario_prefills(const struct scenario *scenario, const struct pool *pool)
{
    return role_prefills(pool->role, &scenario->conditional, &pool->scheduler);
}

/* Whose kinds of step its instances take. */
static inline enum node_role scenario_step_role(const struct scenario *scenario, const struct pool *pool)
{
    return pool->role == ROLE_DECODE && scenario_prefills(scenario, pool) ? ROLE_MIXED : pool->role;
}

/* Most tokens of an attention group in one step. */
static inline uint32_t scenario_step_tokens(const struct scenario *scenario, const struct pool *pool)
{
    return scenario_prefills(scenario, pool) ? pool->scheduler.token_budget
                                             : pool->scheduler.batch_max * (1 + pool->scheduler.draft_tokens);
}

/* How the instances of a pool draft: the pool itself, or, for a prefill pool, the first decode pool that drafts, whose
 * draft layers want the KV of the prompt. NULL: nobody does. */
const struct pool *scenario_drafter(const struct scenario *scenario, const struct pool *pool);

/* The model as instances of the pool hold it: with the draft layers in use among its layers and the copies of its
 * experts. All pools of a scenario that exchange KV have the same layers. */
struct architecture scenario_served(const struct scenario *scenario, const struct pool *pool);

#endif
