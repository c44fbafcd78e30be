#!/usr/bin/env bash
# What a scenario decides itself, in Lua, is decided by the same code in processes, and again when what they were told
# is given to new nodes; what fails ends either run with its file and line.
source "$1/tests/scenario/cli.bash"
scenario="$root/scenarios/real-gqa-2p2d.lua"
set_all=(--set routing.prefill="require 'policies.affinity'" --set routing.decode="require 'policies.room'"
    --set admission.admit="require 'policies.light'" --set pools.prefill.queue="require 'policies.shortest_first'")

answers run "$scenario" --db "$here/a.db" "${set_all[@]}"
mkdir "$here/events"
status 0 run "$scenario" --db "$here/a.db" "${set_all[@]}" --backend real --provider shm \
    --record-events "$here/events"
sql_is "$here/a.db" "SELECT count(*) FROM request WHERE run_id = 2 AND prefiller <> 1 + request % 2" 0
answers replay-events --db "$here/a.db" 2 "$here/events"
[ "$(grep -c "the same calls" "$here/out")" = 5 ] ||
    fail "another run of the nodes decides otherwise: $(cat "$here/out")"

broken="function(request, workers) return workers[9].queued_tokens end"
refused ":1: routing.prefill: attempt to index a nil value" run "$scenario" --db "$here/b.db" \
    --set routing.prefill="$broken"
status 2 run "$scenario" --db "$here/b.db" --set routing.prefill="$broken" --backend real --provider shm
expect ":1: routing.prefill: attempt to index a nil value" "$here/err"
status 1 run "$scenario" --db "$here/b.db" --set pools.prefill.queue="function(request) return {} end" \
    --backend real --provider shm
expect "pools.prefill.queue: must return a number" "$here/err"

# Where two policies part is found like any other difference.
few=(--set load.requests=30)
answers run "$scenario" --db "$here/c.db" "${few[@]}" --set expect=nil \
    --set routing.prefill="require 'policies.affinity'"
answers run "$scenario" --db "$here/c.db" "${few[@]}" --set expect=nil \
    --set routing.prefill="function(request, workers) return request.id == 17 and 1 or request.id % #workers + 1 end"
status 1 timeline --db "$here/c.db" --bisect 1 2
expect "routed request 17 decoder=" "$here/out"
