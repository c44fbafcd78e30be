# Two hosts, played by network namespaces, for tests of the command line; sourced after tests/scenario/cli.bash. $a and $b
# are the namespaces, $job is the run under way.
: "${here:?}" # of cli.bash
skip() {
    echo "skipped: $1"
    exit 77
}

a="tandem-a-$$"
b="tandem-b-$$"
job=""
hosts_processes() {
    ip netns pids "$a" 2> /dev/null || true
    ip netns pids "$b" 2> /dev/null || true
}

hosts_clean_up() {
    [ -z "$job" ] || kill "$job" 2> /dev/null || true
    local left
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        left="$(hosts_processes)"
        [ -n "$left" ] || break
        # shellcheck disable=SC2086
        kill -9 $left 2> /dev/null || true
        sleep 0.1
    done
    ip netns del "$a" 2> /dev/null || true
    ip netns del "$b" 2> /dev/null || true
    rm -rf "$here"
}

hosts_make() {
    "$TANDEM" help bench-fabric > /dev/null 2>&1 || skip "this tandem has no real runtime"
    [ "$(id -u)" = 0 ] || skip "namespaces want root"
    for tool in mpirun ip tc unshare sqlite3; do
        command -v "$tool" > /dev/null || skip "no $tool"
    done
    trap hosts_clean_up EXIT
    trap 'exit 1' INT TERM
    ip netns add "$a" 2> /dev/null || skip "network namespaces cannot be made here"
    ip netns add "$b"
    ip -n "$a" link set lo up
    ip -n "$b" link set lo up
}

hosts_side() { # NAMESPACE DEVICE ADDRESS MBIT
    ip -n "$1" addr add "$3/24" dev "$2"
    ip -n "$1" link set "$2" up
    ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "${4}mbit" burst 32kb latency 100ms \
        || skip "tc cannot limit a rate here"
}

# hosts_link N MBIT: their Nth NICs, wired to each other: 10.77.N.1 and 10.77.N.2.
hosts_link() {
    ip link add "va$1-$$" netns "$a" type veth peer name "vb$1-$$" netns "$b" 2> /dev/null || skip "no veth here"
    hosts_side "$a" "va$1-$$" "10.77.$1.1" "$2"
    hosts_side "$b" "vb$1-$$" "10.77.$1.2" "$2"
}

# hosts_agent COMMAND: what mpirun takes for ssh, with what goes before the command on the other host.
hosts_agent() {
    cat > "$here/agent" << AGENT
#!/usr/bin/env bash
shift
exec ip netns exec $b $1 sh -c "\$*"
AGENT
    chmod +x "$here/agent"
}

# hosts_run ARGUMENT...: tandem as the front and two prefillers on one, two decoders on the other; in the background.
hosts_run() {
    TMPDIR="$here" ip netns exec "$a" timeout 120 mpirun --allow-run-as-root --oversubscribe --bind-to none \
        --mca plm_rsh_agent "$here/agent" --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include 10.77.1.0/24 \
        --host 10.77.1.1:3,10.77.1.2:2 --map-by slot -n 5 "$TANDEM" "$@" > "$here/out" 2> "$here/err" &
    job=$!
}

# Nothing is left on either.
hosts_empty() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ -n "$(hosts_processes)" ] || break
        sleep 0.2
    done
    [ -z "$(hosts_processes)" ] || fail "processes are left: $(hosts_processes)"
}
