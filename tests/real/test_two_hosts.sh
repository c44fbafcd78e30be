#!/usr/bin/env bash
# test_two_hosts.sh ROOT: two hosts, played by two network namespaces whose link has a limited rate, and whose clocks
# are a thousand seconds apart. mpirun starts the front and the prefillers on one, the decoders on the other; every page
# that arrives is verified, no transfer is faster than the link, and the clocks are aligned. Skipped (77) without the
# right to make namespaces, without mpirun, or where the real runtime was not built.
source "$1/tests/scenario/cli.bash"

source "$1/tests/real/hosts.bash"
hosts_make
unshare --time --monotonic 1000 --fork true 2> /dev/null || skip "no time namespaces here"
mbit=4 # less than the prefillers make, also on a busy machine
hosts_link 1 "$mbit"
hosts_agent "unshare --time --monotonic 1000 --fork --kill-child --"

sed 's/requests = 60/requests = 20/; s/== 60/== 20/' "$root/scenarios/real-gqa-2p2d.lua" > "$here/hosts.lua"
db="$here/hosts.db"
hosts_run run "$here/hosts.lua" --backend real --provider tcp --bind 10.77.1.0/24 --verify \
    --record transfers --heartbeats 100 --db "$db"
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

hosts_empty
