#!/usr/bin/env bash
# includes.sh ROOT: every #include is on the allow-list of its folder, so that dependencies point one way. Prints each
# violation as file:line and exits 1.
set -euo pipefail
cd "$1"

files=()
for folder in shared sim real; do
    [ -d "$folder" ] && mapfile -t -O "${#files[@]}" files < <(find "$folder" -name '*.[ch]' | LC_ALL=C sort)
done

awk '
BEGIN {
    # Freestanding C and string.h: no clock, no I/O, no allocation can be named.
    free = "^(float|iso646|limits|stdalign|stdarg|stdbool|stddef|stdint|stdnoreturn|string)[.]h$"
    hosted = "^(assert|ctype|errno|inttypes|locale|math|setjmp|signal|stdatomic|stdio|stdlib|time|" \
        "dirent|fcntl|fnmatch|ftw|glob|langinfo|libgen|poll|pthread|sched|semaphore|strings|termios|unistd|" \
        "sys/(file|ioctl|mman|resource|select|socket|stat|time|types|un|utsname|wait))[.]h$"
    store = "^(lua|lauxlib|lualib|sqlite3|jansson|archive|archive_entry|libsmartcols/libsmartcols|libsmartcols)[.]h$"
    fabric = "^(rdma/.*|cuda.*|cublas_v2|dlfcn|hwloc.*|pmix.*|jansson|linux/(futex|membarrier)|" \
        "sys/(epoll|eventfd|random|timerfd|pidfd|syscall|prctl|signalfd|socket)|" \
        "netinet/(in|tcp)|arpa/inet|ifaddrs|netdb|sched)[.]h$"

    # folder -> what it may include by name in quotes, and in angle brackets. The longest matching folder decides.
    quoted["shared/base/"] = "^base/"
    quoted["shared/model/"] = "^(base|model)/"
    quoted["shared/runtime.h"] = "^(base|model)/"
    quoted["shared/serve/"] = "^((base|model|serve)/|runtime[.]h$|node[.]h$)"
    quoted["shared/messenger/"] = "^((base|model|serve|messenger)/|runtime[.]h$|node[.]h$)"
    quoted["shared/roles/"] = "^((base|model|serve|messenger|roles)/|runtime[.]h$|node[.]h$)"
    quoted["shared/"] = quoted["shared/roles/"]
    for (folder in quoted)
        angled[folder] = free

    logic = "(base|model|serve|messenger|roles)/|runtime[.]h$|node[.]h$"
    quoted["shared/host/"] = "^(host/|" logic ")"
    angled["shared/host/"] = free "|" hosted "|" store
    # Within it, too: from what reads and prints, over scenarios and what they load, to the command line.
    ground = "host/(check_host|output|sha256|source_lines|user_error)[.]h$|" logic
    quoted["shared/host/scenario/"] = "^(host/scenario/|" ground ")"
    quoted["shared/host/kernels/"] = "^(host/(kernels|scenario)/|" ground ")"
    quoted["shared/host/load/"] = "^(host/(load|scenario)/|" ground ")"
    quoted["shared/host/fuzz/"] = "^(host/(fuzz|scenario)/|" ground ")"
    quoted["shared/host/results/"] = "^(host/(results|load|scenario)/|host/deployment[.]h$|" ground ")"
    quoted["shared/host/compare/"] = "^(host/(compare|results|load|scenario)/|host/deployment[.]h$|" ground ")"
    for (folder in quoted)
        if (folder ~ /^shared.host.[a-z]+.$/)
            angled[folder] = angled["shared/host/"]
    # The program itself is where the runtimes are put together.
    quoted["shared/host/main.c"] = "^(sim/|real/|host/|" logic ")"
    angled["shared/host/main.c"] = angled["shared/host/"]
    quoted["sim/"] = "^(sim/|host/|" logic ")"
    angled["sim/"] = free "|" hosted "|^jansson[.]h$"
    quoted["real/"] = "^(real/|host/|" logic ")"
    angled["real/"] = free "|" hosted "|" fabric
}
FNR == 1 {
    rule = ""
    for (folder in quoted)
        if (index(FILENAME, folder) == 1 && length(folder) > length(rule))
            rule = folder
}
/^[ \t]*#[ \t]*include/ {
    name = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*/, "", name)
    kind = substr(name, 1, 1)
    name = substr(name, 2)
    sub(/[">].*/, "", name)
    if (kind == "\"")
        allowed = name ~ quoted[rule]
    else
        allowed = kind == "<" && name ~ angled[rule]
    if (!allowed) {
        print FILENAME ":" FNR ": " rule " may not include " name
        bad = 1
    }
}
END { exit bad }
' "${files[@]}"
