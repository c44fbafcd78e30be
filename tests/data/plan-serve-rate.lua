-- A service that has to carry 24 requests/s: three thousand requests, drawn for this test, on up to eight
-- machines. Aggregated workers carry it on five; pools of prefill and decode workers need more.
local h100 = require "hardware.h100"

return scenario {
  question = "What is the cheapest that serves 24 requests/s?",
  model = require "models.llama-3.1-70b",
  pools = {
    prefill = pool {
      role = "prefill", machine = h100, plan = { 1, 7 }, engine = "vllm",
      shardings = { { tensor = 8 }, { tensor = 4 } },
    },
    decode = pool {
      role = "decode", machine = h100, plan = { 1, 7 }, engine = "vllm",
      shardings = { { tensor = 8 }, { tensor = 4 } },
    },
  },
  load = trace { file = "service-3000.csv.xz", format = "csv" },
  targets = { ttft { p = 95, below = s(2) }, tpot { p = 95, below = ms(40) } },
  plan = { goal = "serve_rate", rate = per_second(24), nodes = 8, requests = 3000, seeds = 3 },
}
