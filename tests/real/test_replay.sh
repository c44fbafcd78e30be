#!/usr/bin/env bash
# Runs played again across the two runtimes, and what real nodes were told, told again.
source "$1/tests/scenario/cli.bash"
scenario="$root/scenarios/real-gqa-2p2d.lua"
profile="$root/tests/data/steps-tiny.lua"
db="$here/replay.db"
few=(--set load.requests=10 --set expect=nil)

# A real run, predicted: the same requests at the very same instants.
status 0 run "$scenario" --backend real --provider shm --limit 120 --db "$db" "${few[@]}" --record steps,transfers \
    --record-events "$here/events"
answers replay last --db "$db" --hardware "host=$profile"
expect '^run 1: .*, real, ' "$here/out"
expect '^run 2: .*, sim, ' "$here/out"
expect '^request by request; errors of run 2 relative to run 1' "$here/out"
expect '^ttft  *10 ' "$here/out"
expect '^transfer by transfer' "$here/out"
same_arrivals='SELECT count(*) FROM request AS a JOIN request AS b
    USING (request, arrived_ns, prompt_tokens, output_tokens)'
sql_is "$db" "$same_arrivals WHERE a.run_id = 1 AND b.run_id = 2" 10
sql_is "$db" 'SELECT replay_of FROM run WHERE id = 2' 1

# A simulated run, measured: a request cannot arrive before its instant, and each is the one that was simulated.
answers run "$scenario" --db "$db" --hardware "host=$profile" "${few[@]}"
status 0 replay last --db "$db" --provider tcp --limit 120 # it says which NICs transfers go by
expect '^run 4: .*, real, ' "$here/out"
expect ' of 10 requests went the same way' "$here/out"
sql_is "$db" 'SELECT count(*) FROM request AS a JOIN request AS b USING (request, prompt_tokens, output_tokens)
    WHERE a.run_id = 3 AND b.run_id = 4 AND b.arrived_ns >= a.arrived_ns' 10

# Every node makes the calls that it made; one of another configuration does not, and the first other call is told.
answers replay-events 1 "$here/events" --db "$db"
[ "$(grep -c 'the same calls$' "$here/out")" = 5 ] || fail "$(cat "$here/out")"
refused 'holds no recording' replay-events 1 "$here" --db "$db"
refused 'run 3 was simulated' replay-events 3 "$here/events" --db "$db"
answers run "$scenario" --backend real --provider shm --limit 120 --db "$db" "${few[@]}" --set pools.prefill.chunk=16
status 1 replay-events last "$here/events" --db "$db"
expect '^prefill-[01] .*other calls$' "$here/out"
expect '^first difference at event [0-9]*, prefill-[01]:' "$here/out"
expect '^  recorded at [0-9]* ns: batch group=0 decoding=0 prefill_tokens=[0-9]*$' "$here/out"
expect '^  replayed at [0-9]* ns: batch group=0 decoding=0 prefill_tokens=16$' "$here/out"
