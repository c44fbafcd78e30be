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

# Conversations: a run keeps whose turn each request was, and their prompts are what they were, whatever is answered
# when. Played again, turns come when they came.
talk=(--set "load=sessions{rate=per_second(20),requests=12,turns=uniform(2,4),think=ms(20),system=40,block=16,prompt=uniform(1,30),output=uniform(1,20),warmup_requests=4}"
    --set expect=nil --set pools.prefill.prefix_cache=true)
same_turns='SELECT count(*) FROM request AS a JOIN request AS b
    USING (request, conversation, prompt_tokens, output_tokens, warmup)'
status 0 run "$scenario" --backend real --provider shm --limit 120 --db "$db" "${talk[@]}"
answers replay 5 --db "$db" --hardware "host=$profile"
expect '^run 6: .*, sim, ' "$here/out"
sql_is "$db" "$same_turns WHERE a.run_id = 5 AND b.run_id = 6 AND a.arrived_ns = b.arrived_ns" 12
sql_is "$db" 'SELECT sum(warmup) FROM request WHERE run_id = 5' 4
sql_is "$db" 'SELECT start_ns - (SELECT arrived_ns FROM request WHERE run_id = 5 AND request = 4) BETWEEN -1000000 AND 0
    FROM run WHERE id = 5' 1
answers run "$scenario" --db "$db" --hardware "host=$profile" "${talk[@]}"
status 0 replay 7 --db "$db" --provider shm --limit 120
expect '^run 8: .*, real, ' "$here/out"
sql_is "$db" "$same_turns WHERE a.run_id = 7 AND b.run_id = 8 AND a.arrived_ns <= b.arrived_ns" 12
sql_is "$db" 'SELECT count(DISTINCT conversation) > 2 AND count(*) > count(DISTINCT conversation) FROM request
    WHERE run_id = 7' 1

# Every node makes the calls that it made; one of another configuration does not, and the first other call is told.
answers replay-events 1 "$here/events" --db "$db"
[ "$(grep -c 'the same calls$' "$here/out")" = 5 ] || fail "$(cat "$here/out")"
refused 'holds no recording' replay-events 1 "$here" --db "$db"
refused 'run 3 was simulated' replay-events 3 "$here/events" --db "$db"
answers run "$scenario" --backend real --provider shm --limit 120 --db "$db" "${few[@]}" --set pools.prefill.chunk=16
status 1 replay-events last "$here/events" --db "$db"
expect '^first difference at event [0-9]*, prefill-[01]:' "$here/out"
expect '^  both at [0-9]* ns: told of a message of [0-9]* bytes from node [34]' "$here/out"
expect '^  recorded at [0-9]* ns: batch ' "$here/out"
expect '^  replayed at [0-9]* ns: batch .* prefill_tokens=16' "$here/out"
