-- A published deployment: TensorRT-LLM serving DeepSeek-R1 in fp4 on one node of eight B200, attention
-- data-parallel, experts spread over all eight (Best_perf_practice_on_DeepSeek-R1_in_TensorRT-LLM.md@01c4ece). 7,168
-- clients, 1,024 tokens in, 2,048 out, max_batch 896 a GPU, an fp8 cache: 43,146 tokens/s. With 3,072 clients,
-- max_batch 384, 1,536 tokens a step and a bf16 cache: 36,384 tokens/s. Tokens a step are not said for the first:
-- 2,048 are assumed. Nothing here is fitted to that: ours is 8 and 13 % faster.
return scenario {
  question = "How many tokens a second does one B200 node of DeepSeek-R1 in fp4 produce when it is full?",
  model = with(require "models.deepseek-r1", { weights = "bf16", expert_weights = "fp4", kv = "fp8" }),
  pools = {
    mixed = pool {
      role = "mixed", machine = require "hardware.b200", count = 1, shardings = { { data = 8, expert = 8 } },
      engine = require "engines.trtllm",
      batch_max = 896, token_budget = 2048, prefix_cache = false, queue_max = 8192,
    },
  },
  -- Three times as many requests as clients, ramp and end among them.
  load = closed { concurrency = 7168, requests = 21504, prompt = 1024, output = 2048 },
  targets = {},
  expect = function(r)
    check(r.completed == 21504, "every request is served")
    check(r.output_tokens_per_s > 0.85 * 43146 and r.output_tokens_per_s < 1.15 * 43146,
          "within 15 % of what was measured")
    check(r.output_tokens_per_s > 0.9 * 46580 and r.output_tokens_per_s < 1.1 * 46580,
          "within a tenth of what this predicted when it was written")
  end,
}
