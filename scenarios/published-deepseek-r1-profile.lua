-- A published deployment: DeepSeek's own decoders of V3/R1 as their profile shows them, experts over 128 H800, 128
-- sequences a GPU of 4,096 tokens, nothing drafted: 18,598 tokens/s a node, which SGLang's authors derived from
-- deepseek-ai/profile-data (lm-sys.github.io@2db4e40, 2025-05-05, large-scale-ep). Experts were chosen evenly there;
-- 32 redundant ones, as DeepSeek serves with, come close to that. Prompts cost a thousandth.
--
-- Two batches in turn hide exchange behind computing. Ours is 8 % slower where nothing is hidden and 65 % faster
-- where all of it is, at no cost: each of two batches reads the experts and waits for the floors of its kernels by
-- itself.
local h800 = with(require "hardware.h100", { name = "H800 SXM", nvlink = GB_s(200) })
local ours = { ["percent(0)"] = 17000, ["percent(100)"] = 30800 }

return scenario {
  question = "How many tokens a second do 16 H800 nodes with experts over 128 GPUs decode from a full batch?",
  model = require "models.deepseek-r1",
  pools = {
    decode = pool {
      role = "mixed", machine = h800, count = 1, shardings = { { data = 128, expert = 128 } }, redundant_experts = 32,
      engine = engine { kernels = "sglang", host = ms(0.5), mixes = false, prefill = percent(0.1) },
      batch_max = 128, token_budget = 16384, headroom = 256, prefix_cache = false, queue_max = 65536,
    },
  },
  load = closed { concurrency = 16384, requests = 32768, warmup_requests = 16384, prompt = 4000, output = 192 },
  targets = {},
  vary = { ["pools.decode.engine.overlap"] = { percent(0), percent(100) } },
  expect = function(r)
    local hidden, rate = r.params["pools.decode.engine.overlap"], 8 * 128 * 1000 / r.tpot_ms.mean
    check(r.completed + r.warmup_requests == 32768, "every request is served")
    check(rate > 0.9 * ours[hidden] and rate < 1.1 * ours[hidden],
          "within a tenth of what this predicted when it was written")
    if hidden == "percent(0)" then
      check(rate < 18598 and rate > 0.8 * 18598, "at most a fifth slower with nothing hidden")
    else
      check(rate > 18598, "faster with all of it hidden")
    end
  end,
}
