/* tandem serve: a scenario's cluster, simulated in wall time, behind an OpenAI-compatible endpoint. */
#define _POSIX_C_SOURCE 200809L
#include "base/arith.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "host/interrupt.h"
#include "live/server.h"
#include "sim/live/served.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define CONNECTIONS_DEFAULT 4096
#define CONNECTIONS_MOST 65536
#define BODY_MIB_DEFAULT 32
#define BODY_MIB_MOST 1024
#define GRACE_S_DEFAULT 5
#define INTERRUPT_POLL_NS 50000000L

struct serving {
    struct served *served;
    struct server *server;
    int64_t grace_ns;
};

static uint32_t submit(void *self, const struct request_spec *spec)
{
    return served_submit(((struct serving *)self)->served, spec);
}

static void abort_request(void *self, uint32_t request)
{
    served_abort(((struct serving *)self)->served, request);
}

static void read_metrics(void *self, struct live_metrics *metrics)
{
    struct served_stats stats;
    served_read(((struct serving *)self)->served, &stats);
    metrics->running = stats.running;
    metrics->waiting = stats.waiting;
    metrics->pages_held = stats.pages_held;
    metrics->pages_total = stats.pages_total;
    metrics->preemptions = stats.preemptions;
    metrics->lag_max_us = stats.lag_max_us;
}

static void on_tokens(void *self, uint32_t request, uint32_t count)
{
    server_tokens(((struct serving *)self)->server, request, count);
}

static void on_first(void *self, uint32_t request)
{
    server_first(((struct serving *)self)->server, request);
}

static void on_ended(void *self, const struct request_row *row)
{
    server_ended(((struct serving *)self)->server, row);
}

/* Waits for Ctrl-C or SIGTERM: what a handler may do is too little to end with. */
static void *wait_for_end(void *self)
{
    struct serving *serving = self;
    const struct timespec pause = {.tv_nsec = INTERRUPT_POLL_NS};
    while (!interrupt_requested())
        nanosleep(&pause, NULL);
    server_quiesce(serving->server);
    served_close(serving->served, serving->grace_ns);
    return NULL;
}

static void tell_end(const struct live_metrics *metrics, const struct command_context *command)
{
    fprintf(command->out,
            "served %" PRIu64 " requests, %" PRIu64 " went away, %" PRIu64 " were turned away or failed; %" PRIu64
            " tokens; the simulation was %" PRIu64 ".%03" PRIu64 " ms behind the clock at most\n",
            metrics->completed, metrics->aborted, metrics->failed, metrics->generation_tokens,
            metrics->lag_max_us / 1000, metrics->lag_max_us % 1000);
}

static int play(struct serving *serving, const struct server_config *config, const struct command_context *command,
                struct user_error *error)
{
    pthread_t waiter;
    struct run_result result;
    struct live_metrics metrics;
    serving->server = server_start(config, error);
    if (serving->server == NULL)
        return EXIT_USER;
    CHECK(pthread_create(&waiter, NULL, wait_for_end, serving) == 0);
    fprintf(command->out, "%s at http://%s%s%s:%u/v1\n", config->model, strchr(config->host, ':') ? "[" : "",
            config->host, strchr(config->host, ':') ? "]" : "", (unsigned)server_port(serving->server));
    fflush(command->out);
    served_run(serving->served, &result);
    int exit = (int)run_exit(result.status);
    if (exit != EXIT_OK)
        user_error_set(error, NULL, 0, NULL, "%s", result.text);
    /* It may have ended by itself: what failed is told at once. */
    if (!interrupt_requested())
        pthread_cancel(waiter);
    CHECK(pthread_join(waiter, NULL) == 0);
    server_count(serving->server, &metrics);
    server_stop(serving->server);
    tell_end(&metrics, command);
    run_result_free(&result);
    return exit;
}

/* An integer of an option within what it may be. */
static bool bounded(const struct arguments *arguments, const char *name, int64_t otherwise, int64_t least, int64_t most,
                    int64_t *value, struct user_error *error)
{
    *value = argument_integer(arguments, name, otherwise);
    if (*value < least || *value > most)
        user_error_set(error, NULL, 0, NULL, "--%s %" PRId64 ": must be from %" PRId64 " to %" PRId64, name, *value,
                       least, most);
    return !error->set;
}

