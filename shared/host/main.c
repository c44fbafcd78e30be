/* The binary `tandem`: both runtimes behind one command line. */
#include "host/command.h"
#ifdef TANDEM_REAL
#include "real/commands.h"
#endif
#include "sim/commands.h"

const struct command *const commands[] = {
    &command_plan,
    &command_run,
    &command_explain,
    &command_compare,
    &command_bench,
#ifdef TANDEM_REAL
    &command_bench_fabric,
#endif
    NULL,
};

int main(int argc, char **argv)
{
    return command_main(argc, argv, commands, stdout, stderr);
}
