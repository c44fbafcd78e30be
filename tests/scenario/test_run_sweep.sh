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
run --format csv
[ "$(head -c 19 "$here/out")" = 'load.rate,requests,' ] || fail "$(head -n 1 "$here/out")"
[ "$(awk -F, '{ print NF }' "$here/out" | sort -u | wc -l)" = 1 ] || fail "rows of unequal length"
run --format md
[ "$(grep -c '^| per_second' "$here/out")" = 3 ] || fail "$(cat "$here/out")"
