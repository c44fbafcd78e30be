-- Time to first token of Qwen3-235B, disaggregated, one request at a time, by prompt length.
--
-- arXiv 2510.27656 measured it on H200 with TP4 on both sides, EFA of 2 x 200 Gbit/s a GPU, pages of 128 tokens and
-- chunks of 16K: 260, 501, 1042, 2317, 5852 and 17056 ms for 4K to 128K tokens. layerwise-qwen3-235b-aggregated.lua is
-- the other half of that table, layerwise-transfer-qwen3-235b.lua its transfers; scenarios/REPRODUCED.md has all of it.
-- Four GPUs a machine, so that the two instances are not on one and KV goes over the NICs.
local h200 = with(require "hardware.h200-efa", { gpus = 4 })

return scenario {
  question = "How long does one prompt take to its first token when its KV goes to another node layer by layer?",
  model = require "models.qwen3-235b",
  pools = {
    prefill = pool {
      role = "prefill", machine = h200, shardings = { { tensor = 4 } }, page = 128, token_budget = 16384,
    },
    decode = pool { role = "decode", machine = h200, shardings = { { tensor = 4 } }, page = 128 },
  },
  load = closed { concurrency = 1, requests = 4, prompt = 4096, output = 16 },
  vary = { ["load.prompt"] = { 4096, 8192, 16384, 32768, 65536, 131072 } },
  expect = function(r)
    local measured = {
      [4096] = 260, [8192] = 501, [16384] = 1042, [32768] = 2317, [65536] = 5852, [131072] = 17056,
    }
    local ttft = measured[r.prompt_tokens // r.completed]
    local ours = r.ttft_ms.p50
    check(ttft == nil or ours > 0.6 * ttft and ours < 1.1 * ttft, "TTFT is within -40 and +10 % of what was measured")
    check(r.spans_ms.exposed_transfer.max < 1, "the transfer hides behind the prefill")
  end,
}
