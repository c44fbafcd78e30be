/* --backend live: the options of runs that are sent to an endpoint. */
#define _POSIX_C_SOURCE 200809L
#include "cli/run_options.h"
#include "live/live_backend.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define IDLE_MAX_S_DEFAULT 120
#define IDLE_MAX_S_MOST 86400
#define VOCABULARY_MOST (1 << 24)

static struct live_options given;

static enum prompt_kind prompt_named(const char *name)
{
    if (name != NULL && strcmp(name, "text") == 0)
        return PROMPT_TEXT;
    return name != NULL && strcmp(name, "chat") == 0 ? PROMPT_CHAT : PROMPT_IDS;
}

/* Another one each time: what an endpoint has cached of an earlier run would shorten this one's prefills. */
static uint64_t drawn(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return ((uint64_t)now.tv_sec << 20 ^ (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 40) & INT64_MAX;
}

static bool prepare(const struct command_context *command, const struct arguments *arguments,
                    const struct scenario_sets *sets, const void **options, int *exit, struct user_error *error)
{
    (void)command;
    (void)sets;
    (void)exit;
    int64_t idle_max_s = argument_integer(arguments, "idle-max", IDLE_MAX_S_DEFAULT);
    int64_t vocabulary = argument_integer(arguments, "vocabulary", 0);
    int64_t salt = argument_integer(arguments, "salt", 0);
    given = (struct live_options){
        .endpoint = argument_text(arguments, "endpoint"),
        .api_key = argument_text(arguments, "api-key"),
        .model = argument_text(arguments, "model"),
        .authority = argument_text(arguments, "ca-file"),
        .prompt = prompt_named(argument_text(arguments, "prompt")),
        .salt = salt != 0 ? (uint64_t)salt : drawn(),
        .vocabulary = (uint32_t)vocabulary,
        .idle_max_s = (uint32_t)idle_max_s,
    };
    if (given.endpoint == NULL)
        user_error_set(error, NULL, 0, NULL, "--backend live: needs --endpoint, as in http://127.0.0.1:8000/v1");
    else if (strncmp(given.endpoint, "http://", 7) != 0 && strncmp(given.endpoint, "https://", 8) != 0)
        user_error_set(error, NULL, 0, NULL, "--endpoint %s: must begin with http:// or https://", given.endpoint);
    else if (idle_max_s < 1 || idle_max_s > IDLE_MAX_S_MOST)
        user_error_set(error, NULL, 0, NULL, "--idle-max %" PRId64 ": must be from 1 to %d", idle_max_s,
                       IDLE_MAX_S_MOST);
    else if (vocabulary != 0 && (vocabulary < 8 || vocabulary > VOCABULARY_MOST))
        user_error_set(error, NULL, 0, NULL, "--vocabulary %" PRId64 ": must be from 8 to %d", vocabulary,
                       VOCABULARY_MOST);
    *options = &given;
    return !error->set;
}

const struct backend backend_live = {
    .name = "live",
    .run = &live_backend,
    .alone = (const char *const[]){"endpoint", "model", "api-key", "ca-file", "prompt", "vocabulary", "salt",
                                   "idle-max", NULL},
    .prepare = prepare,
};
