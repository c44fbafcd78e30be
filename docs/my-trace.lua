local h100 = require "hardware.h100"

return scenario {
  question = "How do four recorded requests fare?",
  model = require "models.llama-3.1-8b",
  pools = {
    prefill = pool { role = "prefill", machine = h100, shardings = { { tensor = 1 } } },
    decode = pool { role = "decode", machine = h100, shardings = { { tensor = 1 } } },
  },
  load = trace { file = "requests.csv", format = "csv" },
}
