-- Prefillers and decoders of one model, light and then close to what they can do; sharded differently, so that every
-- write of a transfer splits KV heads. Four runs.
local h100 = require "hardware.h100"

return scenario {
  question = "Does the plain case come out the same everywhere?",
  model = require "models.llama-3.1-70b",
  pools = {
    prefill = pool { role = "prefill", machine = h100, count = 2, shardings = { { tensor = 4 } } },
    decode = pool { role = "decode", machine = h100, count = 2, shardings = { { tensor = 8 } } },
  },
  load = poisson {
    rate = per_second(8), requests = 300, prompt = uniform(512, 2048), output = uniform(128, 256),
  },
  vary = {
    ["load.rate"] = { per_second(4), per_second(20) },
    ["routing.decode"] = { "round_robin", "power_of_two" },
  },
}
