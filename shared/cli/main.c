/* The binary `tandem`: both runtimes behind one command line. */
#define _XOPEN_SOURCE 700

#include "cli/command.h"
#include "cli/commands.h"
#ifdef TANDEM_REAL
#include "cli/real/commands_real.h"
#include "cli/real/run_real.h"
#endif

#include <signal.h>

const struct command *const commands[] = {
    &command_plan,
    &command_run,
    &command_replay,
    &command_serve,
    &command_load,
    &command_explain,
    &command_compare,
    &command_check,
    &command_timeline,
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
    /* A file that has reached its limit fails the write, which is told, rather than ending the process without a
     * word. */
    signal(SIGXFSZ, SIG_IGN);
#ifdef TANDEM_REAL
    /* Roles of processes that a real run starts, not commands for people. */
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
#endif
    return command_main(argc, argv, commands, stdout, stderr);
}
