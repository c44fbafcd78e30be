-- A tiny model over two pipeline stages on both sides, as processes on this machine. Launches follow each other through
-- the stages; a profile that the runtime was measured into says so, and `tandem replay` predicts what it does.
local host = require "hardware.host"

return scenario {
  question = "Does a pipeline of two executors take what the simulation says?",
  model = require "models.tiny-gqa",
  pools = {
    prefill = pool { role = "prefill", machine = host, shardings = { { pipeline = 2 } }, page = 16, token_budget = 128,
                     chunk = 64, prefix_cache = false, memory_utilization = percent(30) },
    decode = pool { role = "decode", machine = host, shardings = { { pipeline = 2 } }, page = 16, batch_max = 16,
                    headroom = 64, prefix_cache = false, memory_utilization = percent(30) },
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
