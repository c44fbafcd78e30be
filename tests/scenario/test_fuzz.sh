#!/usr/bin/env bash
# A slice of the swarm with seeds that nobody has tried: TANDEM_FUZZ_SECONDS of it (15), from TANDEM_FUZZ_SEED or the
# clock. The seed is printed; a failure leaves its shrunken scenario in the log. Then: a scenario that is known to go
# wrong ends as it should, and what cannot be said is refused.
set -euo pipefail
root=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
seed=${TANDEM_FUZZ_SEED:-$(date +%s%N)}
seed=$((seed % 1000000000000000))
echo "seeds from $seed; again with TANDEM_FUZZ_SEED=$seed"
status=0
"$TANDEM" fuzz --seed "$seed" --seconds "${TANDEM_FUZZ_SECONDS:-15}" --jobs 2 --out "$folder/failed.lua" || status=$?
if [ "$status" -ne 0 ]; then
    cat "$folder/failed.lua" 2> /dev/null || true
    exit 1
fi

# The same seeds give the same, in JSON, whatever the jobs.
"$TANDEM" fuzz --seed 5 --seeds 40 --jobs 1 --format json | grep -v '"wall_s"\|"seeds_per_s"' > "$folder/one.json"
"$TANDEM" fuzz --seed 5 --seeds 40 --jobs 3 --format json | grep -v '"wall_s"\|"seeds_per_s"' > "$folder/three.json"
cmp "$folder/one.json" "$folder/three.json"
grep -q '"failures": 0' "$folder/one.json"

# A fault in a scenario of one's own.
begin='^return scenario {'
faults='faults = { kill { node = "decode-0", on = "armed", nth = 3, back = s(2) } },'
sed "s|$begin|return scenario { $faults|; s|r.completed == 200|r.failed < 20|; /targets = /d" \
    "$root/tests/data/run-small.lua" > "$folder/killed.lua"
"$TANDEM" run --db "$folder/a.db" --set load.requests=20 --set 'load.rate=per_second(5)' "$folder/killed.lua" \
    > /dev/null

# What is dropped the deadline makes good, and is refused where there is none.
sed "s|$begin|return scenario { faults = { drop { skip = 3 } },|; s|r.completed == 200|r.completed == 20|;
    /targets = /d" \
    "$root/tests/data/run-small.lua" > "$folder/dropped.lua"
dropped=("$TANDEM" run --db "$folder/a.db" --set load.requests=20 --set 'load.rate=per_second(5)' "$folder/dropped.lua")
"${dropped[@]}" > /dev/null
status=0
"${dropped[@]}" --set messenger.deadline=never > /dev/null 2> "$folder/error" || status=$?
[ "$status" -eq 2 ] && grep -q 'faults.1: what is dropped' "$folder/error"

# What the swarm has found in the end of runs.
"$TANDEM" run --db "$folder/a.db" "$root/tests/data/ends-twice.lua" > /dev/null

refuse() {
    sed "s|$begin|return scenario { faults = { $1 },|" "$root/tests/data/run-small.lua" > "$folder/wrong.lua"
    status=0
    "$TANDEM" run --db "$folder/a.db" "$folder/wrong.lua" > /dev/null 2> "$folder/error" || status=$?
    if [ "$status" -ne 2 ] || ! grep -q "$2" "$folder/error"; then
        echo "faults = { $1 }: exit status $status, \"$2\" is wanted, but it says:" >&2
        cat "$folder/error" >&2
        exit 1
    fi
}
refuse 'kill { node = "decode-9" }' "faults.1.node: there is no instance 'decode-9'"
refuse 'kill { }' 'faults.1.node: missing'
refuse 'kill { node = "front" }' "there is no instance 'front'"
refuse 'cut { node = "decode-0", to = "decode-0" }' 'a prefiller and a decoder are wanted'
refuse 'late { pieces = 2 }' 'faults.1.pieces: unknown key'
refuse 'kill { node = "decode-0", on = "armd" }' "did you mean 'armed'"
refuse 'leave { }' 'faults.1.request: missing'
refuse 'kill { node = "decode-0", nth = 2 }' 'faults.1.on: missing'
refuse '17' 'kill, cut, nic'
