/* See scenario_schema.h. */
#include "world/scenario/scenario_schema.h"

#include "base/arith.h"
#include "world/scenario/scenario.h"

#include <stdio.h>
#include <string.h>

#define AT(type, member) (uint32_t) offsetof(type, member), (uint32_t)sizeof(((type *)0)->member)
#define LENGTH(list) (uint32_t)(sizeof(list) / sizeof((list)[0]))
#define NAMES(list) list, LENGTH(list)
#define U32 INT64_C(0xffffffff)
#define ANY INT64_MAX

/* One macro per kind of key. Those that are not required carry their default. */
/* clang-format off */
#define COUNT_REQUIRED(key, type, member, min, max, limit)                                                             \
    {key, FIELD_COUNT, 0, true, AT(type, member), 0, min, max, limit, NULL, 0}
#define COUNT(key, type, member, fallback, min, max, limit)                                                            \
    {key, FIELD_COUNT, 0, false, AT(type, member), fallback, min, max, limit, NULL, 0}
#define FLAG(key, type, member, fallback)                                                                              \
    {key, FIELD_FLAG, 0, false, AT(type, member), fallback, 0, 1, NULL, NULL, 0}
#define NAME_REQUIRED(key, type, member, list)                                                                         \
    {key, FIELD_NAME, 0, true, AT(type, member), 0, 0, ANY, NULL, NAMES(list)}
#define NAME(key, type, member, fallback, list)                                                                        \
    {key, FIELD_NAME, 0, false, AT(type, member), fallback, 0, ANY, NULL, NAMES(list)}
#define TEXT_REQUIRED(key, type, member)                                                                               \
    {key, FIELD_TEXT, 0, true, AT(type, member), 0, 0, ANY, NULL, NULL, 0}
#define TEXT(key, type, member)                                                                                        \
    {key, FIELD_TEXT, 0, false, AT(type, member), 0, 0, ANY, NULL, NULL, 0}
#define TIME_REQUIRED(key, type, member, min)                                                                          \
    {key, FIELD_TIME_NS, QUANTITY_TIME, true, AT(type, member), 0, min, ANY - 1, NULL, NULL, 0}
#define TIME(key, type, member, fallback, min, max)                                                                    \
    {key, FIELD_TIME_NS, QUANTITY_TIME, false, AT(type, member), fallback, min, max, NULL, NULL, 0}
#define QUANTITY_REQUIRED(key, type, member, kind, min, max)                                                           \
    {key, FIELD_QUANTITY, kind, true, AT(type, member), 0, min, max, NULL, NULL, 0}
#define QUANTITY(key, type, member, kind, fallback, min, max)                                                          \
    {key, FIELD_QUANTITY, kind, false, AT(type, member), fallback, min, max, NULL, NULL, 0}
/* clang-format on */

static const struct field top_fields[] = {
    TEXT_REQUIRED("question", struct scenario, question),
    TEXT("name", struct scenario, name), /* that of the file */
    COUNT("seed", struct scenario, seed, 1, 0, ANY, NULL),
};
const struct schema schema_top = {top_fields, LENGTH(top_fields), 0};

static const struct field_name attention_names[] = {{"gqa", ATTENTION_GQA}, {"mla", ATTENTION_MLA}};
static const struct field_name weight_names[] = {{"bf16", FORMAT_BF16},
                                                 {"fp8", FORMAT_FP8},
                                                 {"fp8_block", FORMAT_FP8_BLOCK},
                                                 {"fp4", FORMAT_FP4},
                                                 {"int4", FORMAT_INT4}};

/* Of a part of the model: "same" is what stands for the whole. */
static const struct field_name part_weight_names[] = {{"same", 0},         {"bf16", FORMAT_BF16},
                                                      {"fp8", FORMAT_FP8}, {"fp8_block", FORMAT_FP8_BLOCK},
                                                      {"fp4", FORMAT_FP4}, {"int4", FORMAT_INT4}};
static const struct field_name cache_names[] = {{"bf16", FORMAT_BF16}, {"fp8", FORMAT_FP8}};

