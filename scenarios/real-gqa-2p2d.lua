-- Two prefillers and two decoders of a tiny model, as processes on this machine.
local host = require "hardware.host"

return scenario {
  question = "Does a tiny GQA model, prefilled on two ranks and decoded on one, give the right tokens?",
  model = require "models.tiny-gqa",
  pools = {
    prefill = pool { role = "prefill", machine = host, count = 2, shardings = { { tensor = 2 } }, page = 16,
                     token_budget = 128, chunk = 64, prefix_cache = false, memory_utilization = percent(30) },
    decode = pool { role = "decode", machine = host, count = 2, shardings = { { tensor = 1 } }, page = 16,
                    batch_max = 16, headroom = 64, prefix_cache = false, memory_utilization = percent(30) },
  },
  load = poisson {
    rate = per_second(20),
    requests = 60,
    prompt = uniform(1, 200),
    output = uniform(1, 40),
  },
  messenger = { deadline = s(30), handoffs_max = 32 },
  expect = function(r)
    check(r.completed == 60, "every request completes")
  end,
}
