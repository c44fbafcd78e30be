-- A plan small enough to be searched in a second: it is interrupted, killed and resumed by tests.
local h100 = require "hardware.h100"

return scenario {
  question = "How many prefillers and decoders of a small model on two machines?",
  model = require "models.llama-3.1-8b",
  pools = {
    prefill = pool { role = "prefill", machine = h100, plan = { 1, 3 }, shardings = { { tensor = 4 } } },
    decode = pool { role = "decode", machine = h100, plan = { 1, 3 }, shardings = { { tensor = 4 }, { tensor = 2 } } },
  },
  load = poisson { rate = per_second(10), requests = 300, prompt = uniform(256, 1024), output = uniform(16, 64) },
  targets = {
    ttft { p = 95, below = ms(400) },
    tpot { p = 95, below = ms(15) },
    attainment = percent(90),
  },
  plan = { nodes = 2, requests = 300, seeds = 2 },
  expect_plan = function(r)
    check(r.recommendation.max_rate_per_s > 10, "some ratio serves ten requests a second")
  end,
}