static const struct field model_fields[] = {
    TEXT_REQUIRED("name", struct architecture, name),
    NAME_REQUIRED("attention", struct architecture, attention, attention_names),
    COUNT_REQUIRED("layers", struct architecture, layers, 1, LAYERS_MAX, "LAYERS_MAX"),
    COUNT("dense_layers", struct architecture, dense_layers, 0, 0, LAYERS_MAX, "LAYERS_MAX"),
    COUNT("moe_interval", struct architecture, moe_interval, 0, 0, LAYERS_MAX, "LAYERS_MAX"),
    COUNT_REQUIRED("hidden", struct architecture, hidden, 1, 1 << 20, NULL),
    COUNT_REQUIRED("heads", struct architecture, heads, 1, 1 << 12, NULL),
    COUNT_REQUIRED("kv_heads", struct architecture, kv_heads, 1, KV_HEADS_MAX, "KV_HEADS_MAX"),
    COUNT("head_dim", struct architecture, head_dim, 0, 0, 1 << 12, NULL),
    COUNT_REQUIRED("vocab", struct architecture, vocab, 1, 1 << 24, NULL),
    COUNT("latent_dim", struct architecture, latent_dim, 0, 0, 1 << 16, NULL),
    COUNT("rope_dim", struct architecture, rope_dim, 0, 0, 1 << 12, NULL),
    COUNT("nope_dim", struct architecture, nope_dim, 0, 0, 1 << 12, NULL),
    COUNT("value_dim", struct architecture, value_dim, 0, 0, 1 << 12, NULL),
    COUNT("q_latent_dim", struct architecture, q_latent_dim, 0, 0, 1 << 16, NULL),
    COUNT("intermediate", struct architecture, intermediate, 0, 0, 1 << 22, NULL),
    COUNT("experts", struct architecture, experts, 0, 0, 1 << 14, NULL),
    COUNT("experts_active", struct architecture, experts_active, 0, 0, 1 << 10, NULL),
    COUNT("expert_intermediate", struct architecture, expert_intermediate, 0, 0, 1 << 20, NULL),
    COUNT("shared_experts", struct architecture, shared_experts, 0, 0, 64, NULL),
    COUNT("window", struct architecture, window, 0, 0, REQUEST_TOKENS_MAX, "REQUEST_TOKENS_MAX"),
    COUNT("full_layers", struct architecture, full_layers, 0, 0, LAYERS_MAX, "LAYERS_MAX"),
    COUNT("index_topk", struct architecture, index_topk, 0, 0, REQUEST_TOKENS_MAX, "REQUEST_TOKENS_MAX"),
    COUNT("index_heads", struct architecture, index_heads, 0, 0, 1 << 10, NULL),
    COUNT("index_dim", struct architecture, index_dim, 0, 0, 1 << 12, NULL),
    NAME_REQUIRED("weights", struct architecture, weight_format, weight_names),
    NAME("attention_weights", struct architecture, attention_weight_format, 0, part_weight_names),
    NAME("output_weights", struct architecture, output_weight_format, 0, part_weight_names),
    NAME("expert_weights", struct architecture, expert_weight_format, 0, weight_names), /* 0: as weights */
    COUNT("fp4_block", struct architecture, fp4_block, 16, 16, 32, NULL),
    NAME("kv", struct architecture, kv_format, FORMAT_BF16, cache_names),
    COUNT("draft_layers", struct architecture, draft_layers, 0, 0, 16, NULL),
    FLAG("tied_embeddings", struct architecture, tied_embeddings, 0),
    QUANTITY("tail", struct architecture, tail_bytes, QUANTITY_BYTES, 0, 0, INT64_C(1) << 30),
    COUNT("tail_writes", struct architecture, tail_writes, 0, 0, 1024, NULL),
};
const struct schema schema_model = {model_fields, LENGTH(model_fields), 0};

static const struct field_name posting_names[] = {{"rank", 0}, {"instance", 1}};

static const struct field nic_fields[] = {
    TEXT_REQUIRED("name", struct nic, name),
    TIME_REQUIRED("base", struct nic, base_ns, 0),
    QUANTITY_REQUIRED("bandwidth", struct nic, bytes_per_s, QUANTITY_BYTE_RATE, 1000000, ANY - 1),
    {"gap", FIELD_TIME_PS, QUANTITY_TIME, true, AT(struct nic, gap_ps), 0, 0, INT64_C(1000000000), NULL, NULL, 0},
    {"knee", FIELD_MILLI, 0, true, AT(struct nic, knee_permille), 0, 1000, 64000, NULL, NULL, 0},
    {"posting", FIELD_TIME_PS, QUANTITY_TIME, true, AT(struct nic, posting_ps), 0, 0, INT64_C(1000000000), NULL, NULL,
     0},
    COUNT_REQUIRED("queue_depth", struct nic, queue_depth, 1, 1 << 20, NULL),
    NAME("posting_by", struct nic, posts_together, 0, posting_names),
};
const struct schema schema_nic = {nic_fields, LENGTH(nic_fields), 1};

static const struct field_name between_names[] = {{"nvlink", 0}, {"nic", 1}};

