-- Prefill on the cheaper H100 and decode on the H200, whose memory is what decoding needs, beside H200 for both.
--
-- The plan searches every pair of a prefill and a decode pool, a machine each here, and compares them by what a dollar
-- serves. Prefill is bound by operations. Both GPUs are sold with the same number of them; measured, the H100 runs a
-- little behind, which takes back most of what it is cheaper by.
local h100 = require "hardware.h100"
local h200 = require "hardware.h200"

return scenario {
  question = "Is it worth prefilling Llama-3.1-70B on H100 when H200 decodes?",
  model = require "models.llama-3.1-70b",
  pools = {
    prefill_h100 = pool { role = "prefill", machine = h100, plan = { 2, 2 }, shardings = { { tensor = 4 } } },
    prefill_h200 = pool { role = "prefill", machine = h200, plan = { 2, 2 }, shardings = { { tensor = 4 } } },
    decode_h200 = pool { role = "decode", machine = h200, plan = { 2, 2 }, shardings = { { tensor = 4 } } },
  },
  load = poisson {
    rate = per_second(8), requests = 2000, warmup = s(10), prompt = uniform(512, 4096), output = uniform(64, 512),
  },
  targets = {
    ttft { p = 95, below = s(1) },
    tpot { p = 95, below = ms(25) },
  },
  plan = { goal = "highest_rate", requests = 2000, seeds = 3, compare_mixed = false },
  expect_plan = function(r)
    local best = {}
    for i = 1, #r.candidates do
      local candidate = r.candidates[i]
      best[candidate.sharding] = candidate
      check(candidate.bound_by == "prefill compute", "prefill binds " .. candidate.candidate)
    end
    local pair, alike = best["TP4 in prefill_h100 / TP4 on H200"], best["TP4 in prefill_h200 / TP4 on H200"]
    check(pair ~= nil and alike ~= nil, "the pair of unlike machines is a candidate beside the pair of like ones")
    if pair == nil or alike == nil then return end
    check(pair.max_rate_per_s <= alike.max_rate_per_s, "the H100 prefills no faster than the H200")
    check(pair.usd_per_mtok < 1.1 * alike.usd_per_mtok, "and costs about the same per token")
  end,
}
