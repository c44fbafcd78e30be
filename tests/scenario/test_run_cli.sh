#!/usr/bin/env bash
# run and compare from the outside: single runs and sweeps, what is stored, repetition as a check, where two runs part.
source "$1/tests/scenario/cli.bash"
scenario="$root/tests/data/run-small.lua"
db="$here/run.db"
one=(run "$scenario" --db "$db" --set 'load.rate=per_second(5)')

# ---- A run ----

answers "${one[@]}" --format json
cp "$here/out" "$here/one"
for key in scenario seed backend trace_hash requests completed rejected failed duration_s goodput_per_s ttft_ms \
    tpot_ms itl_ms e2e_ms spans_ms instances; do
    expect "^  \"$key\": " "$here/one"
done
answers "${one[@]}" --format json # a check of the stored one
cmp "$here/one" "$here/out" || fail "the same run, asked again, has another answer"
sql_is "$db" 'SELECT count(*) FROM run' 1
answers "${one[@]}" --seed 2 --format json
! cmp -s "$here/one" "$here/out" || fail "another seed has the same answer"
expect '"seed": 2' "$here/out"
sql_is "$db" 'SELECT count(*) FROM run' 2
answers "${one[@]}"
expect '^run 1: run-small, load.rate=per_second(5), seed 1' "$here/out"
answers "${one[@]}" --format md
expect '^| *200' "$here/out"
answers "${one[@]}" --format csv
expect ',' "$here/out"

# ---- Recordings ----

sql_is "$db" 'SELECT count(*) FROM transfer' 0
answers "${one[@]}" --record transfers,steps
sql_is "$db" 'SELECT count(*) FROM transfer' 200
sql_is "$db" "SELECT count(*) > 200 FROM step" 1
sound "$db"
sql_is "$db" 'SELECT count(*) FROM run' 2
refused "trnsfers is unknown" "${one[@]}" --record trnsfers

# ---- Sweeps ----

answers run "$scenario" --db "$here/sweep1.db" --threads 1 --format json
cp "$here/out" "$here/sweep"
[ "$(grep -c '"trace_hash"' "$here/sweep")" = 3 ] || fail "a sweep over three rates has another number of runs"
answers run "$scenario" --db "$here/sweep2.db" --threads 2 --format json
cmp "$here/sweep" "$here/out" || fail "two threads have another answer than one"
answers run "$scenario" --db "$here/sweep2.db" --threads 1 --format json # a check across threads
cmp "$here/sweep" "$here/out" || fail "repeated, another answer"
sql_is "$here/sweep2.db" 'SELECT count(*) FROM run' 3
# A value of the sweep, set by hand, is the same run.
answers run "$scenario" --db "$here/sweep2.db" --set 'load.rate=per_second(5)'
sql_is "$here/sweep2.db" 'SELECT count(*) FROM run' 3
sql_is "$here/sweep2.db" "SELECT count(*) FROM run_param WHERE path = 'load.rate'" 3

# ---- Expectations ----

sed 's/r.completed == 200/r.completed == 201/' "$scenario" > "$here/wrong.lua"
status 1 run "$here/wrong.lua" --db "$db" --set 'load.rate=per_second(5)' --format json
expect 'wrong.lua:[0-9]*: .*every request completes' "$here/err"
expect '"completed": 200' "$here/out"
sed 's/r.completed/r.complete/' "$scenario" > "$here/broken.lua"
status 2 run "$here/broken.lua" --db "$db" --set 'load.rate=per_second(5)'
expect "completed" "$here/err"

# ---- Comparing ----

answers "${one[@]}"
answers compare last last --db "$db"
expect 'the same decisions at the same times' "$here/out"
answers "${one[@]}" --set messenger.handoffs_max=1
answers compare last~1 last --db "$db"
expect '^first difference at trace record [0-9]*, ' "$here/out"
expect '^  both at [0-9]* ns: ' "$here/out"
[ "$(grep -c '^  run [0-9]* at [0-9]* ns: \(front\|prefill-0\|decode-0\) ' "$here/out")" = 2 ] ||
    fail "no two sides: $(cat "$here/out")"
answers compare last~1 last --db "$db" --format json
expect '"record": [0-9]' "$here/out"
answers compare run-small/1 run-small/2 --db "$db" --format csv
expect '^metric,' "$here/out"
refused "holds no run of a scenario 'run-smal'; nearest: 'run-small'" compare run-smal last --db "$db"
refused 'fewer runs are stored' compare last~100 last --db "$db"
refused 'no results database' compare last last --db "$here/none.db"

# ---- Interrupted ----

rm -f "$here"/long.db*
"$TANDEM" run "$scenario" --db "$here/long.db" --set load.requests=3000000 --set 'load.rate=per_second(10)' \
    > "$here/out" 2> "$here/err" &
writer=$!
while [ ! -s "$here/long.db" ] && kill -0 "$writer" 2> /dev/null; do
    sleep 0.01
done
kill -INT "$writer"
got=0
wait "$writer" || got=$?
[ "$got" = 130 ] || fail "an interrupted run: status $got, $(cat "$here/err")"
sound "$here/long.db"
sql_is "$here/long.db" 'SELECT count(*) FROM run' 0
[ ! -e "$here/long.db-wal" ] || fail "an interrupted run leaves a log"
