#!/usr/bin/env bash
# test_nic_down.sh ROOT: two hosts with two NICs each, played by network namespaces. In the middle of a run the wire of
# the second one is cut, which tcp does not report: every request is served over the first, and what arrives is
# verified. Skipped (77) without the right to make namespaces, without mpirun, or where the real runtime was not built.
source "$1/tests/scenario/cli.bash"
source "$1/tests/real/hosts.bash"
hosts_make
hosts_link 1 20
hosts_link 2 20
hosts_agent "env"
sed 's/requests = 60/requests = 100/; s/== 60/== 100/' "$root/scenarios/real-gqa-2p2d.lua" > "$here/nics.lua"
db="$here/nics.db"
hosts_run run "$here/nics.lua" --backend real --provider tcp --bind 10.77.1.0/24,10.77.2.0/24 --nics 2 --verify \
    --heartbeats 100 --db "$db"

# Pages have crossed both.
sent() { # N
    ip netns exec "$a" cat "/sys/class/net/va$1-$$/statistics/tx_bytes"
}
for _ in $(seq 600); do
    [ "$(sent 2)" -lt 400000 ] || break
    kill -0 "$job" 2> /dev/null || break
    sleep 0.1
done
crossed="$(sent 2)"
[ "$crossed" -ge 400000 ] || fail "$crossed bytes over the second NIC: $(tail -n 5 "$here/err")"
ip -n "$a" link set "va2-$$" down
before="$(sent 1)"
wait "$job" || fail "the run failed: $(tail -n 20 "$here/err")"
job=""
expect "verified: [1-9][0-9]* pieces of transferred KV arrived as they were sent" "$here/err"
! grep -q 'is lost' "$here/err" || fail "$(cat "$here/err")"
sql_is "$db" "SELECT count(*) FROM request WHERE outcome = 1" 100
# Some had to be asked for again, and the rest of the bytes went over the first.
[ "$(sqlite3 "$db" 'SELECT count(*) FROM request WHERE attempts > 1')" -ge 1 ] || fail "no transfer was hit"
[ "$(sent 1)" -gt $((before + 400000)) ] || fail "$before, then $(sent 1) bytes over the first NIC"
sound "$db"
hosts_empty
