-- A published deployment: TensorRT-LLM serving DeepSeek-R1 on one node of eight H200, attention data-parallel,
-- experts spread over all eight (Best_perf_practice_on_DeepSeek-R1_in_TensorRT-LLM.md@01c4ece). 1,024 clients, 1,024
-- tokens in, 2,048 out, max_batch 128 a GPU, 1,151 tokens a step: 11,489 tokens/s, 11.35 tokens/s of a user. Nothing
-- here is fitted to that.
return scenario {
  question = "How many tokens a second does one H200 node of DeepSeek-R1 produce when it is full?",
  model = require "models.deepseek-r1",
  pools = {
    mixed = pool {
      role = "mixed", machine = require "hardware.h200", count = 1,
      shardings = { { data = 8, expert = 8 } },
      engine = require "engines.trtllm",
      batch_max = 128, token_budget = 1151, prefix_cache = false,
    },
  },
  -- Three times as many requests as clients, ramp and end among them.
  load = closed { concurrency = 1024, requests = 3072, prompt = 1024, output = 2048 },
  targets = {},
  expect = function(r)
    check(r.completed == 3072, "every request is served")
    check(r.output_tokens_per_s > 0.8 * 11489 and r.output_tokens_per_s < 1.2 * 11489,
          "within a fifth of what was measured")
    check(r.output_tokens_per_s > 0.9 * 12980 and r.output_tokens_per_s < 1.1 * 12980,
          "within a tenth of what this predicted when it was written")
  end,
}
