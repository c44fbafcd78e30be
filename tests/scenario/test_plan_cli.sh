#!/usr/bin/env bash
# plan from the outside: its answer in every format, its exit statuses, and that a search which is killed or
# interrupted at any moment leaves a sound database and goes on from there to the same answer.
source "$1/tests/scenario/cli.bash"
scenario="$root/tests/data/plan-small.lua"
plan() {
    status 0 plan "$scenario" --db "$here/plan.db" "$@"
}

# ---- Formats ----

plan --format json
cp "$here/out" "$here/whole"
for key in scenario rule candidates left_out frontier recommendation; do
    expect "^  \"$key\": " "$here/whole"
done
for key in prefill decode sharding nodes max_rate_per_s goodput_per_gpu_per_s ttft_ms tpot_ms usd_per_mtok saturation \
    bound_by; do
    expect "^      \"$key\": " "$here/whole"
done
for key in candidate serving prefill decode sharding usd_per_hour certain ties measure error alternative_may_win \
    runner_up alternative decision; do
    expect "^    \"$key\": " "$here/whole"
done
# The error of the model is part of the answer: of the best one it makes a span.
expect '"certain": \(true\|false\)' "$here/whole"
expect '"rate_model_low_per_s": [0-9]' "$here/whole"
expect 'Validated, prefill steps take' "$here/whole"
expect '"interrupted": false' "$here/whole"
for left in wal shm lock; do
    [ ! -e "$here/plan.db-$left" ] || fail "plan.db-$left is left over"
done
sound "$here/plan.db"
sql_is "$here/plan.db" "SELECT count(*) FROM finding WHERE kind = 'recommendation' AND run_id IS NOT NULL" 1
sql_is "$here/plan.db" "SELECT count(*) FROM run WHERE kind = 'report'" 2
probes="$(sql "$here/plan.db" 'SELECT count(*) FROM probe')"

plan --format json
cmp "$here/whole" "$here/out" || fail "the same plan, asked again, has another answer"
sql_is "$here/plan.db" 'SELECT count(*) FROM probe' "$probes"
rm "$here/plan.db"
plan --format json --threads 1
cmp "$here/whole" "$here/out" || fail "one thread has another answer"

plan
expect '^  candidate  *nodes' "$here/out"
expect '^Deploy  *[0-9]' "$here/out"
expect '^> [0-9]' "$here/out"
plan --format md
expect '^| candidate ' "$here/out"
expect '^- \*\*Deploy:\*\* [0-9]' "$here/out"
plan --format csv
expect '^candidate,recommended,serving,prefill,decode,sharding,nodes,gpus,kv_over,max_rate_per_s' "$here/out"
cp "$here/out" "$here/csv"
plan --format json
python3 "$root/tests/support/csv_is_json.py" "$here/out" "$here/csv" plan || fail "CSV is not JSON"

# show: the plan, without a search; a number is the run behind it.
probes="$(sql "$here/plan.db" 'SELECT count(*) FROM probe')"
for format in text md csv json; do
    plan --format "$format"
    cp "$here/out" "$here/planned"
    for name in last plan-small; do
        answers show "$name" --db "$here/plan.db" --format "$format"
        cmp "$here/planned" "$here/out" || fail "show $name shows another plan as $format"
    done
done
sql_is "$here/plan.db" 'SELECT count(*) FROM probe' "$probes"
answers show 1 --db "$here/plan.db"
expect '^run 1: plan-small, ' "$here/out"
refused "holds no run 'nobody'" show nobody --db "$here/plan.db"