static const struct field machine_fields[] = {
    TEXT_REQUIRED("name", struct hardware, name),
    TEXT("gpu", struct hardware, gpu), /* scenario_read_steps.c says when it may be absent */
    COUNT_REQUIRED("gpus", struct hardware, gpus_per_node, 1, 1024, NULL),
    COUNT("nvlink_gpus", struct hardware, nvlink_gpus, 0, 0, 4096, NULL),
    QUANTITY_REQUIRED("memory", struct hardware, memory_bytes, QUANTITY_BYTES, INT64_C(1) << 20, ANY - 1),
    QUANTITY_REQUIRED("memory_bandwidth", struct hardware, memory_bytes_per_s, QUANTITY_BYTE_RATE, 1000000, ANY - 1),
    QUANTITY_REQUIRED("bf16", struct hardware, bf16_flops, QUANTITY_FLOPS, INT64_C(1000000000), ANY - 1),
    QUANTITY("fp8", struct hardware, fp8_flops, QUANTITY_FLOPS, 0, 0, ANY - 1),
    QUANTITY("fp4", struct hardware, fp4_flops, QUANTITY_FLOPS, 0, 0, ANY - 1),
    QUANTITY_REQUIRED("nvlink", struct hardware, nvlink_bytes_per_s, QUANTITY_BYTE_RATE, 1000000, ANY - 1),
    TIME_REQUIRED("watcher", struct hardware, watcher_ns, 0),
    TIME_REQUIRED("poll", struct hardware, poll_ns, 0),
    TIME_REQUIRED("message", struct hardware, message_ns, 1),
    TIME("arm", struct hardware, arm_ns, 0, 0, ANY - 1),
    QUANTITY_REQUIRED("price", struct hardware, usd_micros_per_gpu_hour, QUANTITY_PRICE, 0, ANY - 1),
    TEXT_REQUIRED("price_basis", struct hardware, price_basis),
    COUNT("nics", struct hardware, nics_per_node, 0, 1, 1024, NULL),
    NAME("between_instances", struct hardware, instances_by_nic, 0, between_names),
};
const struct schema schema_machine = {machine_fields, LENGTH(machine_fields), 2};

static const struct field steps_fields[] = {
    TEXT_REQUIRED("model", struct step_table, model),
    TIME_REQUIRED("first_layer", struct step_table, first_layer_ns, 0),
    TIME("launch", struct step_table, launch_ns, 0, 0, ANY - 1),
    COUNT("draft", struct step_table, draft_tokens, 0, 0, DRAFT_TOKENS_MAX, NULL),
    COUNT("in_flight", struct step_table, in_flight, 1, 1, STAGES_MAX, "STAGES_MAX"),
};
const struct schema schema_steps = {steps_fields, LENGTH(steps_fields), 2};

static const struct field sharding_fields[] = {
    COUNT("tensor", struct parallelism, tensor, 1, 1, RANKS_MAX, "RANKS_MAX"),
    COUNT("data", struct parallelism, data, 1, 1, GROUPS_MAX, "GROUPS_MAX"),
    COUNT("expert", struct parallelism, expert, 1, 1, RANKS_MAX, "RANKS_MAX"),
    COUNT("pipeline", struct parallelism, pipeline, 1, 1, STAGES_MAX, "STAGES_MAX"),
};
const struct schema schema_sharding = {sharding_fields, LENGTH(sharding_fields), 0};

static const struct field_name role_names[] = {
    {"prefill", ROLE_PREFILL}, {"decode", ROLE_DECODE}, {"mixed", ROLE_MIXED}};
static const struct field_name layout_names[] = {{"HND", LAYOUT_HND}, {"NHD", LAYOUT_NHD}};
static const struct field_name queue_names[] = {{"fcfs", QUEUE_FCFS},
                                                {"shortest_first", QUEUE_SHORTEST_FIRST},
                                                {"earliest_deadline", QUEUE_EARLIEST_DEADLINE},
                                                {"function", QUEUE_FUNCTION}};

static const struct field_name recompute_names[] = {{"prefiller", RECOMPUTE_PREFILLER}, {"decoder", RECOMPUTE_DECODER}};

