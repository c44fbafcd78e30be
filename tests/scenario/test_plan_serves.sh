#!/usr/bin/env bash
# The cheapest deployment that serves a rate: nothing that is run beside it serves the rate for less; aggregated workers
# are candidates of every count; the decision says one thing, within its width, and is shown again without a search.
source "$1/tests/scenario/cli.bash"
scenario="$root/tests/data/plan-serve-rate.lua"
db="$here/plan.db"

# value KEY: of the recommendation.
value() {
    sed -n '/^  "recommendation": {/,/^  }/p' "$here/json" |
        sed -n "s/^    \"$1\": \(.*[^,]\),\{0,1\}\$/\1/p" | tr -d '"'
}

status 0 plan "$scenario" --db "$db" --format json
cp "$here/out" "$here/json"
[ "$(value serving)" = aggregated ] || fail "recommended is $(value candidate), which is not aggregated"
[ "$(value nodes)" -le 5 ] || fail "recommended are $(value nodes) nodes; five serve the rate"
awk -v cost="$(value usd_per_hour)" 'BEGIN { exit !(cost <= 52.0) }' || fail "\$$(value usd_per_hour)/h; \$52.00/h do"
# Dollars a million tokens at the rate that is asked, which is not the most that it serves.
awk -v a="$(value usd_per_mtok_asked)" -v m="$(value usd_per_mtok)" -v r="$(value max_rate_per_s)" \
    'BEGIN { d = a * 24 / (m * r); exit !(d > 0.999 && d < 1.001) }' ||
    fail "dollars a million tokens at the rate asked: $(value usd_per_mtok_asked)"

# The rival, run: nine and ten workers serve the rate within the targets; eight, a node less, do not.
serves() {
    "$TANDEM" run "$scenario" --db "$here/run.db" --format json --set plan=nil \
        --set "pools={ mixed = pool { role = 'mixed', machine = require 'hardware.h100', count = $1, \
            shardings = { { tensor = 4 } }, engine = 'vllm', token_budget = 512 } }" \
        --set "load=trace { file = 'service-3000.csv.xz', format = 'csv', rate = per_second(24) }" > "$here/run" 2>&1
}
serves 10 || fail "ten workers miss: $(cat "$here/run")"
serves 9 || fail "nine workers miss: $(cat "$here/run")"
! serves 8 || fail "eight workers on four nodes serve the rate, and are cheaper than what is recommended"

# ---- One decision ----

for width in 80 100 120 200; do
    COLUMNS=$width status 0 plan "$scenario" --db "$db"
    [ "$(sed '/^Ranked/q' "$here/out" | awk '{ if (length > most) most = length } END { print most }')" -le 89 ] ||
        fail "a line of the decision is 90 columns or longer"
    [ "$(awk '{ if (length > most) most = length } END { print most }' "$here/out")" -le $width ] ||
        fail "a line is longer than $width columns"
    [ "$(grep -c '^Deploy ' "$here/out")" = 1 ] || fail "not one recommendation"
    expect "^> $(value candidate) " "$here/out"
    cmp "$root/tests/golden/plan-width-$width.txt" "$here/out" || {
        [ -n "${TANDEM_BLESS:-}" ] ||
            fail "plan-width-$width.txt: $(diff "$root/tests/golden/plan-width-$width.txt" "$here/out")"
        cp "$here/out" "$root/tests/golden/plan-width-$width.txt"
    }
done
for line in Deploy Serves Costs 'Bound by' 'Sure?' 'Measure next' Runner-up Disaggregated; do
    expect "^$line  " "$here/out"
done
expect '^Ranked by the fewest dollars an hour' "$here/out"
COLUMNS=120 status 0 plan "$scenario" --db "$db" --top 2
[ "$(sed -n '/^  candidate/,/ more: --top/p' "$here/out" | grep -c '^[> ] [0-9]')" = 2 ] ||
    fail "--top 2 shows other than two rows"
expect 'more: --top' "$here/out"

# ---- The same facts in every format, without a search where they are stored ----

probes="$(sql "$db" 'SELECT count(*) FROM probe')"
status 0 plan "$scenario" --stored --db "$db" --format json
cmp "$here/json" "$here/out" || fail "the stored plan is another"
sql_is "$db" 'SELECT count(*) FROM probe' "$probes"
refused 'holds no plan of it' plan "$scenario" --stored --db "$db" --set 'plan.rate=per_second(25)'

status 0 plan "$scenario" --stored --db "$db" --format csv
python3 "$root/tests/support/csv_is_json.py" "$here/json" "$here/out" plan || fail "CSV is not JSON"
sed -n 's/^      "saturation": \([0-9.]*\),*/\1/p' "$here/json" | awk '$1 > 1 { exit 1 }' ||
    fail "more than 100 % of the most"

# ---- What varies ----

status 0 plan "$scenario" --db "$db" --set 'plan.nodes=5' \
    --set 'vary={ ["plan.rate"] = { per_second(6), per_second(12) } }'
expect '^plan.rate .*deploy' "$here/out"
[ "$(grep -c '^per_second' "$here/out")" = 2 ] || fail "not a row a point: $(cat "$here/out")"
points=(plan "$scenario" --stored --db "$db" --set 'plan.nodes=5'
    --set 'vary={ ["plan.rate"] = { per_second(6), per_second(12) } }')
status 0 "${points[@]}" --format json
cp "$here/out" "$here/points"
status 0 "${points[@]}" --format csv
python3 "$root/tests/support/csv_is_json.py" "$here/points" "$here/out" plan || fail "CSV of points is not JSON"

# ---- Missed ----

status 1 plan "$scenario" --db "$db" --set 'plan.nodes=2'
expect '^Deploy  *nothing' "$here/out"
expect 'deploy nothing. No candidate serves 24.00 requests/s: the most is .* % too little' "$here/err"
