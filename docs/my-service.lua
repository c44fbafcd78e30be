-- The scenario of the tutorial: copy it, and change what differs in your service.
local h200 = require "hardware.h200"

return scenario {
  question = "How many prefillers and decoders for my service?",
  model = require "models.llama-3.1-70b",
  pools = {
    prefill = pool { role = "prefill", machine = h200, plan = { 1, 4 }, shardings = { { tensor = 4 } } },
    decode = pool { role = "decode", machine = h200, plan = { 1, 4 }, shardings = { { tensor = 4 } } },
  },
  load = poisson { rate = per_second(10), requests = 1000, prompt = uniform(500, 2000), output = uniform(100, 300) },
  targets = { ttft { p = 95, below = s(1) }, tpot { p = 95, below = ms(25) } },
  plan = { goal = "highest_rate", nodes = 3, requests = 1000, seeds = 3 },
}
