-- Instances that prefill and decode, with cached prefixes found by the router, on the start of a recorded trace.
local h200 = require "hardware.h200"

return scenario {
  question = "Does a cache of prefixes come out the same everywhere?",
  model = require "models.llama-3.1-70b",
  pools = {
    mixed = pool { role = "mixed", machine = h200, count = 4, shardings = { { tensor = 4 } }, token_budget = 8192 },
  },
  load = trace { file = "traces/mooncake-conversation-20min.jsonl.xz", format = "mooncake", requests = 150 },
  routing = { prefill = "prefix_aware" },
}
