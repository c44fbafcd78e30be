-- How long the KV of Qwen3-235B takes when nothing is computed: one prompt, twice. The second time the prefiller has
-- all of it cached and there is no forward pass to hide behind, so that the transfer takes what its 94 layers take on
-- the wire.
--
-- traces/repeated-prompts.jsonl has a pair of prompts of 4K, 8K, 16K, 32K, 64K and 128K tokens every 100 s; the window
-- picks the pair and the warm-up leaves out its first. arXiv 2510.27656 measured 0.661, 0.952 and 1.610 ms a layer and
-- chunk of 4K, 8K and 16K. Here it is an eighth of that: 0.5 us a write, as in table 2 of the same paper, posted by
-- four ranks side by side, where these figures say 1.25 us and 0.3 ms a layer beside them. Either way a layer is sent
-- faster than it is computed.
local h200 = with(require "hardware.h200-efa", { gpus = 4 })

return scenario {
  question = "How long does the KV of one prompt take to another node?",
  model = require "models.qwen3-235b",
  pools = {
    prefill = pool {
      role = "prefill", machine = h200, shardings = { { tensor = 4 } }, page = 128, token_budget = 16384,
    },
    decode = pool { role = "decode", machine = h200, shardings = { { tensor = 4 } }, page = 128, prefix_cache = false },
  },
  load = trace {
    file = "traces/repeated-prompts.jsonl", format = "mooncake", window = { s(200), s(300) }, warmup = s(40),
  },
  expect = function(r)
    check(r.cached_share >= 0.999, "the prompt is cached")
    check(r.spans_ms.prefill.max == 0, "nothing is computed")
    check(r.spans_ms.exposed_transfer.p50 > 15 and r.spans_ms.exposed_transfer.p50 < 155, "16K tokens take tens of ms")
  end,
}
