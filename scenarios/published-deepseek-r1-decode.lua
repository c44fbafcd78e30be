-- A published deployment: DeepSeek's own decoders of V3/R1, 18 nodes of eight H800, attention data-parallel,
-- experts spread over 144 GPUs with 32 more of them, drafts of one token (deepseek-ai/open-infra-index@56d8685,
-- day 6): 14,800 tokens/s a node and 20 to 22 tokens/s of a user in the mean of a day, 4,989 tokens cached in the
-- mean: about 88 sequences a GPU. The H800 computes as the H100 does and has half its NVLink. How many drafts were
-- accepted is not said for that day; 85 % are assumed, what their report gives (arXiv 2412.19437).
local h800 = with(require "hardware.h100", { name = "H800 SXM", nvlink = GB_s(200) })

return scenario {
  question = "How many tokens a second does a user get from 18 H800 nodes with experts over 144 GPUs?",
  model = require "models.deepseek-r1",
  pools = {
    prefill = pool {
      role = "prefill", machine = h800, count = 4, shardings = { { data = 32, expert = 32 } }, redundant_experts = 32,
      engine = engine { kernels = "sglang", host = ms(0.5), mixes = false, overlap = percent(100) },
      token_budget = 16384,
    },
    decode = pool {
      role = "decode", machine = h800, count = 1, shardings = { { data = 144, expert = 144 } }, redundant_experts = 32,
      draft = { tokens = 1, acceptance = percent(85) }, batch_max = 128,
      engine = engine { kernels = "sglang", host = ms(0.5), mixes = false, overlap = percent(100) },
    },
  },
  -- What was reported is of a full batch: `tandem explain --step BATCH,CONTEXT` shows its step. The load is light.
  load = closed { concurrency = 256, requests = 1024, warmup_requests = 256, prompt = 4600, output = 778 },
  messenger = { handoffs_max = 4096 },
  targets = {},
  expect = function(r)
    check(r.completed == 1024, "every request is served")
  end,
}
