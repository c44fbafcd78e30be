/* The binary `tandem`: both runtimes behind one command line. */
#define _XOPEN_SOURCE 700

#include "cli/command.h"
#include "cli/command_replay.h"
#include "cli/run_options.h"
#include "cli/commands.h"
#include "sim/check/first_divergence.h"
#ifdef TANDEM_REAL
#include "cli/real/commands_real.h"
#include "cli/real/run_real.h"
#endif

#include <signal.h>

/* The two ways to run a scenario; the first is the default. */
static const struct backend backends[] = {
    {.name = "sim", .run = run_simulated, .replay = replay_simulated, .alone = run_simulated_alone},
#ifdef TANDEM_REAL
    {.name = "real", .run = run_real, .replay = replay_real, .alone = run_real_alone},
#else
    {.name = "real",
     .absent = "this tandem was built without it: libfabric or PMIx was not installed (libfabric-dev, "
               "libpmix-dev)",
     .alone = (const char *const[]){NULL}},
#endif
};

static int run(const struct command_context *context, const struct arguments *arguments, struct user_error *error)
{
    return run_by_backend(backends, sizeof backends / sizeof *backends, context, arguments, error);
}

static const struct command command_run = {
    .name = "run",
    .operands = "SCENARIO",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "run the scenario, or its sweep, and store the result",
    .description =
        "A scenario with `vary` is run once per combination of its values. A simulated run that is stored\n"
        "already is run again as a check: it must come out the same. With --backend real every instance is a\n"
        "process and every rank another; under mpirun or srun the processes are theirs.",
    .options = run_options,
    .run = run,
};

static int replay(const struct command_context *context, const struct arguments *arguments, struct user_error *error)
{
    return replay_by_backend(backends, sizeof backends / sizeof *backends, sim_divergence, context, arguments, error);
}

static const struct command command_replay = {
    .name = "replay",
    .operands = "RUN",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "a stored run's arrivals and lengths on the other backend, and both side by side",
    .description =
        "RUN is a run's number, last, last~N, or SCENARIO/SEED. Its scenario with all that was set is run again with\n"
        "exactly the arrivals that were stored, in simulation if it was real and for real if it was simulated, or\n"
        "as --backend says. --hardware and --set change it further. Steps and transfers are recorded, the new run\n"
        "is stored with a link to the old one, and `tandem compare` of both is the answer.",
    .options = run_options,
    .run = replay,
};

const struct command *const commands[] = {
    &command_plan,
    &command_run,
    &command_replay,
    &command_explain,
    &command_compare,
    &command_check,
    &command_trace,
    &command_runs,
    &command_show,
    &command_rm,
    &command_gc,
    &command_validate,
    &command_bench,
    &command_pack,
    &command_fuzz,
#ifdef TANDEM_REAL
    &command_calibrate,
    &command_bench_fabric,
    &command_replay_events,
#endif
    NULL,
};

int main(int argc, char **argv)
{
    /* A file that has reached its limit fails the write, which is told, rather than ending the process without a word. */
    signal(SIGXFSZ, SIG_IGN);
#ifdef TANDEM_REAL
    /* Roles of processes that a real run starts, not commands for people. */
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
#endif
    return command_main(argc, argv, commands, stdout, stderr);
}
