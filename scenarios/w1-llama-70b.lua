-- W1, the workload that the simulator's speed is measured with: what other simulators of disaggregated serving are
-- asked as well, so that their figures can stand beside this one's.
local llama = require "models.llama-3.1-70b"
local h100 = require "hardware.h100"

return scenario {
  question = "How do 4 prefillers and 4 decoders of Llama-3.1-70B on H100 serve 16 requests a second?",
  model = llama,
  pools = {
    prefill = pool { role = "prefill", machine = h100, count = 4, shardings = { { tensor = 4 } } },
    decode = pool { role = "decode", machine = h100, count = 4, shardings = { { tensor = 4 } } },
  },
  load = poisson {
    rate = per_second(16),
    requests = 10000,
    prompt = uniform(512, 2048),
    output = uniform(128, 256),
  },
  targets = {
    ttft { p = 95, below = s(1) },
    tpot { p = 95, below = ms(50) },
  },
  expect = function(r)
    check(r.completed == 10000, "every request completes")
    check(r.rejected == 0 and r.failed == 0, "none is rejected or fails")
  end,
}
