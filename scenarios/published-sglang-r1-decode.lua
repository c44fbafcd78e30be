-- A published deployment: SGLang's decoders of DeepSeek-R1 on nine nodes of eight H100, attention data-parallel,
-- experts spread over 72 GPUs (lm-sys.github.io@2db4e40, 2025-05-05, large-scale-ep): 22,282 tokens/s a node with
-- 256 requests a GPU of 2,000 tokens in and 100 out, two batches in turn, which brought 25.5 %: 17,777 without, as
-- here. Prefill was taken to be unlimited there; here it has machines enough.
return scenario {
  question = "How many tokens a second do nine H100 nodes with experts over 72 GPUs decode?",
  model = require "models.deepseek-r1",
  pools = {
    prefill = pool {
      role = "prefill", machine = require "hardware.h200", count = 1, shardings = { { data = 32, expert = 32 } },
      token_budget = 16384, prefix_cache = false,
    },
    decode = pool {
      role = "decode", machine = require "hardware.h100", count = 1,
      shardings = { { data = 72, expert = 72 } }, redundant_experts = 32,
      engine = engine { kernels = "sglang", host = ms(0.5), mixes = false },
      batch_max = 256,
    },
  },
  -- What was reported is of a full batch: `tandem explain --step BATCH,CONTEXT` shows its step. The load is light.
  load = closed { concurrency = 256, requests = 1024, warmup_requests = 256, prompt = 2000, output = 100 },
  messenger = { handoffs_max = 4096 },
  targets = {},
  expect = function(r)
    check(r.completed == 1024, "every request is served")
  end,
}
