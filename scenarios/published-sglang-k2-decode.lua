-- A published deployment: SGLang's decoders of Kimi-K2 on twelve nodes of eight H200, experts spread over 96 GPUs,
-- 96 redundant, 480 requests a GPU of 2,000 tokens in and 100 out: 288,000 tokens/s (lm-sys.github.io@09af7ee,
-- 2025-07-20, k2-large-scale-ep). Prompts cost a thousandth here. Ours is 25 % faster, as it is for R1 on that
-- engine (published-sglang-r1-decode).
return scenario {
  question = "How many tokens a second do twelve H200 nodes of Kimi-K2 with experts over 96 GPUs decode?",
  model = require "models.kimi-k2",
  pools = {
    decode = pool {
      role = "mixed", machine = require "hardware.h200", count = 1,
      shardings = { { data = 96, expert = 96 } }, redundant_experts = 96,
      engine = engine { kernels = "sglang", host = ms(0.5), mixes = false, prefill = percent(0.1) },
      batch_max = 480, token_budget = 16384, headroom = 128, prefix_cache = false, queue_max = 65536,
    },
  },
  load = closed { concurrency = 46080, requests = 92160, warmup_requests = 46080, prompt = 2000, output = 100 },
  targets = {},
  expect = function(r)
    local rate = 96 * 480 * 1000 / r.tpot_ms.mean
    check(r.completed + r.warmup_requests == 92160, "every request is served")
    check(rate > 0.9 * 360600 and rate < 1.1 * 360600, "within a tenth of what this predicted when it was written")
    check(rate > 288000 and rate < 1.4 * 288000, "between what was reported and 40 % more")
  end,
}
