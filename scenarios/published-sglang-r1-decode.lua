-- A published deployment: SGLang's decoders of DeepSeek-R1 on nine nodes of eight H100, attention data-parallel,
-- experts spread over 72 GPUs (lm-sys.github.io@2db4e40, 2025-05-05, large-scale-ep): 22,282 tokens/s a node with
-- 256 requests a GPU of 2,000 tokens in and 100 out, two batches in turn, which brought 25.5 %. Prefill was taken
-- to be unlimited there; here it has machines enough.
return scenario {
  question = "How many tokens a second do nine H100 nodes with experts over 72 GPUs decode?",
  model = require "models.deepseek-r1",
  pools = {
    prefill = pool {
      role = "prefill", machine = require "hardware.h200", count = 24, shardings = { { data = 32, expert = 32 } },
      token_budget = 16384, prefix_cache = false,
    },
    decode = pool {
      role = "decode", machine = require "hardware.h100", count = 1,
      shardings = { { data = 72, expert = 72 } }, redundant_experts = 32,
      engine = engine { kernels = "sglang", host = ms(0.5), mixes = false, overlap = percent(100) },
      batch_max = 256,
    },
  },
  load = closed { concurrency = 20000, requests = 60000, warmup_requests = 20000, prompt = 2000, output = 100 },
  messenger = { handoffs_max = 4096 },
  targets = {},
  expect = function(r)
    check(r.completed == 60000, "every request is served")
  end,
}
