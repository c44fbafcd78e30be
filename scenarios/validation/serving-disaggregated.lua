-- As serving.lua, prefill and decode apart.
return scenario {
  question = "What do the clients of a closed loop see of prefillers and decoders?",
  model = require "models.llama-3.1-70b",
  pools = {
    prefill = pool { role = "prefill", machine = require "hardware.h200", shardings = { { tensor = 8 } } },
    decode = pool { role = "decode", machine = require "hardware.h200", shardings = { { tensor = 8 } } },
  },
  routing = { decode = "round_robin", prefill = "round_robin" }, -- Dynamo's default
  load = closed { concurrency = 64, requests = 640, prompt = uniform(820, 1024), output = uniform(820, 1024) },
}
