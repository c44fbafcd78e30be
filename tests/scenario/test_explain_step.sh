#!/usr/bin/env bash
# explain --step: its parts add up to the step as simulated, of every model that is shipped in every sharding that fits
# it; and on a machine whose GPU is not as it was measured nothing is called measured.
source "$1/tests/scenario/cli.bash"
scenarios="$root/scenarios"

# explained MACHINE MODEL SHARDING STEP...: leaves the answers in $here/steps, one a line; false where it does not fit.
explained() {
    local machine="$1" model="$2" sharding="$3"
    shift 3
    cat > "$here/one.lua" << END
return scenario {
  question = "What is a step made of?",
  model = require "models.$model",
  pools = { workers = pool { role = "mixed", machine = $machine, shardings = { $sharding },
                             engine = require "engines.vllm" } },
  load = poisson { rate = per_second(1), requests = 10, prompt = 1000, output = 100 },
}
END
    for step in "$@"; do
        "$TANDEM" explain "$here/one.lua" --step "$step" --format csv > "$here/out" 2> "$here/err" || return 1
        cat "$here/out" >> "$here/steps"
    done
}

ln -s "$scenarios"/* "$here/"
shown=0
for file in "$scenarios"/models/*.lua; do
    model="$(basename "$file" .lua)"
    fits=0
    for sharding in '{ tensor = 1 }' '{ tensor = 2 }' '{ tensor = 8 }' '{ tensor = 4, pipeline = 2 }' \
        '{ data = 8, expert = 8 }' '{ tensor = 2, data = 4, expert = 8 }' '{ tensor = 16 }' \
        '{ data = 32, expert = 32 }'; do
        : > "$here/steps"
        explained 'require "hardware.h200"' "$model" "$sharding" 1,500 16,2048 prefill:3000,5000 || continue
        fits=$((fits + 1))
        # The part's name is quoted where it has a comma; a title begins with #.
        awk -v what="$model $sharding" -F, '
            /^#/ || /^operator,/ { next }
            { name = $0; rest = $0
              if (sub(/^"[^"]*",/, "", rest) == 0) sub(/^[^,]*,/, "", rest)
              split(rest, cell, ",")
              if (name ~ /^"?step, as simulated/) {
                  steps++
                  if (sum - cell[3] > 1e-6 || cell[3] - sum > 1e-6) {
                      print what ": parts come to " sum ", the step to " cell[3]
                      bad = 1
                  }
                  sum = 0
              } else sum += cell[3] }
            END { if (steps != 3) { print what ": " steps " steps"; bad = 1 } exit bad }' "$here/steps" ||
            fail "the parts do not add up"
        shown=$((shown + 1))
    done
    [ "$fits" -gt 0 ] || [ -s "$here/err" ] || fail "$model: shown in no sharding, without a word"
done
[ "$shown" -gt 60 ] || fail "only $shown pairs were shown"

# ---- Machines that are not as they were measured ----

for gpu in h100 h200 b200 gb200 a100-80g; do
    : > "$here/steps"
    explained "require \"hardware.$gpu\"" llama-3.1-8b '{ tensor = 4 }' 16,2048 || fail "$gpu: $(cat "$here/err")"
    grep -q ',measured,' "$here/steps" || fail "$gpu: nothing was measured: $(cat "$here/steps")"
    for rate in 'memory_bandwidth = TB_s(2)' 'bf16 = TFLOPS(700)' 'fp8 = TFLOPS(1500)' 'nvlink = GB_s(100)'; do
        : > "$here/steps"
        explained "with(require \"hardware.$gpu\", { $rate })" \
            llama-3.1-8b '{ tensor = 4 }' 16,2048 || fail "$gpu with $rate: $(cat "$here/err")"
        ! grep -q ',measured,' "$here/steps" || fail "$gpu with $rate: $(grep ',measured,' "$here/steps")"
    done
done
