-- Multi-head latent attention with data-parallel attention groups on the decode side.
local host = require "hardware.host"

return scenario {
  question = "Does a tiny MLA model, decoded by two attention groups, give the right tokens?",
  model = require "models.tiny-mla",
  pools = {
    prefill = pool { role = "prefill", machine = host, count = 1, shardings = { { tensor = 2 } }, page = 16,
                     token_budget = 128, chunk = 64, prefix_cache = false, memory_utilization = percent(30) },
    decode = pool { role = "decode", machine = host, count = 1, shardings = { { data = 2 } }, page = 16,
                    batch_max = 16, headroom = 64, prefix_cache = false, memory_utilization = percent(30) },
  },
  load = poisson {
    rate = per_second(10),
    requests = 40,
    prompt = uniform(1, 200),
    output = uniform(1, 40),
  },
  messenger = { deadline = s(30), handoffs_max = 32 },
  expect = function(r)
    check(r.completed == 40, "every request completes")
  end,
}
