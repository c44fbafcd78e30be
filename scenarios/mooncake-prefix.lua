-- Twenty minutes of the Mooncake conversation trace, whose prompts share prefixes, under three ways to choose a
-- prefiller.
--
-- Of the trace's prompt tokens 32 % stand in an earlier prompt of these minutes: a cache that forgot nothing and that
-- all prefillers shared would skip them. Eight prefillers with a cache each, of about 1.1 million tokens, see 8 % when
-- they are chosen without looking; prefix_aware sends a prompt to where most of it is cached, unless that one has too
-- long a queue. round_robin shows what queues cost when nobody looks at them either.
local h200 = require "hardware.h200"

return scenario {
  question = "What does it bring to send prompts to the prefiller that has cached most of them?",
  model = require "models.llama-3.1-70b",
  pools = {
    prefill = pool { role = "prefill", machine = h200, count = 8, shardings = { { tensor = 4 } }, token_budget = 8192 },
    decode = pool { role = "decode", machine = h200, count = 4, shardings = { { tensor = 4 } } },
  },
  load = trace { file = "traces/mooncake-conversation-20min.jsonl.xz", format = "mooncake" },
  vary = { ["routing.prefill"] = { "round_robin", "least_queued_tokens", "prefix_aware" } },
  expect = function(r)
    local routing = r.params["routing.prefill"]
    check(r.completed == r.requests, "every request is answered")
    check(r.cached_share < 0.32, "no more is found than was there before")
    if routing == "'prefix_aware'" then
      check(r.cached_share > 0.13, "at least 13 % of the prompt tokens are cached")
      check(r.ttft_ms.mean < 1140, "the first token comes sooner than by queues alone")
    else
      check(r.cached_share > 0.05 and r.cached_share < 0.11, "without looking 5 to 11 % are cached")
    end
    if routing == "'round_robin'" then
      check(r.ttft_ms.mean > 1500, "the first token comes late where queues are not looked at")
    end
  end,
}
