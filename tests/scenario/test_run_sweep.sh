#!/usr/bin/env bash
# The runs of a sweep are one table, a row a run by what varies, in every format but JSON, which is an array of runs.
source "$1/tests/scenario/cli.bash"
sed 's|vary = .*|vary = { ["load.rate"] = { per_second(2), per_second(4), per_second(6) } },|' \
    "$root/tests/data/run-small.lua" > "$here/sweep.lua"

run() {
    status 0 run "$here/sweep.lua" --db "$here/sweep.db" "$@"
}
for width in 80 120; do
    COLUMNS=$width run
    expect '^3 runs of sweep, seed ' "$here/out"
    expect '^load.rate  ' "$here/out"
    for rate in 2 4 6; do
        [ "$(grep -c "^per_second($rate) " "$here/out")" = 1 ] || fail "not one row for $rate/s: $(cat "$here/out")"
    done
    [ "$(wc -l < "$here/out")" = 5 ] || fail "more than a table: $(cat "$here/out")"
    [ "$(awk '{ if (length > most) most = length } END { print most }' "$here/out")" -le $width ] ||
        fail "a line is longer than $width columns"
done
run --format md
[ "$(grep -c '^| per_second' "$here/out")" = 3 ] || fail "$(cat "$here/out")"

# CSV holds what JSON holds, under the same names: a row a run. Of one run likewise.
for runs in sweep.lua one.lua; do
    [ "$runs" = sweep.lua ] || sed '/vary = /d' "$here/sweep.lua" > "$here/one.lua"
    status 0 run "$here/$runs" --db "$here/sweep.db" --record transfers --format json
    cp "$here/out" "$here/json"
    status 0 run "$here/$runs" --db "$here/sweep.db" --record transfers --format csv
    python3 "$root/tests/support/csv_is_json.py" "$here/json" "$here/out" || fail "CSV is not JSON"
done
[ "$(sed -n 1p "$here/out" | cut -d, -f1-2)" = scenario,seed ] || fail "$(sed -n 1p "$here/out")"
