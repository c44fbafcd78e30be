#!/usr/bin/env bash
# Who may enter, who computes again what was preempted, and how many tokens a step yields: a run for each.
# shellcheck source=tests/scenario/cli.bash
source "$(dirname "$0")/cli.bash"
command -v sqlite3 > /dev/null || exit 0

# count SCENARIO SQL [OPTION...]: the first value of a query over the scenario's run.
count() {
    local scenario=$1 sql=$2
    shift 2
    rm -f "$here/runs.db"
    "$TANDEM" run "$scenario" --db "$here/runs.db" "$@" > "$here/out" 2> "$here/err" || true
    sqlite3 "$here/runs.db" "$sql"
}
same() {
    [ "$1" = "$2" ] || fail "$3: $1, expected $2"
}

# Conversations ask again with all that was said, found in the cache of the prefiller: a limit of 3,000 tokens takes
# their prompts of up to 6,000, and turns first prompts of 6,000 away.
cat > "$here/cached.lua" << 'END'
local h200 = require "hardware.h200"
return scenario {
  question = "Does a prompt that is mostly cached enter where a new one of its length does not?",
  model = require "models.llama-3.1-8b",
  pools = { prefill = pool { role = "prefill", machine = h200, shardings = { { tensor = 1 } } },
            decode = pool { role = "decode", machine = h200, shardings = { { tensor = 1 } } } },
  load = sessions { concurrency = 1, turns = 5, first = 2000, prompt = 900, output = 100, requests = 20 },
  admission = { ttft_limit = s(3), prefill_rate = tokens_per_second(1000) },
}
END
same "$(count "$here/cached.lua" "SELECT count(*) || ' ' || max(prompt_tokens) FROM request WHERE outcome = 1")" \
    "20 6000" "all turns enter"
same "$(count "$here/cached.lua" "SELECT count(*) FROM request WHERE outcome = 2" --set load.first=3001)" \
    20 "a new prompt of 3,001 tokens takes more than 3 s"
same "$(count "$here/cached.lua" "SELECT sum(outcome = 1) || ' ' || sum(outcome = 2) FROM request" \
    --set pools.prefill.prefix_cache=false)" "8 12" "nothing is cached: turns of up to 3,000 tokens enter"

# Decoders hold one answer of 40,000 tokens each; what would wait for their pages is turned away, or is not.
cat > "$here/decoders.lua" << 'END'
local h200 = require "hardware.h200"
return scenario {
  question = "Are requests turned away that no decoder has room for?",
  model = require "models.llama-3.1-8b",
  pools = { prefill = pool { role = "prefill", machine = h200, shardings = { { tensor = 1 } }, count = 2 },
            decode = pool { role = "decode", machine = h200, shardings = { { tensor = 1 } },
                            memory_utilization = percent(18), reserve_output = true } },
  load = evenly { rate = per_second(20), requests = 60, prompt = 4000, output = 2000 },
}
END
waited="SELECT sum(dispatched_ns - received_ns > 1000000) || ' ' || sum(outcome = 2) FROM request"
free=$(count "$here/decoders.lua" "$waited")
[ "${free#* }" = 0 ] && [ "${free% *}" -gt 20 ] || fail "without a limit requests wait for pages: $free"
held=$(count "$here/decoders.lua" "$waited" --set 'admission.decode_load_max=percent(60)')
[ "${held% *}" = 0 ] && [ "${held#* }" -gt 10 ] || fail "with one they are turned away: $held"

# vllm#25815: answers outgrow the decoder. Their KV comes from the prefiller again, or is computed where they are.
cat > "$here/preempt.lua" << 'END'
local h200 = require "hardware.h200"
return scenario {
  question = "Answers outgrow the decoder's KV: who recomputes?",
  model = require "models.llama-3.1-8b",
  pools = { prefill = pool { role = "prefill", machine = h200, shardings = { { tensor = 1 } } },
            decode = pool { role = "decode", machine = h200, shardings = { { tensor = 1 } },
                            memory_utilization = percent(18), headroom = 64 } },
  load = poisson { rate = per_second(6), requests = 100, prompt = 1000, output = 2000 },
  faults = {},
}
END
computes="SELECT (SELECT sum(preemptions) > 0 FROM request) || ' ' ||
    max(CASE role WHEN 2 THEN prefill_tokens > 100 * 999 END) || ' ' ||
    max(CASE role WHEN 3 THEN prefill_tokens > 0 END) FROM instance"
same "$(count "$here/preempt.lua" "$computes")" "1 1 0" "the prefiller recomputes"
same "$(count "$here/preempt.lua" "$computes" --set 'pools.decode.recompute="decoder"')" "1 0 1" \
    "the decoder recomputes"
refused 'pools.prefill.recompute: has a meaning in decode pools' run "$here/preempt.lua" \
    --set 'pools.prefill.recompute="decoder"'

# vllm#48892: shares of steps by place. A token less than all come in steps of 4.49.
cat > "$here/places.lua" << 'END'
local h200 = require "hardware.h200"
return scenario {
  question = "Eight drafted tokens, accepted 76, 62, 51, 42, 36, 31, 27, 24 % by place: how many tokens a step?",
  model = require "models.deepseek-r1",
  pools = { prefill = pool { role = "prefill", machine = h200, shardings = { { tensor = 8 } } },
            decode = pool { role = "decode", machine = h200, shardings = { { tensor = 8 } },
                            draft = { tokens = 8, reuse = true,
                                      acceptance = { percent(76), percent(62), percent(51), percent(42),
                                                     percent(36), percent(31), percent(27), percent(24) } } } },
  load = evenly { rate = per_second(0.1), requests = 1, prompt = 1000, output = 20000 },
}
END
same "$(count "$here/places.lua" "SELECT printf('%.2f', 20000.0 / steps) FROM instance WHERE role = 3")" 4.49 \
    "tokens a step"

# pegainfer#701: 8,192 tokens first, 2,048 a turn, ten conversations at a time.
cat > "$here/turns.lua" << 'END'
local h200 = require "hardware.h200"
return scenario {
  question = "Conversations of five turns, 8,192 tokens first, then 2,048 a turn, ten at a time",
  model = require "models.qwen3-14b",
  pools = { prefill = pool { role = "prefill", machine = h200, shardings = { { tensor = 1 } }, engine = "vllm" },
            decode = pool { role = "decode", machine = h200, shardings = { { tensor = 1 } }, engine = "vllm" } },
  load = sessions { concurrency = 10, turns = 5, first = 8192, prompt = 2048, output = 256, requests = 100 },
}
END
same "$(count "$here/turns.lua" "SELECT group_concat(t, ' ') FROM
    (SELECT prompt_tokens || 'x' || count(*) || '-' || min(cached_tokens) AS t FROM request GROUP BY prompt_tokens)")" \
    "8192x20-0 10496x20-8128 12800x20-10432 15104x20-12736 17408x20-15040" "turns hold what was said"
same "$(sqlite3 "$here/runs.db" "WITH e AS (SELECT arrived_ns t, 1 d FROM request UNION ALL
    SELECT finished_ns, -1 FROM request), c AS (SELECT sum(d) OVER (ORDER BY t, d ROWS UNBOUNDED PRECEDING) n FROM e)
    SELECT max(n) FROM c")" 10 "conversations at a time"
