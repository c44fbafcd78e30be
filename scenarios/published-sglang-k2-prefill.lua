-- A published deployment: SGLang's prefill of Kimi-K2 on four nodes of eight H200, experts spread over 32 GPUs, 96
-- redundant (lm-sys.github.io@09af7ee, 2025-07-20, k2-large-scale-ep): 224,000 tokens/s at prompts of 2,000,
-- measured with decoders at work. Ours is 5 % slower with none of the exchange hidden and 95 % faster with all of
-- it, at no cost.
return scenario {
  question = "How many prompt tokens a second do four H200 nodes of Kimi-K2 with experts over 32 GPUs compute?",
  model = require "models.kimi-k2",
  pools = {
    prefill = pool {
      role = "mixed", machine = require "hardware.h200", count = 1,
      shardings = { { data = 32, expert = 32 } }, redundant_experts = 96,
      engine = engine { kernels = "sglang", host = ms(0.5), mixes = false },
      token_budget = 16384, prefix_cache = false,
    },
  },
  load = closed { concurrency = 1024, requests = 4096, prompt = 2000, output = 1 },
  targets = {},
  vary = { ["pools.prefill.engine.overlap"] = { percent(0), percent(100) } },
  expect = function(r)
    local hidden, rate = r.params["pools.prefill.engine.overlap"], r.prompt_tokens / r.duration_s
    local before = hidden == "percent(0)" and 213400 or 436900
    check(r.completed == 4096, "every prompt is computed")
    check(rate > 0.9 * before and rate < 1.1 * before, "within a tenth of what this predicted when it was written")
    if hidden == "percent(0)" then
      check(rate < 224000 and rate > 0.8 * 224000, "at most a fifth slower with nothing hidden")
    else
      check(rate > 224000, "faster with all of it hidden")
    end
  end,
}
