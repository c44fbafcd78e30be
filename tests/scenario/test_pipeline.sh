#!/usr/bin/env bash
# Pipeline stages, from a file to its answer: what a prompt that is alone takes, and what chunks and stages make of it.
# shellcheck source=tests/scenario/cli.bash
source "$(dirname "$0")/cli.bash"

cat > "$here/lone.lua" << 'END'
local h200 = require "hardware.h200"
return scenario {
  question = "One prompt, alone, on one prefiller",
  model = require "models.llama-3.1-8b",
  pools = { prefill = pool { role = "prefill", machine = h200, shardings = { { tensor = 1 } } },
            decode = pool { role = "decode", machine = h200, shardings = { { tensor = 8 } } } },
  load = evenly { rate = per_second(0.05), requests = 3, prompt = 4096, output = 10 },
}
END

# prefill ARGUMENT...: mean time of a prompt in microseconds
prefill() {
    answers run "$here/lone.lua" --db "$here/runs.db" --format json "$@"
    awk '/"prefill": \{/ { inside = 1 } inside && /"mean"/ { gsub(/[^0-9.]/, ""); printf "%d\n", $0 * 1000; exit }' \
        "$here/out"
}

# over STAGES [ARGUMENT...]
over() {
    prefill --set "pools.prefill.shardings={{pipeline=$1}}" "${@:2}"
}

# A prompt that goes in one chunk is no faster over more stages, and four of them are no match for four ranks.
one="$(over 1)"
for stages in 2 4 8; do
    took="$(over $stages)"
    [ "$took" -ge $((one * 98 / 100)) ] || fail "a lone chunk takes $took us over $stages stages, $one over one"
done
tensor="$(prefill --set 'pools.prefill.shardings={{tensor=4}}')"
[ "$tensor" -lt $((one / 2)) ] || fail "TP4 takes $tensor us"
[ "$(over 4)" -gt "$tensor" ] || fail "PP4 beats TP4 with one chunk"

# In eight chunks over four stages it takes 11 eighths of a chunk's four stage times, and what small chunks lose.
chunked="$(over 4 --set pools.prefill.token_budget=512)"
alone="$(over 1 --set pools.prefill.token_budget=512)"
expected=$((alone * 11 / 32))
[ "$chunked" -gt $((expected * 95 / 100)) ] && [ "$chunked" -lt $((expected * 115 / 100)) ] ||
    fail "eight chunks over four stages: $chunked us, expected $expected"

# 8,192 tokens of 70 billion parameters: 1.16 s at the peak of the one GPU that works at a time.
big=(--set 'model=require "models.llama-3.1-70b"' --set load.prompt=8192)
took="$(over 8 "${big[@]}")"
[ "$took" -ge 1160000 ] || fail "one chunk of 8K over eight stages takes $took us"
# In chunks of 512, (16 + 7) / 16 of the peak of all eight.
took="$(over 8 "${big[@]}" --set pools.prefill.token_budget=512)"
[ "$took" -ge $((1160000 / 8 * 23 / 16)) ] && [ "$took" -lt 1160000 ] || fail "sixteen chunks take $took us"

# The planner does not prefer stages for a speed that they do not have: a target that one chunk over four stages misses
# is met by four ranks.
cat > "$here/plan.lua" << 'END'
local h200 = require "hardware.h200"
return scenario {
  question = "Four ranks or four stages?",
  model = require "models.llama-3.1-8b",
  pools = { prefill = pool { role = "prefill", machine = h200, shardings = { { pipeline = 4 }, { tensor = 4 } } },
            decode = pool { role = "decode", machine = h200, shardings = { { tensor = 1 } } } },
  load = poisson { rate = per_second(2), requests = 200, prompt = 4096, output = 20 },
  targets = { ttft { p = 95, below = ms(85) } },
  plan = { requests = 200, seeds = 2, compare_mixed = false },
}
END
answers plan "$here/plan.lua" --db "$here/runs.db" --format json
grep -q '"candidate": "1P1D TP4 / TP1"' "$here/out" || fail "no TP4: $(cat "$here/out")"
rate="$(awk '/"candidate": "1P1D PP4 \/ TP1"/ { inside = 1 }
    inside && /"max_rate_per_s"/ { gsub(/[^0-9.]/, ""); print; exit }' "$here/out")"
case "$rate" in
"" | 0 | 0.0*) ;;
*) fail "PP4 meets a target that its chunk misses, at $rate/s" ;;
esac
