/* The binary `tandem`: both runtimes behind one command line. */
#include "host/command.h"

int main(int argc, char **argv)
{
    return command_main(argc, argv, commands, stdout, stderr);
}
