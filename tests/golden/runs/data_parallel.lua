-- Attention groups of one rank each, experts spread over all, latents as KV; clients that go away; a short prefill
-- budget that cuts prompts into chunks.
local h200 = require "hardware.h200"

return scenario {
  question = "Does a model with attention groups and experts come out the same everywhere?",
  model = require "models.deepseek-r1",
  pools = {
    prefill = pool {
      role = "prefill", machine = h200, count = 1, shardings = { { tensor = 8 } }, token_budget = 2048,
    },
    decode = pool { role = "decode", machine = h200, count = 1, shardings = { { data = 8, expert = 8 } } },
  },
  load = poisson {
    rate = per_second(4), requests = 200, abort_share = percent(5), abort_within = s(2),
    prompt = quantiles { [0] = 16, [500] = 1024, [900] = 4096, [1000] = 16384 },
    output = quantiles { [0] = 1, [500] = 100, [1000] = 400 },
  },
}
