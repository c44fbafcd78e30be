/* See leftovers.h. A region is a file of /dev/shm named "PID:DOMAIN:ENDPOINT". */
#define _POSIX_C_SOURCE 200809L

#include "real/fabric/leftovers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The process that a file's name speaks of; 0: the name is of something else. */
static pid_t process_of(const char *name)
{
    long process = 0;
    for (int part = 0; part < 3; part++) {
        char *end;
        if (*name < '0' || *name > '9')
            return 0;
        long value = strtol(name, &end, 10);
        if (*end != (part < 2 ? ':' : '\0'))
            return 0;
        if (part == 0)
            process = value;
        name = end + 1;
    }
    return process > 0 && process <= INT32_MAX ? (pid_t)process : 0;
}

static uint32_t remove_regions(pid_t only)
{
    uint32_t removed = 0;
    DIR *folder = opendir("/dev/shm");
    if (folder == NULL)
        return 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        struct stat status;
        pid_t process = process_of(entry->d_name);
        if (process == 0 || (only != 0 && process != only))
            continue;
        if (only == 0 && (kill(process, 0) == 0 || errno != ESRCH))
            continue;
        if (fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode) ||
            status.st_uid != geteuid())
            continue;
        if (unlinkat(dirfd(folder), entry->d_name, 0) == 0)
            removed++;
    }
    closedir(folder);
    return removed;
}

uint32_t leftovers_remove(void)
{
    return remove_regions(0);
}

uint32_t leftovers_remove_of(pid_t process)
{
    return remove_regions(process);
}
