-- Qwen3-Coder-480B with tensor parallelism over a node on both sides: decoders for one prefiller.
--
-- The article on disaggregated prefill and decode (Perplexity, 2025-08) uses about three decoder nodes for a prefiller.
-- It gives neither lengths nor targets, and the ratio hangs on both: with the lengths of workloads/assistant.lua three
-- decoders are what one prefiller feeds when 95 in 100 users shall get 90 tokens/s (11 ms); at 10 ms it is five, at 15
-- ms two, at 20 ms one.
local h200 = require "hardware.h200-efa"
local lengths = require "workloads.assistant"

return scenario {
  question = "How many decoder nodes does one prefiller node of Qwen3-Coder-480B feed?",
  model = require "models.qwen3-coder-480b",
  pools = {
    prefill = pool {
      role = "prefill", machine = h200, plan = { 1, 1 }, shardings = { { tensor = 8 } }, token_budget = 8192,
    },
    decode = pool { role = "decode", machine = h200, plan = { 1, 6 }, shardings = { { tensor = 8 } } },
  },
  load = poisson {
    rate = per_second(3), requests = 1000, warmup = s(30), prompt = lengths.prompt, output = lengths.output,
  },
  targets = {
    ttft { p = 95, below = s(1) },
    tpot { p = 95, below = ms(11) },
  },
  plan = { goal = "highest_rate", requests = 1000, seeds = 2, compare_mixed = false },
  expect_plan = function(r)
    check(r.recommendation.prefill == 1 and r.recommendation.decode == 3, "three decoders a prefiller")
  end,
}
