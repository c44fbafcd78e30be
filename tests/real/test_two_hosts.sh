#!/usr/bin/env bash
# test_two_hosts.sh ROOT: two hosts, played by two network namespaces whose link has a limited rate, and whose clocks
# are a thousand seconds apart. mpirun starts the front and the prefillers on one, the decoders on the other; every page
# that arrives is verified, no transfer is faster than the link, and the clocks are aligned. Skipped (77) without the
# right to make namespaces, without mpirun, or where the real runtime was not built.
source "$1/tests/scenario/cli.bash"

skip() {
    echo "skipped: $1"
    exit 77
}
"$TANDEM" help bench-fabric > /dev/null 2>&1 || skip "this tandem has no real runtime"
[ "$(id -u)" = 0 ] || skip "namespaces want root"
for tool in mpirun ip tc unshare sqlite3; do
    command -v "$tool" > /dev/null || skip "no $tool"
done

a="tandem-a-$$"
b="tandem-b-$$"
job=""
processes() {
    ip netns pids "$a" 2> /dev/null || true
    ip netns pids "$b" 2> /dev/null || true
}
clean_up() {
    [ -z "$job" ] || kill "$job" 2> /dev/null || true
    local left
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        left="$(processes)"
        [ -n "$left" ] || break
        # shellcheck disable=SC2086
        kill -9 $left 2> /dev/null || true
        sleep 0.1
    done
    ip netns del "$a" 2> /dev/null || true
    ip netns del "$b" 2> /dev/null || true
    rm -rf "$here"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

ip netns add "$a" 2> /dev/null || skip "network namespaces cannot be made here"
ip netns add "$b"
ip link add "va$$" netns "$a" type veth peer name "vb$$" netns "$b" 2> /dev/null || skip "no veth here"
unshare --time --monotonic 1000 --fork true 2> /dev/null || skip "no time namespaces here"

mbit=4 # less than the prefillers make, also on a busy machine
host() { # NAMESPACE DEVICE ADDRESS
    ip -n "$1" addr add "$3/24" dev "$2"
    ip -n "$1" link set "$2" up
    ip -n "$1" link set lo up
    ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "${mbit}mbit" burst 32kb latency 100ms \
        || skip "tc cannot limit a rate here"
}
host "$a" "va$$" 10.77.1.1
host "$b" "vb$$" 10.77.1.2

# What mpirun takes for ssh.
cat > "$here/agent" << AGENT
#!/usr/bin/env bash
shift
exec ip netns exec $b unshare --time --monotonic 1000 --fork --kill-child -- sh -c "\$*"
AGENT
chmod +x "$here/agent"

sed 's/requests = 60/requests = 20/; s/== 60/== 20/' "$root/scenarios/real-gqa-2p2d.lua" > "$here/hosts.lua"
db="$here/hosts.db"
TMPDIR="$here" ip netns exec "$a" timeout 120 mpirun --allow-run-as-root --oversubscribe --bind-to none \
    --mca plm_rsh_agent "$here/agent" --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include 10.77.1.0/24 \
    --host 10.77.1.1:3,10.77.1.2:2 --map-by slot -n 5 \
    "$TANDEM" run "$here/hosts.lua" --backend real --provider tcp --bind 10.77.1.0/24 --verify \
    --record transfers --heartbeats 100 --db "$db" > "$here/out" 2> "$here/err" &
job=$!
wait "$job" || fail "the run over two hosts failed: $(tail -n 20 "$here/err")"
job=""
expect "verified: [1-9][0-9]* pieces of transferred KV arrived as they were sent" "$here/err"
sql_is "$db" "SELECT count(*) FROM request WHERE outcome = 1" 20
sound "$db"

# Every byte of KV crossed the link, but for what the bucket lets through at once.
read -r bytes took_ns < <(sqlite3 -separator ' ' "$db" \
    "SELECT sum(bytes), max(landed_ns) - min(posted_ns) FROM transfer")
[ $(((bytes - 65536) * 8 * 1000)) -le $((mbit * took_ns)) ] \
    || fail "$bytes bytes in $took_ns ns are more than $mbit Mbit/s"
[ $((bytes * 8 * 1000 * 3)) -ge $((mbit * took_ns)) ] || fail "$bytes bytes in $took_ns ns: the link stood still"

# The decoders' clocks are 1000 s ahead, known within what two hops of a busy link take.
sql_is "$db" "SELECT count(*) FROM run_instance_real
    WHERE abs(clock_offset_ns - 1000000000000) <= clock_error_ns AND clock_error_ns BETWEEN 1 AND 1000000000" 2
sql_is "$db" "SELECT count(*) FROM run_instance_real WHERE clock_offset_ns = 0 AND clock_error_ns = 0" 2
# Spans that begin on one host and end on the other would show clocks that were not aligned.
sql_is "$db" "SELECT count(*) FROM request WHERE ready_ns - prefill_finished_ns > 60000000000
    OR first_token_ns < arrived_ns" 0
"$TANDEM" compare last last --db "$db" > "$here/compare"
expect "on several hosts, whose clocks are known within [1-9][0-9]* us" "$here/compare"

# Nothing is left on either.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -n "$(processes)" ] || break
    sleep 0.2
done
[ -z "$(processes)" ] || fail "processes are left: $(processes)"