static const struct field pool_fields[] = {
    NAME_REQUIRED("role", struct pool, role, role_names),
    COUNT("count", struct pool, count, 1, 1, NODES_MAX - 1, "NODES_MAX"),
    COUNT("page", struct pool, page_tokens, 64, 1, 4096, NULL),
    NAME("layout", struct pool, layout, LAYOUT_HND, layout_names),
    QUANTITY("memory_utilization", struct pool, memory_utilization_permille, QUANTITY_SHARE, 900, 1, 1000),
    NAME("queue", struct pool, scheduler.queue, QUEUE_FCFS, queue_names),
    COUNT("token_budget", struct pool, scheduler.token_budget, 8192, 1, REQUEST_TOKENS_MAX, "REQUEST_TOKENS_MAX"),
    COUNT("chunk", struct pool, scheduler.chunk_tokens, 0, 0, REQUEST_TOKENS_MAX, "REQUEST_TOKENS_MAX"),
    COUNT("batch_max", struct pool, scheduler.batch_max, 256, 1, 1 << 16, NULL),
    COUNT("headroom", struct pool, scheduler.headroom_tokens, 512, 0, REQUEST_TOKENS_MAX, "REQUEST_TOKENS_MAX"),
    FLAG("reserve_output", struct pool, scheduler.reserve_output, 0),
    FLAG("prefix_cache", struct pool, scheduler.prefix_cache, 1),
    COUNT("queue_max", struct pool, queue_max, 0, 0, 1 << 20, NULL),
    COUNT("repeat_max", struct pool, scheduler.repeat_max, 1024, 1, 1 << 20, NULL),
    COUNT("redundant_experts", struct pool, experts_redundant, 0, 0, 1 << 14, NULL),
    TIME("replace", struct pool, replace_ns, TIME_NEVER, 1, ANY),
    NAME("recompute", struct pool, scheduler.recompute, RECOMPUTE_PREFILLER, recompute_names),
};
const struct schema schema_pool = {pool_fields, LENGTH(pool_fields), 2};

static const struct field draft_fields[] = {
    COUNT_REQUIRED("tokens", struct pool, scheduler.draft_tokens, 1, DRAFT_TOKENS_MAX, NULL),
    QUANTITY_REQUIRED("acceptance", struct pool, scheduler.acceptance_permille, QUANTITY_SHARE, 0, 1000),
    FLAG("reuse", struct pool, draft.reuse, 0),
};
const struct schema schema_draft = {draft_fields, LENGTH(draft_fields), 0};

static const struct field_name engine_names[] = {
    {"neutral", ENGINE_NEUTRAL}, {"vllm", ENGINE_VLLM}, {"sglang", ENGINE_SGLANG}, {"trtllm", ENGINE_TRTLLM}};

static const struct field_name share_names[] = {
    {"gpu", MEMORY_SHARE_GPU}, {"static", MEMORY_SHARE_STATIC}, {"free", MEMORY_SHARE_FREE}};

static const struct field engine_fields[] = {
    NAME("kernels", struct engine, kernels, ENGINE_NEUTRAL, engine_names),
    TIME("host", struct engine, host_ns, ENGINE_HOST_NS, 0, NS_PER_S),
    TIME("host_sequence", struct engine, host_sequence_ns, 0, 0, NS_PER_S / 1000),
    FLAG("mixes", struct engine, mixes, 1),
    QUANTITY("prefill", struct engine, prefill_permille, QUANTITY_SHARE, 1000, 1, 100000),
    QUANTITY("prefill_experts", struct engine, prefill_experts_permille, QUANTITY_SHARE, 0, 0, 100000),
    COUNT("graph_step", struct engine, graph_step, 0, 0, 1 << 12, NULL),
    COUNT("graph_max", struct engine, graph_max, 0, 0, 1 << 16, NULL),
    QUANTITY("overlap", struct engine, overlap_permille, QUANTITY_SHARE, 0, 0, 1000),
    COUNT("receive", struct engine, receive_steps, 0, 0, 1 << 16, NULL),
    COUNT("gather", struct engine, gather_steps, 0, 0, 1 << 16, NULL),
    NAME("memory_share", struct engine, memory_share, MEMORY_SHARE_GPU, share_names),
};
const struct schema schema_engine = {engine_fields, LENGTH(engine_fields), 0};

#define RATE_MIN 1
#define RATE_MAX INT64_C(1000000000000) /* a million requests a second */

/* What every load may say. */
#define LOAD_COMMON                                                                                                    \
    TIME("duration", struct load, duration_ns, 0, 0, ANY - 1), TIME("warmup", struct load, warmup_ns, 0, 0, ANY - 1),  \
        COUNT("warmup_requests", struct load, warmup_requests, 0, 0, U32, NULL),                                       \
        QUANTITY("abort_share", struct load, abort_permille, QUANTITY_SHARE, 0, 0, 1000),                              \
        TIME("abort_within", struct load, abort_after_ns, 10 * NS_PER_S, 1, ANY - 1),                                  \
        TIME("deadline", struct load, deadline_ns, 0, 0, ANY - 1)

