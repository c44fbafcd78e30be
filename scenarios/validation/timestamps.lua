-- The frame of a vLLM server whose requests were recorded one by one: `tandem validate` puts in the pages, the batch,
-- the requests, and a device that looks its steps up in a profiler's tables. Of the machine only the name counts.
local gpu = with(require "hardware.h100", { name = "one GPU", gpus = 1 })

return scenario {
  question = "When does each request of a recorded server get its tokens?",
  model = require "models.llama-3.1-8b",
  pools = {
    mixed = pool {
      role = "mixed", machine = gpu, shardings = { { tensor = 1 } }, engine = "vllm", page = 16,
      token_budget = 2048, batch_max = 128, headroom = 1, prefix_cache = false,
    },
  },
  load = closed { concurrency = 1, requests = 1, prompt = 1, output = 1 },
}
