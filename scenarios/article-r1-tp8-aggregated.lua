-- The load of article-r1-tp8-1p3d.lua on the same four nodes, each of which prefills and decodes: what its time to
-- first token is compared with.
local h200 = require "hardware.h200-efa"
local lengths = require "workloads.assistant"

return scenario {
  question = "Which speed do users see when four DeepSeek-R1 nodes each prefill and decode?",
  model = require "models.deepseek-r1",
  pools = {
    mixed = pool { role = "mixed", machine = h200, count = 4, shardings = { { tensor = 8 } }, token_budget = 8192 },
  },
  load = poisson {
    rate = per_second(3), requests = 3000, warmup = s(30), prompt = lengths.prompt, output = lengths.output,
  },
  expect = function(r)
    check(r.completed == r.requests, "every request is answered")
    check(r.itl_ms.max > 200, "prefill interrupts decoding for hundreds of milliseconds")
  end,
}