#define LOAD_REQUESTS COUNT("requests", struct load, requests, 0, 0, U32, NULL)
#define LOAD_RATE QUANTITY_REQUIRED("rate", struct load, rate_micro_per_s, QUANTITY_RATE, RATE_MIN, RATE_MAX)

static const struct field poisson_fields[] = {LOAD_RATE, LOAD_REQUESTS, LOAD_COMMON};
static const struct field burst_fields[] = {
    LOAD_RATE, COUNT_REQUIRED("size", struct load, burst_size, 1, 1 << 20, NULL), LOAD_REQUESTS, LOAD_COMMON};
static const struct field closed_fields[] = {COUNT_REQUIRED("concurrency", struct load, concurrency, 1, 1 << 20, NULL),
                                             LOAD_REQUESTS, LOAD_COMMON};

static const struct field sessions_fields[] = {
    QUANTITY("rate", struct load, rate_micro_per_s, QUANTITY_RATE, 0, 0, RATE_MAX),
    COUNT("concurrency", struct load, concurrency, 0, 0, 1 << 20, NULL),
    TIME("think", struct load, session_think_ns, 0, 0, INT64_C(1) << 55),
    COUNT("system", struct load, session_system_tokens, 0, 0, REQUEST_TOKENS_MAX, "REQUEST_TOKENS_MAX"),
    COUNT("block", struct load, session_block_tokens, 64, 1, 1 << 16, NULL),
    LOAD_REQUESTS,
    LOAD_COMMON,
};

static const struct field_name format_names[] = {{"azure", TRACE_FORMAT_AZURE_CSV},
                                                 {"mooncake", TRACE_FORMAT_MOONCAKE_JSONL},
                                                 {"csv", TRACE_FORMAT_CSV},
                                                 {"servegen", TRACE_FORMAT_SERVEGEN}};

static const struct field_name unit_names[] = {
    {"own", 0}, {"s", TRACE_UNIT_S}, {"ms", TRACE_UNIT_MS}, {"us", TRACE_UNIT_US}, {"ns", TRACE_UNIT_NS}};

static const struct field trace_fields[] = {
    NAME_REQUIRED("format", struct load, trace.format, format_names),
    COUNT("block", struct load, trace.block_tokens, 0, 0, 1 << 16, NULL),
    NAME("time_unit", struct load, trace.unit, 0, unit_names),
    QUANTITY("rate", struct load, rate_micro_per_s, QUANTITY_RATE, 0, 0, RATE_MAX),
    COUNT("repetitions", struct load, trace_repeat, 1, 1, 1 << 20, NULL),
    LOAD_REQUESTS,
    LOAD_COMMON,
    QUANTITY("prompt_scale", struct load, trace.prompt_permille, QUANTITY_SHARE, 1000, 1, 100000),
    QUANTITY("output_scale", struct load, trace.output_permille, QUANTITY_SHARE, 1000, 1, 100000),
};

static const struct field listed_fields[] = {
    COUNT("block", struct load, block_tokens, 0, 0, 1 << 16, NULL),
    TIME("warmup", struct load, warmup_ns, 0, 0, ANY - 1),
};

static const struct schema schema_load_poisson = {poisson_fields, LENGTH(poisson_fields), 0};
static const struct schema schema_load_evenly = {poisson_fields, LENGTH(poisson_fields), 0};
static const struct schema schema_load_burst = {burst_fields, LENGTH(burst_fields), 0};
static const struct schema schema_load_closed = {closed_fields, LENGTH(closed_fields), 0};
static const struct schema schema_load_trace = {trace_fields, LENGTH(trace_fields), 2};
static const struct schema schema_load_sessions = {sessions_fields, LENGTH(sessions_fields), 0};
static const struct schema schema_load_listed = {listed_fields, LENGTH(listed_fields), 0};

#define ROUTER_KIND_NAME(name, word) {#word, ROUTER_##name},
static const struct field_name router_names[] = {ROUTER_KINDS(ROUTER_KIND_NAME)};

static const struct field_name affinity_names[] = {{"none", 0}, {"node", 1}};

static const struct field routing_fields[] = {
    NAME("decode", struct scenario, decode_router, ROUTER_LEAST_KV, router_names),
    NAME("prefill", struct scenario, prefill_router, ROUTER_LEAST_QUEUED_TOKENS, router_names),
    /* Off; the last of these is splitwise-sim's default. */
    COUNT("max_local_prefill_length", struct scenario, conditional.max_local_prefill_length, 0, 0, U32, NULL),
    COUNT("max_prefill_queue_size", struct scenario, conditional.max_prefill_queue_size, 0, 0, U32, NULL),
    COUNT("prompt_max_pending_batch_tokens", struct scenario, pending_tokens_max, 8192, 0, U32, NULL),
    NAME("affinity", struct scenario, node_affinity, 0, affinity_names),
};
const struct schema schema_routing = {routing_fields, LENGTH(routing_fields), 4};

