-- DeepSeek-R1 with data-parallel attention and experts spread over the node's eight GPUs.
--
-- The article on disaggregated prefill and decode (Perplexity, 2025-08) reports about 50 tokens/s for a user at one
-- request/s a rank, eight ranks a node. It gives no lengths: those of workloads/assistant.lua are assumed. Here users
-- get 32 tokens/s, which does not agree. At this load 80 answers are under way, a step reads nearly all experts, 75 GB
-- or 16 ms of a GPU's bandwidth, and 50 tokens/s leave 20 ms. The article's engine passes hidden states on for a draft
-- head and does not say whether it drafted: draft = { tokens = 1, acceptance = percent(85) } makes 57 tokens/s of these
-- 32.
local h200 = require "hardware.h200-efa"
local lengths = require "workloads.assistant"

return scenario {
  question = "Which speed do users see at one request/s on each of the eight attention ranks of a DeepSeek-R1 node?",
  model = require "models.deepseek-r1",
  pools = {
    prefill = pool { role = "prefill", machine = h200, count = 2, shardings = { { tensor = 8 } }, token_budget = 8192 },
    decode = pool { role = "decode", machine = h200, count = 1, shardings = { { data = 8, expert = 8 } } },
  },
  load = poisson {
    rate = per_second(8), requests = 4000, warmup = s(30), prompt = lengths.prompt, output = lengths.output,
  },
  expect = function(r)
    check(r.completed == r.requests, "every request is answered")
    check(r.ttft_ms.p95 < 1500, "the node keeps up with eight requests/s")
    check(r.tpot_ms.p50 > 20 and r.tpot_ms.p50 < 40, "the median user gets 25 to 50 tokens/s")
    check(r.instances[3].kv_used_peak < 0.5, "KV is not what limits the batch")
  end,
}
