-- The main job, second half: Qwen3-Coder-480B (GQA with 8 KV heads, mixture of experts), with tensor parallelism.
--
-- The trace is an hour of Azure's conversation service (mean 1,155 tokens in, 211 out). Its arrivals are stretched or
-- squeezed to each rate that the planner tries; lengths and burstiness are as recorded.
local h200 = require "hardware.h200"

return scenario {
  question = "How many prefillers and decoders for Qwen3-Coder-480B on the Azure conversation trace?",
  model = require "models.qwen3-coder-480b",

  pools = {
    prefill = pool {
      role = "prefill", machine = h200, plan = { 1, 3 },
      shardings = { { tensor = 8 } },
      token_budget = 16384,
    },
    decode = pool {
      role = "decode", machine = h200, plan = { 1, 5 },
      shardings = { { tensor = 8 } },
      batch_max = 256,
    },
  },

  load = trace { file = "traces/azure-2023-conversation.csv.xz", format = "azure" },
  routing = { decode = "least_kv", prefill = "least_queued_tokens" },

  -- A first token within two seconds and 40 tokens a second while it reads, for 95 in 100 requests.
  targets = {
    ttft { p = 95, below = s(2) },
    tpot { p = 95, below = ms(25) },
    attainment = percent(90),
  },

  plan = { goal = "highest_rate", nodes = 6, requests = 20000, seeds = 3, compare_mixed = true },
}