static const struct field admission_fields[] = {
    TIME("ttft_limit", struct admission_policy, ttft_limit_ns, 0, 0, ANY - 1),
    COUNT("queued_tokens_max", struct admission_policy, queued_tokens_max, 0, 0, U32, NULL),
    QUANTITY("prefill_rate", struct admission_policy, prefill_tokens_per_s, QUANTITY_TOKEN_RATE, 0, 0, ANY - 1),
    QUANTITY("decode_load_max", struct admission_policy, decode_load_max_permille, QUANTITY_SHARE, 0, 0, 100000),
};
const struct schema schema_admission = {admission_fields, LENGTH(admission_fields), 1};

/* The deadline is vLLM's default for a NIXL hand-off that nobody fetched (VLLM_NIXL_ABORT_REQUEST_TIMEOUT, 480 s). */
static const struct field messenger_fields[] = {
    TIME("deadline", struct messenger_policy, deadline_ns, 480 * NS_PER_S, NS_PER_MS, ANY),
    COUNT("attempts_max", struct messenger_policy, attempts_max, 3, 1, 255, NULL),
    COUNT("handoffs_max", struct messenger_policy, handoffs_max, 128, 1, 1 << IMMEDIATE_SLOT_BITS,
          "IMMEDIATE_SLOT_BITS"),
};
const struct schema schema_messenger = {messenger_fields, LENGTH(messenger_fields), 0};

static const struct field target_fields[] = {
    {"p", FIELD_TENTHS, 0, true, AT(struct target, percentile_permille), 0, 1, 999, NULL, NULL, 0},
    TIME_REQUIRED("below", struct target, limit_ns, 1),
};
const struct schema schema_target = {target_fields, LENGTH(target_fields), 0};

static const struct field targets_fields[] = {
    QUANTITY("attainment", struct targets, attainment_permille, QUANTITY_SHARE, 0, 0, 1000),
};
const struct schema schema_targets = {targets_fields, LENGTH(targets_fields), 0};

static const struct field_name goal_names[] = {{"highest_rate", PLAN_HIGHEST_RATE}, {"serve_rate", PLAN_SERVE_RATE}};

static const struct field plan_fields[] = {
    NAME("goal", struct plan_space, goal, PLAN_HIGHEST_RATE, goal_names),
    QUANTITY("rate", struct plan_space, rate_micro_per_s, QUANTITY_RATE, 0, 0, RATE_MAX),
    COUNT("nodes", struct plan_space, nodes_max, 0, 0, NODES_MAX, "NODES_MAX"),
    COUNT("requests", struct plan_space, requests, 4000, 1, U32, NULL),
    COUNT("seeds", struct plan_space, seeds, 3, 2, 64, NULL),
    FLAG("compare_mixed", struct plan_space, compare_mixed, 1),
};
const struct schema schema_plan = {plan_fields, LENGTH(plan_fields), 0};

static const struct field request_fields[] = {
    TIME("at", struct listed_request, at_ns, 0, 0, ANY / 4),
    COUNT_REQUIRED("prompt", struct listed_request, prompt_tokens, 1, REQUEST_TOKENS_MAX, "REQUEST_TOKENS_MAX"),
    COUNT_REQUIRED("output", struct listed_request, output_tokens, 1, REQUEST_TOKENS_MAX, "REQUEST_TOKENS_MAX"),
    COUNT("family", struct listed_request, family, 0, 0, U32, NULL),
    COUNT("shared_blocks", struct listed_request, shared_blocks, 0, 0, REQUEST_BLOCKS_MAX, "REQUEST_BLOCKS_MAX"),
    TIME("leaves", struct listed_request, leaves_ns, TIME_NEVER, 0, ANY),
    TIME("deadline", struct listed_request, deadline_ns, 0, 0, ANY / 4),
};
const struct schema schema_request = {request_fields, LENGTH(request_fields), 0};

#define RECORD(kind, name)                                                                                             \
    {                                                                                                                  \
        name, kind                                                                                                     \
    }
