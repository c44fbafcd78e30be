-- One prefiller and one decoder under a light load: a run of a moment.
local h100 = require "hardware.h100"

return scenario {
  question = "Does one prefiller and one decoder serve five requests a second?",
  model = require "models.llama-3.1-8b",
  pools = {
    prefill = pool { role = "prefill", machine = h100, shardings = { { tensor = 1 } } },
    decode = pool { role = "decode", machine = h100, shardings = { { tensor = 1 } } },
  },
  load = poisson { rate = per_second(5), requests = 200, prompt = uniform(256, 1024), output = uniform(16, 64) },
  targets = { ttft { p = 95, below = ms(500) }, tpot { p = 95, below = ms(20) } },
  vary = { ["load.rate"] = { per_second(2), per_second(5), per_second(10) } },
  expect = function(r)
    check(r.completed == 200, "every request completes")
  end,
}
