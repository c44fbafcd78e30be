#!/usr/bin/env bash
# Public reports, each with its right value: what windowed layers hand over (vllm#42024, #35758), tokens a step where
# acceptance is known by place (vllm#48892).
source "$1/tests/scenario/cli.bash"
ln -s "$root"/scenarios/* "$here/"

# gpt-oss-120b looks back 128 tokens in half of its layers: 100,000 tokens are 3.7 GB, and not twice that.
cat > "$here/window.lua" << 'END'
local h200 = require "hardware.h200"
return scenario {
  question = "What do layers that look back 128 tokens hand over?",
  model = require "models.gpt-oss-120b",
  pools = { prefill = pool { role = "prefill", machine = h200, shardings = { { tensor = 8 } }, engine = "vllm" },
            decode = pool { role = "decode", machine = h200, shardings = { { tensor = 2 } }, engine = "vllm" } },
  load = evenly { rate = per_second(0.1), requests = 10, prompt = 100000, output = 20 },
}
END
answers explain "$here/window.lua" --transfer 100000
bytes="$(sed -n 's/^bytes  *\([0-9]*\)$/\1/p' "$here/out")"
[ "$bytes" -gt 3600000000 ] && [ "$bytes" -lt 3800000000 ] || fail "100,000 tokens are $bytes bytes"

# Eight drafted tokens, accepted 76, 62, ... 24 % by place: 1 + 0.76 + 0.62 + ... = 4.5 tokens a step.
cat > "$here/draft.lua" << 'END'
local h200 = require "hardware.h200"
return scenario {
  question = "How many tokens a step, where acceptance is known by place?",
  model = require "models.deepseek-r1",
  pools = { prefill = pool { role = "prefill", machine = h200, shardings = { { tensor = 8 } } },
            decode = pool { role = "decode", machine = h200, shardings = { { tensor = 8 } },
              draft = { tokens = 8, reuse = true, acceptance = { percent(76), percent(62), percent(51), percent(42),
                percent(36), percent(31), percent(27), percent(24) } } } },
  load = evenly { rate = per_second(0.02), requests = 20, prompt = 1000, output = 2000 },
}
END
answers run "$here/draft.lua" --db "$here/draft.db" --record steps
tokens="$(sql "$here/draft.db" "SELECT round(20 * 2000.0 / sum(step.steps), 2)
    FROM step JOIN instance USING (run_id, node)
    WHERE decode_sequences > 0")"
[ -z "$tokens" ] || awk -v tokens="$tokens" 'BEGIN { exit !(tokens > 4.4 && tokens < 4.6) }' ||
    fail "$tokens tokens a step"
