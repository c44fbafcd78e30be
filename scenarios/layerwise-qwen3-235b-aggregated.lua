-- Time to first token of Qwen3-235B on one instance, one request at a time, by prompt length: the half of the table of
-- arXiv 2510.27656 that layerwise-qwen3-235b.lua is compared with. Measured: 214, 433, 929, 2179, 5681 and 16735 ms.
local h200 = with(require "hardware.h200-efa", { gpus = 4 })

return scenario {
  question = "How long does one prompt take to its first token where it is also decoded?",
  model = require "models.qwen3-235b",
  pools = {
    mixed = pool { role = "mixed", machine = h200, shardings = { { tensor = 4 } }, page = 128, token_budget = 16384 },
  },
  load = closed { concurrency = 1, requests = 4, prompt = 4096, output = 16 },
  vary = { ["load.prompt"] = { 4096, 8192, 16384, 32768, 65536, 131072 } },
  expect = function(r)
    local measured = {
      [4096] = 214, [8192] = 433, [16384] = 929, [32768] = 2179, [65536] = 5681, [131072] = 16735,
    }
    local ttft = measured[r.prompt_tokens // r.completed]
    local ours = r.ttft_ms.p50
    check(ttft == nil or ours > 0.7 * ttft and ours < 1.1 * ttft, "TTFT is within -30 and +10 % of what was measured")
  end,
}
