-- A published deployment: vLLM's decoder of DeepSeek-R1 on eight GB200, attention data-parallel, experts in nvfp4
-- spread over all eight, 2,048 tokens in and 2,048 out: 10,100 tokens/s a GPU (vllm-project.github.io@c3a01c4,
-- 2026-02-03, dsr1-gb200-part1). How many requests there were is not said: as many as memory holds, an fp8 cache,
-- whole answers reserved: ours is 12 % slower. Prompts cost a thousandth, for they were computed elsewhere. Its
-- prefillers of two GPUs each are not here: by our count their weights do not fit.
return scenario {
  question = "How many tokens a second does vLLM decode on eight GB200 that hold all of DeepSeek-R1?",
  model = with(require "models.deepseek-r1", { expert_weights = "fp4", kv = "fp8" }),
  pools = {
    decode = pool {
      role = "mixed", machine = require "hardware.gb200", count = 1, shardings = { { data = 8, expert = 8 } },
      engine = engine { kernels = "vllm", host = ms(0.5), prefill = percent(0.1) },
      batch_max = 1024, reserve_output = true, prefix_cache = false, queue_max = 8192,
    },
  },
  -- Answers of 2,048 in the mean, so that not all end at once.
  load = closed { concurrency = 6144, requests = 30720, prompt = 2048, output = uniform(1640, 2456) },
  targets = {},
  expect = function(r)
    local rate = r.output_tokens_per_s / 8
    check(r.completed == 30720, "every request is served")
    check(rate > 0.9 * 8870 and rate < 1.1 * 8870, "within a tenth of what this predicted when it was written")
    check(rate > 0.75 * 10100 and rate < 1.25 * 10100, "within a quarter of what was reported")
  end,
}
