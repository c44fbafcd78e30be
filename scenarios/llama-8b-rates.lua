-- How latency grows with load: one prefiller and one decoder, each rate a run of its own (`vary`).
local h100 = require "hardware.h100"

return scenario {
  question = "Up to which rate does one prefiller and one decoder hold Llama-3.1-8B within 500 ms and 20 ms?",
  model = require "models.llama-3.1-8b",
  pools = {
    prefill = pool { role = "prefill", machine = h100, shardings = { { tensor = 1 } } },
    decode = pool { role = "decode", machine = h100, shardings = { { tensor = 1 } } },
  },
  load = poisson {
    rate = per_second(4),
    requests = 2000,
    warmup = s(10),
    prompt = quantiles { [0] = 16, [500] = 1020, [900] = 2500, [1000] = 4000 }, -- near the Azure conversation trace
    output = quantiles { [0] = 8, [500] = 130, [900] = 420, [1000] = 1000 },
  },
  targets = {
    ttft { p = 95, below = ms(500) },
    tpot { p = 95, below = ms(20) },
  },
  vary = { ["load.rate"] = { per_second(2), per_second(4), per_second(8), per_second(16) } },
  expect = function(r)
    check(r.rejected == 0 and r.failed == 0, "every request is answered")
  end,
}
