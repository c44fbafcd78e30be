-- Prompts that share prefixes, over caches that are too small for all of them: hits on both sides, eviction, and reuse.
local host = require "hardware.host"

return scenario {
  question = "Do prompts that find part of their KV cached give the right tokens?",
  model = require "models.tiny-gqa",
  pools = {
    prefill = pool { role = "prefill", machine = host, count = 1, shardings = { { tensor = 1 } }, page = 16,
                     token_budget = 256, chunk = 128, memory_utilization = percent(5) },
    decode = pool { role = "decode", machine = host, count = 1, shardings = { { tensor = 2 } }, page = 16,
                    batch_max = 16, headroom = 64, memory_utilization = percent(5) },
  },
  load = trace { file = "traces/shared-prefixes.jsonl", format = "mooncake" },
  messenger = { deadline = s(60), handoffs_max = 32 },
  expect = function(r)
    check(r.completed == r.requests, "every request completes")
    check(r.cached_share > 0.1, "more than 10 % of the prompt tokens are found in the prefiller's cache")
    check(r.cached_share < 0.3, "not all that was there before: some of it has been evicted")
  end,
}