/* The records of base/trace.h by their names; a test holds the two together. */
static const struct field_name record_names[] = {
    {"none", 0},
    RECORD(TRACE_ARRIVED, "arrived"),
    RECORD(TRACE_RECEIVED, "received"),
    RECORD(TRACE_DISPATCHED, "dispatched"),
    RECORD(TRACE_PREFILL_STARTED, "prefill_started"),
    RECORD(TRACE_PREFILL_FINISHED, "prefill_finished"),
    RECORD(TRACE_READY, "ready"),
    RECORD(TRACE_DECODE_STARTED, "decode_started"),
    RECORD(TRACE_FIRST_TOKEN, "first_token"),
    RECORD(TRACE_FINISHED, "finished"),
    RECORD(TRACE_REJECTED, "rejected"),
    RECORD(TRACE_FAILED, "failed"),
    RECORD(TRACE_ABORTED, "aborted"),
    RECORD(TRACE_ROUTED, "routed"),
    RECORD(TRACE_BATCH, "batch"),
    RECORD(TRACE_CHUNK, "chunk"),
    RECORD(TRACE_PREEMPTED, "preempted"),
    RECORD(TRACE_ADMIT_WAIT, "admit_wait"),
    RECORD(TRACE_EVICTED, "evicted"),
    RECORD(TRACE_PREFIX_HIT, "prefix_hit"),
    RECORD(TRACE_ARMED, "armed"),
    RECORD(TRACE_ACCEPTED, "accepted"),
    RECORD(TRACE_NACKED, "nacked"),
    RECORD(TRACE_WRITE, "write"),
    RECORD(TRACE_TAIL, "tail"),
    RECORD(TRACE_DRAINED, "drained"),
    RECORD(TRACE_CANCELLING, "cancelling"),
    RECORD(TRACE_QUIESCED, "quiesced"),
    RECORD(TRACE_RELEASED, "released"),
    RECORD(TRACE_QUARANTINED, "quarantined"),
    RECORD(TRACE_FENCED, "fenced"),
    RECORD(TRACE_DEADLINE, "deadline"),
    RECORD(TRACE_PEER_LOST, "peer_lost"),
    RECORD(TRACE_PEER_JOINED, "peer_joined"),
    RECORD(TRACE_LATE, "late"),
};

#define FAULT_TIME_MAX (1000000 * NS_PER_S)
static const struct field fault_fields[] = {
    TEXT("node", struct fault, node),
    TEXT("to", struct fault, to),
    COUNT("rank", struct fault, rank, 0, 0, RANKS_MAX - 1, "RANKS_MAX"),
    TIME("at", struct fault, at_ns, 0, 0, FAULT_TIME_MAX),
    NAME("on", struct fault, record, 0, record_names),
    TEXT("by", struct fault, by),
    COUNT("nth", struct fault, nth, 1, 1, U32, NULL),
    COUNT("request", struct fault, request, FAULT_REQUEST_ANY, 0, U32, NULL),
    COUNT("skip", struct fault, skip, 0, 0, U32, NULL),
    COUNT("count", struct fault, count, 1, 0, U32, NULL),
    TIME("delay", struct fault, delay_ns, 0, 0, FAULT_TIME_MAX),
    TIME("back", struct fault, back_ns, TIME_NEVER, 1, ANY),
    FLAG("lingers", struct fault, lingers, 0),
    COUNT("pieces", struct fault, pieces, 1, 1, 16, NULL),
};
const struct schema schema_fault = {fault_fields, LENGTH(fault_fields), 0};

static const struct field faults_fields[] = {
    COUNT("shuffle", struct fault_list, shuffle, 0, 0, ANY, NULL),
};
const struct schema schema_faults = {faults_fields, LENGTH(faults_fields), 0};

const struct field_name fault_names[] = {
    {"kill", FAULT_KILL},   {"cut", FAULT_CUT},     {"nic", FAULT_NIC},     {"late", FAULT_LATE},
    {"twice", FAULT_TWICE}, {"slow", FAULT_SLOW},   {"stall", FAULT_STALL}, {"fail", FAULT_FAIL},
    {"ticks", FAULT_TICKS}, {"leave", FAULT_LEAVE}, {"drop", FAULT_DROP},
};
const uint32_t fault_name_count = LENGTH(fault_names);

const struct field_name target_names[] = {
    {"ttft", TARGET_TTFT}, {"tpot", TARGET_TPOT}, {"e2e", TARGET_E2E}, {"itl", TARGET_ITL}};
const uint32_t target_name_count = LENGTH(target_names);

const struct field_name load_names[] = {
    {"poisson", ARRIVAL_POISSON}, {"evenly", ARRIVAL_UNIFORM},    {"burst", ARRIVAL_BURST},  {"closed", ARRIVAL_CLOSED},
    {"trace", ARRIVAL_TRACE},     {"sessions", ARRIVAL_SESSIONS}, {"listed", ARRIVAL_LISTED}};