static int serve_scenario(const struct scenario *scenario, const struct trace_file *recorded,
                          const struct command_context *command, const struct arguments *arguments,
                          struct user_error *error)
{
    struct deployment_sizes sizes = deployment_sizes_traced(&scenario->load, recorded);
    struct deployment_choice choice = deployment_default(scenario);
    int64_t port;
    int64_t connections;
    int64_t body_mib;
    int64_t tokens;
    int64_t grace_s;
    if (!bounded(arguments, "port", 8000, 0, UINT16_MAX, &port, error) ||
        !bounded(arguments, "connections", CONNECTIONS_DEFAULT, 1, CONNECTIONS_MOST, &connections, error) ||
        !bounded(arguments, "body-max", BODY_MIB_DEFAULT, 1, BODY_MIB_MOST, &body_mib, error) ||
        !bounded(arguments, "max-model-len", sizes.request_tokens_max, 2, REQUEST_TOKENS_MAX, &tokens, error) ||
        !bounded(arguments, "grace", GRACE_S_DEFAULT, 0, 3600, &grace_s, error))
        return EXIT_USER;
    const char *named = argument_text(arguments, "model");
    if (named != NULL && strpbrk(named, "\"\\\n") != NULL) {
        user_error_set(error, NULL, 0, NULL, "--model %s: a name has no quotes, backslashes or ends of lines", named);
        return EXIT_USER;
    }
    if (sizes.prefix_block_tokens != 0)
        tokens = min_i64(tokens, (int64_t)sizes.prefix_block_tokens * REQUEST_BLOCKS_MAX);
    int64_t seed = argument_integer(arguments, "seed", (int64_t)scenario->seed);
    const char *host = argument_text(arguments, "host");
    struct serving serving = {.grace_ns = grace_s * NS_PER_S};
    serving.served = served_make(&(struct served_config){
        .scenario = scenario,
        .choice = &choice,
        .recorded = recorded,
        .seed = (uint64_t)seed,
        .request_tokens_max = (uint32_t)tokens,
        .requests_together = (uint32_t)connections,
        .listener = {.self = &serving, .tokens = on_tokens, .first = on_first, .ended = on_ended},
    });
    struct server_config config = {
        .host = host == NULL ? "127.0.0.1" : host,
        .port = (uint16_t)port,
        .model = named == NULL ? scenario->name : named,
        .api_key = argument_text(arguments, "api-key"),
        .connections_max = (uint32_t)connections,
        .body_bytes_max = (uint64_t)body_mib << 20,
        .request_tokens_max = (uint32_t)tokens,
        .block_tokens = sizes.prefix_block_tokens,
        .engine = {.self = &serving, .submit = submit, .abort = abort_request, .read = read_metrics},
    };
    int exit = play(&serving, &config, command, error);
    served_free(serving.served);
    return exit;
}

static int serve(const struct command_context *command, const struct arguments *arguments, struct user_error *error)
{
    struct scenario_sets sets = {.count = 0};
    struct scenario *scenario = NULL;
    struct trace_file *recorded = NULL;
    int exit = EXIT_USER;
    interrupt_install();
    if (scenario_sets_read(arguments, &sets, error))
        scenario = scenario_load(operand(arguments, 0), sets.sets, sets.count, error);
    if (scenario != NULL) {
        recorded = scenario_trace(scenario, error);
        if (!error->set)
            exit = serve_scenario(scenario, recorded, command, arguments, error);
        trace_file_free(recorded);
        scenario_free(scenario);
    }
    scenario_sets_free(&sets);
    return exit;
}

static const struct option serve_options[] = {
    {"set", "PATH=VALUE", "change a value of the scenario", OPTION_LIST},
    HARDWARE_OPTION,
    {"seed", "N", "of the run (the scenario's)", OPTION_INTEGER},
    {"host", "ADDRESS", "where to listen (127.0.0.1)", OPTION_TEXT},
    {"port", "N", "of it; 0: any that is free (8000)", OPTION_INTEGER},
    {"model", "NAME", "that clients ask for (the scenario's name)", OPTION_TEXT},
    {"api-key", "KEY", "that clients must know (none)", OPTION_TEXT},
    {"max-model-len", "TOKENS", "most of a request, prompt and answer (the load's)", OPTION_INTEGER},
    {"connections", "N", "most at a time (4096)", OPTION_INTEGER},
    {"body-max", "MIB", "most of a request's body (32)", OPTION_INTEGER},
    {"grace", "SECONDS", "for what is under way when it is to end (5)", OPTION_INTEGER},
    {NULL, NULL, NULL, OPTION_FLAG},
};

const struct command command_serve = {
    .name = "serve",
    .operands = "SCENARIO",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "the scenario's cluster in wall time, behind an OpenAI-compatible endpoint",
    .description =
        "The cluster is simulated as fast as the clock goes: a token is sent when its step ends. Completions and chat\n"
        "completions, streamed or not; /v1/models, /health, and /metrics under vLLM's names. Prompts of token ids "
        "have\n"
        "their exact length; of text, four bytes are a token. Prompts share prefixes in blocks of the load's size.\n"
        "What an engine's client may not expect is told: answers have the length asked for, whatever ignore_eos says.\n"
        "Ends with Ctrl-C or SIGTERM.",
    .options = serve_options,
    .run = serve,
};
