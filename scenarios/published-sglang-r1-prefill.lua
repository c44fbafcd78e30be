-- A published deployment: SGLang's prefill of DeepSeek-R1 on four nodes of eight H100, attention data-parallel,
-- experts spread over 32 GPUs, 16,384 tokens a GPU and step, two batches in turn (lm-sys.github.io@2db4e40,
-- 2025-05-05, large-scale-ep): 57,674, 54,543 and 50,302 tokens/s a node at prompts of 1,024, 2,048 and 4,096;
-- 59,337 at 4,096 where every expert got as much. Decoding was taken to be unlimited there; here decoders have one
-- token a request to produce.
return scenario {
  question = "How many prompt tokens a second do four H100 nodes with experts over 32 GPUs compute?",
  model = require "models.deepseek-r1",
  pools = {
    prefill = pool {
      role = "prefill", machine = require "hardware.h100", count = 1,
      shardings = { { data = 32, expert = 32 } }, redundant_experts = 32,
      engine = engine { kernels = "sglang", host = ms(0.5), mixes = false, overlap = percent(100) },
      token_budget = 16384, prefix_cache = false,
    },
    decode = pool {
      role = "decode", machine = require "hardware.h200", count = 8, shardings = { { data = 8, expert = 8 } },
    },
  },
  load = closed { concurrency = 1024, requests = 6144, warmup_requests = 1024, prompt = 4096, output = 1 },
  messenger = { handoffs_max = 512 },
  targets = {},
  vary = { ["load.prompt"] = { 1024, 2048, 4096 } },
  expect = function(r)
    check(r.completed == 6144, "every prompt is computed")
  end,
}