const uint32_t load_name_count = LENGTH(load_names);

const struct schema *schema_of_load(unsigned arrivals)
{
    static const struct schema *const schemas[] = {NULL,
                                                   &schema_load_poisson,
                                                   &schema_load_evenly,
                                                   &schema_load_burst,
                                                   &schema_load_closed,
                                                   &schema_load_trace,
                                                   &schema_load_sessions,
                                                   &schema_load_listed};
    CHECK(arrivals >= 1 && arrivals < sizeof schemas / sizeof schemas[0]);
    return schemas[arrivals];
}

int64_t field_load(const struct field *field, const void *base)
{
    const unsigned char *at = (const unsigned char *)base + field->offset;
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (field->width) {
    case 2:
        memcpy(&two, at, sizeof two);
        return two;
    case 4:
        memcpy(&four, at, sizeof four);
        return four;
    default:
        CHECK(field->width == 8);
        memcpy(&eight, at, sizeof eight);
        return (int64_t)eight;
    }
}

void field_store(const struct field *field, void *base, int64_t value)
{
    unsigned char *at = (unsigned char *)base + field->offset;
    uint16_t two = (uint16_t)value;
    uint32_t four = (uint32_t)value;
    switch (field->width) {
    case 2:
        CHECK(value >= 0 && value <= UINT16_MAX);
        memcpy(at, &two, sizeof two);
        return;
    case 4:
        CHECK(value >= 0 && value <= (int64_t)UINT32_MAX);
        memcpy(at, &four, sizeof four);
        return;
    default:
        CHECK(field->width == 8);
        memcpy(at, &value, sizeof value);
        return;
    }
}

static const char *name_of(const struct field *field, int64_t value)
{
    for (uint32_t k = 0; k < field->name_count; k++) {
        if (field->names[k].value == value)
            return field->names[k].name;
    }
    check_failed("an enum has a name", __FILE__, __LINE__);
}

/* Texts hold no control characters (scenario_read.c). */
static void quote_text(const char *plain, char *text)
{
    size_t used = 0;
    text[used++] = '"';
    for (; *plain != '\0' && used < FIELD_TEXT_SIZE - 3; plain++) {
        if (*plain == '"' || *plain == '\\')
            text[used++] = '\\';
        text[used++] = *plain;
    }
    text[used++] = '"';
    text[used] = '\0';
}

void field_text(const struct field *field, const void *base, char *text)
{
    if (field->kind == FIELD_TEXT) {
        quote_text((const char *)base + field->offset, text);
        return;
    }
    int64_t value = field_load(field, base);
    switch (field->kind) {
    case FIELD_COUNT:
        snprintf(text, FIELD_TEXT_SIZE, "%lld", (long long)value);
        return;
    case FIELD_FLAG:
        snprintf(text, FIELD_TEXT_SIZE, "%s", value != 0 ? "true" : "false");
        return;
    case FIELD_NAME:
        snprintf(text, FIELD_TEXT_SIZE, "\"%s\"", name_of(field, value));
        return;
    case FIELD_MILLI:
        decimal_text(value, 1000, text);
        return;
    case FIELD_TENTHS:
        decimal_text(value, 10, text);
        return;
    case FIELD_TIME_NS:
        quantity_text(QUANTITY_TIME, value == TIME_NEVER ? QUANTITY_NEVER : value * PS_PER_NS, text);
        return;
    case FIELD_TIME_PS:
    case FIELD_QUANTITY:
        quantity_text(field->quantity, value, text);
        return;
    case FIELD_TEXT:
        break;
    }
    check_failed("a known kind of field", __FILE__, __LINE__);
}

void placement_text(const struct placement *placement, char *text, size_t size)
{
    static const char *const words[] = {
        [PLACEMENT_APART] = "apart",    [PLACEMENT_PACKED] = "packed",
        [PLACEMENT_SPREAD] = "spread",  [PLACEMENT_APART_FROM] = "apart from ",
        [PLACEMENT_BESIDE] = "beside ",
    };
    if (placement->kind != PLACEMENT_LISTED) {
        snprintf(text, size, "\"%s%s\"", words[placement->kind], placement->pool);
        return;
    }
    size_t used = (size_t)snprintf(text, size, "{");
    for (uint32_t i = 0; i < placement->machine_count && used < size; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%u", i == 0 ? "" : ", ", (unsigned)placement->machines[i]);
    if (used < size)
        snprintf(text + used, size - used, "}");
}
