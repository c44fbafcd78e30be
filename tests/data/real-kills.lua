-- A run that is over in half a second, for tests that let something go wrong in the middle of it: prompts of several
-- chunks, hand-offs in flight all the time, answers that outlast them.
local host = require "hardware.host"

return scenario {
  question = "What is left when a process dies?",
  model = require "models.tiny-gqa",
  pools = {
    prefill = pool { role = "prefill", machine = host, count = 2, shardings = { { tensor = 2 } }, page = 16,
                     token_budget = 64, chunk = 32, prefix_cache = false, memory_utilization = percent(20) },
    decode = pool { role = "decode", machine = host, count = 2, shardings = { { tensor = 1 } }, page = 16,
                    batch_max = 8, headroom = 16, prefix_cache = false, memory_utilization = percent(20) },
  },
  load = poisson {
    rate = per_second(60),
    requests = 24,
    prompt = uniform(1, 120),
    output = uniform(1, 30),
  },
  messenger = { deadline = s(30), handoffs_max = 16 },
}
