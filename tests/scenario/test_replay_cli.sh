#!/usr/bin/env bash
# replay from the outside, in simulation: a run played again is the same run; profiles in place of machines; refusals.
source "$1/tests/scenario/cli.bash"
scenario="$root/scenarios/real-gqa-2p2d.lua"
profile="$root/tests/data/steps-tiny.lua"
db="$here/replay.db"

# ---- A profile in place of a machine ----

answers explain "$scenario" --hardware "host=$profile"
expect '^pools.decode.machine.name *"measured by hand" *.*steps-tiny.lua:3$' "$here/out"
expect '^pools.prefill.machine.steps.1.prefill.time.3 *{ns(5900000), ns(6500000)} ' "$here/out"
expect '^pools.prefill.machine.steps.2.decode.sequences *{1, 16} ' "$here/out"
refused 'nothing requires "hardware.h100"' explain "$scenario" --hardware "h100=$profile"
refused 'must have the form NAME=FILE' explain "$scenario" --hardware "$profile"
refused 'No such file' explain "$scenario" --hardware "host=$here/absent.lua"
refused 'no prefill steps of tiny-gqa with TP1 were measured.*tandem calibrate' run "$scenario" --db "$db" \
    --hardware "host=$profile" --set 'pools.prefill.shardings={{tensor=1}}'
refused 'no steps of tiny-gqa with TP4 were measured.*tandem calibrate' run "$scenario" --db "$db" \
    --hardware "host=$profile" --set 'pools.prefill.shardings={{tensor=4}}'
sed 's/tokens = { 1, 16, 128 }/tokens = { 1, 128, 16 }/' "$profile" > "$here/wrong.lua"
refused 'wrong.lua:[0-9]*: .*steps.1.prefill.tokens.3: must be at least 129, not 16' explain "$scenario" \
    --hardware "host=$here/wrong.lua"
sed 's/{ us(400), us(600) }, { us(900)/{ us(400) }, { us(900)/' "$profile" > "$here/wrong.lua"
refused 'steps.1.prefill.time.1: a time for each of the 2 columns is wanted' explain "$scenario" \
    --hardware "host=$here/wrong.lua"
sed '/^  steps = {/,/^  },/d' "$profile" > "$here/wrong.lua"
refused 'machine.gpu: missing; .*or steps that' explain "$scenario" --hardware "host=$here/wrong.lua"

# ---- A run played again ----

(cd "$here" && cp "$profile" profile.lua)
hash() {
    grep -o 'run '"$1"':.*trace hash [0-9a-f]*' "$here/out" | head -n 1 | grep -o '[0-9a-f]*$'
}
# same OPTION...: runs it, plays it again, and expects every decision at the same instant.
runs=0
same() {
    answers run "$scenario" --db "$db" --hardware "host=$here/profile.lua" "$@"
    runs=$((runs + 1))
    answers replay "$runs" --db "$db" --backend sim
    expect '^the same decisions at the same times' "$here/out"
    [ "$(hash "$runs")" = "$(hash "$((runs + 1))")" ] || fail "played again, another trace: $*"
    runs=$((runs + 1))
    sql_is "$db" "SELECT replay_of FROM run WHERE id = $runs" "$((runs - 1))"
}
same --record steps,transfers
same --seed 5 --set 'load.abort_share=percent(50)' --set 'load.abort_within=ms(20)' --set expect=nil
same --set 'load=burst{rate=per_second(30),size=4,requests=40,prompt=uniform(1,200),output=uniform(1,40)}' \
    --set expect=nil
# Asked again it is a check of what is stored; a replay can be replayed.
answers replay 1 --db "$db" --backend sim
sql_is "$db" 'SELECT count(*) FROM run' 6
answers replay 2 --db "$db" --backend sim
expect '^the same decisions' "$here/out"
sql_is "$db" 'SELECT count(*) FROM run' 7
# A closed loop comes when it came: its requests and their spans are the same.
answers run "$scenario" --db "$db" --hardware "host=$here/profile.lua" --set expect=nil --set \
    'load=closed{concurrency=3,requests=30,prompt=uniform(1,100),output=uniform(1,20)}'
answers replay last --db "$db" --backend sim --format json
expect '"completed": 30' "$here/out"
# On another machine: what differs is told request by request, and where the traces part.
answers replay 1 --db "$db" --backend sim --set 'pools.decode.machine.message=us(300)'
expect '^first difference.* at trace record' "$here/out"
expect '^prefill_queue .* 0.100 .* 0.300 .* 200.0' "$here/out"
expect '^decode  *0  *1  *64 ' "$here/out"
sql_is "$db" 'PRAGMA foreign_key_check' ''

# ---- Refusals ----

refused 'holds no run 99' replay 99 --db "$db" --backend sim
refused 'has the seed of its run' replay 1 --db "$db" --seed 2
refused 'request 0 has .* tokens now and had .* in run 1' replay 1 --db "$db" --backend sim --set \
    'load.prompt=uniform(1,50)'
sed -i 's/us(900)/us(901)/' "$here/profile.lua"
refused 'real-gqa-2p2d.lua: has changed since run 1' replay 1 --db "$db" --backend sim
sql_is "$db" 'PRAGMA foreign_key_check' ''
