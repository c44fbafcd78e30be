-- DeepSeek-R1 with prefill and decode on the same node: what disaggregation is compared with.
--
-- The article on disaggregated prefill and decode (Perplexity, 2025-08) says that such a node cannot hold 50 tokens/s
-- for a user, since each prefill interrupts decoding for hundreds of milliseconds. It gives no lengths and no rate.
-- With the lengths assumed here the interrupts are there at any rate, but the median user keeps 50 tokens/s up to 1.5
-- requests/s a node; at the 2/s below only 36 are left. Smaller token budgets trade long interrupts for more of them.
local h200 = require "hardware.h200-efa"
local lengths = require "workloads.assistant"

return scenario {
  question = "Does a node that both prefills and decodes DeepSeek-R1 hold 50 tokens/s for each user?",
  model = require "models.deepseek-r1",
  pools = {
    mixed = pool { role = "mixed", machine = h200, shardings = { { tensor = 8 } }, token_budget = 8192 },
  },
  load = poisson {
    rate = per_second(2), requests = 1500, warmup = s(30), prompt = lengths.prompt, output = lengths.output,
  },
  expect = function(r)
    check(r.completed == r.requests, "every request is answered")
    check(r.tpot_ms.p50 > 20, "the median user gets less than 50 tokens/s")
    check(r.itl_ms.p50 < 25, "between prefills decoding is not what keeps it from 40 tokens/s")
    check(r.itl_ms.p99 > 200 and r.itl_ms.max < 500, "prefill interrupts decoding for hundreds of milliseconds")
  end,
}
