-- A published deployment: DeepSeek's own decoders of V3/R1, 18 nodes of eight H800, attention data-parallel, experts
-- spread over 144 GPUs with 32 more of them, drafts of one token (deepseek-ai/open-infra-index@56d8685, day 6):
-- 14,800 tokens/s a node and 20 to 22 tokens/s of a user in the mean of a day, 4,989 tokens cached in the mean:
-- about 88 sequences a GPU. The H800 computes as the H100 does and has half its NVLink. How many drafts were
-- accepted is not said for that day; 85 % are assumed, what their report gives (arXiv 2412.19437). Of prefill
-- nothing is asked here: prompts cost a thousandth.
--
-- Where none of the exchange among experts is hidden a user gets 8 % more here than there. Two batches in turn hide
-- some of it there; were all hidden, and for nothing, it would be 95 % more. A day's mean of a changing load is not
-- a full batch.
local h800 = with(require "hardware.h100", { name = "H800 SXM", nvlink = GB_s(200) })

return scenario {
  question = "How many tokens a second does a user get from 18 H800 nodes with experts over 144 GPUs?",
  model = require "models.deepseek-r1",
  pools = {
    decode = pool {
      role = "mixed", machine = h800, count = 1, shardings = { { data = 144, expert = 144 } }, redundant_experts = 32,
      draft = { tokens = 1, acceptance = percent(85) }, batch_max = 88, token_budget = 16384,
      engine = engine { kernels = "sglang", host = ms(0.5), mixes = false, prefill = percent(0.1) },
      prefix_cache = false, queue_max = 65536,
    },
  },
  load = closed { concurrency = 12672, requests = 25344, warmup_requests = 12672, prompt = 4600, output = 778 },
  targets = {},
  vary = { ["pools.decode.engine.overlap"] = { percent(0), percent(100) } },
  expect = function(r)
    local user = 1000 / r.tpot_ms.mean
    check(r.completed + r.warmup_requests == 25344, "every request is served")
    if r.params["pools.decode.engine.overlap"] == "percent(0)" then
      check(user > 0.9 * 22.6 and user < 1.1 * 22.6, "within a tenth of what this predicted when it was written")
      check(user > 0.85 * 21 and user < 1.2 * 21, "a user gets what was reported, within 20 %")
      check(8 * 88 * user > 0.85 * 14800 and 8 * 88 * user < 1.2 * 14800, "and so does a node")
    else
      check(user > 0.9 * 41.0 and user < 1.1 * 41.0, "within a tenth of what this predicted when it was written")
      check(user > 21, "hiding all of the exchange is faster than what was reported")
    end
  end,
}
