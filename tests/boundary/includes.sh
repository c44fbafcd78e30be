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
    store = "^(lua|lauxlib|lualib|sqlite3|jansson|archive|archive_entry)[.]h$"
    fabric = "^(rdma/.*|cuda.*|cublas_v2|dlfcn|hwloc.*|pmix.*|jansson|linux/(futex|membarrier)|" \
        "sys/(epoll|eventfd|random|timerfd|pidfd|syscall|prctl|signalfd|socket|statvfs)|" \
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
    # The floors above the logic, from the ground up. Each includes itself and those below; its rooms likewise.
    quoted["shared/host/"] = "^(host/|" logic ")"
    world = "host/|" logic
    quoted["shared/world/scenario/"] = "^(world/scenario/|" world ")"
    quoted["shared/world/kernels/"] = "^(world/(kernels|scenario)/|" world ")"
    quoted["shared/world/load/"] = "^(world/(load|scenario)/|" world ")"
    quoted["shared/world/"] = "^(world/|" world ")"
    run = "world/|" world
    quoted["shared/run/"] = "^(run/|" run ")"
    quoted["shared/run/results/"] = "^(run/(results/|[a-z_]+[.]h$)|" run ")"
    below = "run/|" run
    quoted["sim/time/"] = "^(sim/time/|host/memory[.]h$|" logic ")"
    quoted["sim/net/"] = "^(sim/(net|time)/|" world "|world/)"
    quoted["sim/cost/"] = "^(sim/cost/|" world "|world/)"
    quoted["shared/live/"] = "^(live/|" below ")"
    quoted["sim/engine/"] = "^(sim/(engine|cost|net|time)/|" below ")"
    quoted["sim/checkers/"] = "^(sim/(checkers|engine|cost|net|time)/|" below ")"
    backend = "sim/(checkers|engine|cost|net|time)/|sim/[a-z_]+[.]h$"
    quoted["sim/"] = "^(" backend "|" below ")"
    # The laboratory: four rooms that know the backend, and nothing of each other.
    quoted["sim/plan/"] = "^(sim/plan/|" backend "|" below ")"
    quoted["sim/check/"] = "^(sim/check/|" backend "|" below ")"
    quoted["sim/validate/"] = "^(sim/validate/|" backend "|" below ")"
    quoted["sim/swarm/"] = "^(sim/swarm/|" backend "|" below ")"
    # In wall time, for whoever serves.
    quoted["sim/live/"] = "^(sim/live/|" backend "|" below ")"
    # No file stands outside of a room.
    quoted["real/"] = "^(" world ")"
    quoted["real/memory/"] = "^(real/memory/|" world ")"
    quoted["real/control/"] = "^(real/control/|" world ")"
    quoted["real/device/"] = "^(real/(device|memory)/|" world ")"
    quoted["real/fabric/"] = "^(real/(fabric|device|memory)/|" world ")"
    quoted["real/bench/"] = "^(real/(bench|fabric|device|memory)/|" world ")"
    quoted["real/executor/"] = "^(real/(executor|fabric|device|memory|control)/|" world "|world/)"
    quoted["real/runtime/"] = "^(real/(runtime|executor|fabric|device|memory|control)/|" below ")"
    quoted["real/cluster/"] = "^(real/(cluster|runtime|executor|fabric|device|memory|control)/|" below ")"
    quoted["real/calibrate/"] = "^(real/(calibrate|cluster|runtime|executor|fabric|device|memory|control)/|" below ")"
    quoted["shared/cli/"] = "^(cli/|live/|sim/|real/|" below ")"
    for (folder in quoted) {
        if (folder ~ /^shared.(host|world|run|cli)/)
            angled[folder] = free "|" hosted "|" store
        if (folder ~ /^shared.live/)
            angled[folder] = free "|" hosted "|^(jansson|microhttpd|curl/curl|netdb|sys/(epoll|timerfd))[.]h$"
        if (folder ~ /^sim/)
            angled[folder] = free "|" hosted "|^jansson[.]h$"
        if (folder ~ /^real/)
            angled[folder] = free "|" hosted "|" fabric
    }
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
