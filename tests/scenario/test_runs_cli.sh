#!/usr/bin/env bash
# tandem runs, show, rm, gc: what a database holds is listed, shown as it was shown, deleted whole, and its number not
# used again.
source "$1/tests/scenario/cli.bash"
db=(--db "$here/a.db")
sed 's|vary = .*||' "$root/tests/data/run-small.lua" > "$here/run-small.lua"
for seed in 1 2 3; do
    answers run "$here/run-small.lua" "${db[@]}" --seed "$seed"
    cp "$here/out" "$here/run-$seed"
done
answers runs "${db[@]}" --format csv
[ "$(cut -d, -f1,2,4 "$here/out" | tail -n +2 | tr '\n' ' ')" = '3,run-small,3 2,run-small,2 1,run-small,1 ' ] ||
    fail "$(cat "$here/out")"
answers runs "${db[@]}" --limit 1 --format json
expect '"run": 3' "$here/out"
! grep -q '"run": 2' "$here/out" || fail 'more than one'
answers runs "${db[@]}" --scenario nobody --format csv
[ "$(wc -l < "$here/out")" = 1 ] || fail "$(cat "$here/out")"

answers show run-small/2 "${db[@]}"
cmp "$here/out" "$here/run-2" || fail 'shown otherwise than it was'

answers rm last 1 "${db[@]}"
expect '^run 3 deleted$' "$here/out"
answers runs "${db[@]}" --format csv
[ "$(tail -n +2 "$here/out" | cut -d, -f1)" = 2 ] || fail "$(cat "$here/out")"
refused 'holds no run 3' rm 3 "${db[@]}"
answers run "$here/run-small.lua" "${db[@]}" --seed 3
expect '^run 4: ' "$here/out"

before=$(stat -c %s "$here/a.db")
answers gc "${db[@]}" --older-than 0
expect '^2 runs deleted$' "$here/out"
[ "$(stat -c %s "$here/a.db")" -lt "$before" ] || fail 'the file is as large as it was'
[ "$(sqlite3 "$here/a.db" 'SELECT count(*) FROM request, scenario')" = 0 ] || fail 'something is left'
sqlite3 "$here/a.db" 'PRAGMA user_version = -3'
refused 'the schema version is -3' runs "${db[@]}"
sqlite3 "$here/a.db" 'PRAGMA user_version = 2'
refused 'cannot be brought from schema version 2' runs "${db[@]}"

# A run beside what a benchmark measured, whichever comes first.
answers run "$here/run-small.lua" --db "$here/b.db"
for order in "1 $root/tests/data/benchmarks/vllm.json" "$root/tests/data/benchmarks/vllm.json last"; do
    # shellcheck disable=SC2086
    answers compare $order --db "$here/b.db" --format csv
    [ "$(sed -n 1p "$here/out")" = metric,measured,predicted,difference,relative_percent ] || fail "$(cat "$here/out")"
    [ "$(grep -c '^requests,4,\|^ttft_ms.p99,150.000,' "$here/out")" = 2 ] || fail "$(cat "$here/out")"
done
answers compare 1 "$root/tests/data/benchmarks/sglang.jsonl" --db "$here/b.db"
expect 'of sglang.bench_serving, the last of its 2 results' "$here/out"
expect 'not the same load: 80 prompt tokens were measured' "$here/out"
echo "{}" > "$here/other.json"
refused "no result of a benchmark that is known" compare 1 "$here/other.json" --db "$here/b.db"
