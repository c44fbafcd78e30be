-- A published deployment: SGLang's decoders of DeepSeek-R1 on twelve trays of four GB200, experts in nvfp4 spread
-- over 48 GPUs, attention in fp8, 1,408 requests a GPU of 2,000 tokens in: 13,386 tokens/s a GPU
-- (lm-sys.github.io@0f32018, 2025-09-25, gb200-part-2). Answers of 100 tokens are assumed, as in that series before;
-- prompts cost a thousandth. Ours is 25 % slower: half of a step is latent attention of 1,408 sequences, which no
-- table of this GPU reaches, and a quarter is experts, timed by another engine's kernels.
return scenario {
  question = "How many tokens a second does a GB200 decode where experts are spread over 48 of a rack?",
  model = with(require "models.deepseek-r1", { expert_weights = "fp4", kv = "fp8" }),
  pools = {
    decode = pool {
      role = "mixed", machine = require "hardware.gb200", count = 1,
      shardings = { { data = 48, expert = 48 } }, redundant_experts = 32,
      engine = engine { kernels = "sglang", host = ms(0.5), mixes = false, prefill = percent(0.1) },
      batch_max = 1408, token_budget = 65536, headroom = 128, prefix_cache = false, queue_max = 131072,
    },
  },
  load = closed { concurrency = 67584, requests = 135168, warmup_requests = 67584, prompt = 2000, output = 100 },
  targets = {},
  expect = function(r)
    local rate = 1408 * 1000 / r.tpot_ms.mean
    check(r.completed + r.warmup_requests == 135168, "every request is served")
    check(rate > 0.9 * 10090 and rate < 1.1 * 10090, "within a tenth of what this predicted when it was written")
    check(rate < 13386 and rate > 0.65 * 13386, "at most 35 % less than was reported")
  end,
}