# What varies is each of its values, also one alone; what a plan finds itself does not vary.
"$TANDEM" plan "$scenario" --db "$here/vary.db" --set plan.nodes=1 --format json | sed '/"params"/,$d' > "$here/set"
status 0 plan "$scenario" --db "$here/vary.db" --set 'vary={ ["plan.nodes"] = { 1 } }' --format json
sed '/"params"/,$d' "$here/out" | cmp - "$here/set" || fail "one value that varies is not that value"
expect '"plan.nodes": "1"' "$here/out"
refused 'vary.load.rate: a plan finds the rates itself' plan "$root/tests/data/run-small.lua" --db "$here/vary.db"
status 0 plan "$root/tests/data/run-small.lua" --db "$here/vary.db" --set vary=nil

# The run behind the verdict is what `last` is, and not a probe.
answers compare last last --db "$here/plan.db"
expect 'run [0-9]*: plan-small' "$here/out"
status 0 compare last last~1 --db "$here/plan.db"
expect "the planner's" "$here/out"

# ---- Exit statuses ----

refused 'nearest: --threads' plan "$scenario" --thread 2
refused "unknown path" plan "$scenario" --db "$here/plan.db" --set lod.rate=3
sed 's/tensor = 4/tensr = 4/' "$scenario" > "$here/bad.lua"
refused "bad.lua:[89]: pools[.].*did you mean 'tensor'" plan "$here/bad.lua" --db "$here/plan.db"
refused 'closed loop' plan "$scenario" --db "$here/plan.db" --set \
    'load=closed { concurrency = 4, requests = 100, prompt = 100, output = 10 }'
refused 'none.csv' plan "$scenario" --db "$here/plan.db" --errors "$here/none.csv"
refused 'needs targets' plan "$scenario" --db "$here/plan.db" --set 'targets={}'
refused 'No such file' plan "$here/none.lua" --db "$here/plan.db"
sed 's/max_rate_per_s > 10,/max_rate_per_s > 100000,/' "$scenario" > "$here/greedy.lua"
status 1 plan "$here/greedy.lua" --db "$here/plan.db"
expect 'greedy.lua:[0-9]*: .*some ratio serves' "$here/err"
expect '^Deploy ' "$here/out"

# What does not fit is not a matter of targets.
sed '/expect_plan/,/^  end,/d' "$scenario" > "$here/plain.lua"
status 1 plan "$here/plain.lua" --db "$here/plan.db" --format json \
    --set 'pools.decode.machine=with(require "hardware.h100", { memory = GiB(4) })' --set 'plan.compare_mixed=false'
expect '"bound_by": "model does not fit"' "$here/out"
expect '"deploy": "nothing. No candidate can be deployed. ' "$here/out"
status 1 plan "$here/plain.lua" --db "$here/plan.db" --set 'targets={ ttft { p = 95, below = ms(1) } }'
expect 'No candidate meets the targets at any rate' "$here/err"

# ---- Databases ----

mkdir "$here/folder"
refused "folder: " plan "$scenario" --db "$here/folder"
refused "none/x.db" plan "$scenario" --db "$here/none/x.db"
head -c 20000 "$scenario" > "$here/text.db"
refused "text.db: .*not a .*database" plan "$scenario" --db "$here/text.db"
cmp -s "$here/text.db" "$scenario" || fail "a file that is no database was changed"
cp "$here/plan.db" "$here/cut.db"
truncate -s 9000 "$here/cut.db"
refused "cut.db" plan "$scenario" --db "$here/cut.db"

# A second writer is told that there is a first one. The first is stopped where it holds the lock.
rm -f "$here/busy.db"
"$TANDEM" plan "$scenario" --db "$here/busy.db" --threads 1 > "$here/first" 2>&1 &
first=$!
while [ ! -s "$here/busy.db" ] && kill -0 "$first" 2> "$here/err"; do
    sleep 0.01
done
if kill -STOP "$first" 2> "$here/err" && [ -e "$here/busy.db-lock" ]; then
    refused 'busy.db: .*writ' run "$root/tests/data/run-small.lua" --db "$here/busy.db"
fi
kill -CONT "$first" 2> "$here/err" || true
wait "$first" || fail "the first writer: $(cat "$here/first")"

# ---- Killed, interrupted, resumed ----

seed="${TANDEM_TEST_SEED:-$(date +%s)}"
echo "killing with seed $seed"
RANDOM=$((seed % 32768))
rm -f "$here/plan.db"
started="$(date +%s%N)"
plan --format json
took_ms=$((($(date +%s%N) - started) / 1000000 + 1))
rm -f "$here/plan.db"
resumed=0
for turn in $(seq 18); do
    "$TANDEM" plan "$scenario" --db "$here/plan.db" --format json > "$here/killed" 2> "$here/err" &
    writer=$!
    # Two of three once the search has begun, the others at any moment. Most of them early: what is stored makes the
    # rest of the search shorter each time.
    while [ $((turn % 3)) != 2 ] && [ ! -s "$here/plan.db" ] && kill -0 "$writer" 2> "$here/err"; do
        sleep 0.002
    done
    sleep "$(awk "BEGIN { print ($RANDOM % 1000) * $took_ms / 2e6 }")"
    kill -9 "$writer" 2> "$here/err" || true
    killed=0
    wait "$writer" 2> /dev/null || killed=$?
    [ -e "$here/plan.db" ] || continue
    if [ "$killed" = 0 ]; then
        cmp "$here/whole" "$here/killed" || fail "turn $turn of seed $seed: another answer"
        rm -f "$here"/plan.db*
    elif [ -s "$here/plan.db" ]; then
        sound "$here/plan.db"
        "$TANDEM" compare last last --db "$here/plan.db" > "$here/out" 2> "$here/err" ||
            expect 'fewer runs are stored\|holds no results' "$here/err"
        resumed=$((resumed + 1))
        # Now and then, on from here to the end.
        if [ $((turn % 3)) = 0 ]; then
            plan --format json
            cmp "$here/whole" "$here/out" || fail "turn $turn of seed $seed: resumed, another answer"
            sql_is "$here/plan.db" 'SELECT count(*) FROM probe' "$probes"
            rm -f "$here"/plan.db*
        fi
    fi
done
[ "$resumed" -ge 5 ] || fail "only $resumed kills hit a search"

# Interrupted, it keeps what is complete, says so, leaves one file, and what it kept is what the next one uses.
rm -f "$here"/plan.db*
interrupted=0
for turn in 1 2 3 4 5 6; do
    "$TANDEM" plan "$scenario" --db "$here/plan.db" --threads 1 > "$here/out" 2> "$here/err" &
    writer=$!
    # Some probes are stored, the search is not over.
    while kill -0 "$writer" 2> /dev/null; do
        [ "$(sql "$here/plan.db" 'SELECT count(*) > 2 FROM probe' 2> /dev/null)" != 1 ] || break
        sleep 0.002
    done
    kill -INT "$writer" 2> /dev/null || true
    got=0
    wait "$writer" || got=$?
    [ "$got" = 130 ] && [ -e "$here/plan.db" ] && interrupted=1 && break
    [ "$got" = 0 ] || [ "$got" = 130 ] || fail "interrupted: status $got: $(cat "$here/err")"
    rm -f "$here"/plan.db*
done
[ "$interrupted" = 1 ] || fail "no search was interrupted"
expect 'Interrupted' "$here/out"
sound "$here/plan.db"
[ ! -e "$here/plan.db-wal" ] || fail "an interrupted search leaves a log"
sql "$here/plan.db" "UPDATE probe SET measured = json_set(measured, '\$.kv_peak', 777)"
marked="$(sql "$here/plan.db" 'SELECT count(*) FROM probe')"
plan --format json
if [ -n "$marked" ] && [ "$marked" -gt 10 ]; then
    expect '"kv_peak": 0.777' "$here/out"
fi
sql_is "$here/plan.db" "SELECT count(*) FROM probe WHERE json_extract(measured, '\$.kv_peak') = 777" "$marked"
