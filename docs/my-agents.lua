-- Agents: a long first prompt, then short turns whose history the decoder that answered the last one still has.
local h200 = require "hardware.h200"

return scenario {
  question = "Which prompts should a decoder compute itself?",
  model = require "models.llama-3.1-70b",
  pools = {
    prefill = pool { role = "prefill", machine = h200, count = 1, shardings = { { tensor = 4 } } },
    decode = pool { role = "decode", machine = h200, count = 2, shardings = { { tensor = 4 } }, chunk = 512 },
  },
  routing = { decode = "prefix_aware", prefill = "prefix_aware" },
  load = sessions {
    rate = per_second(7),
    requests = 2000,
    turns = uniform(4, 12),
    think = s(10),
    first = uniform(2000, 12000),
    prompt = uniform(50, 300),
    output = 300,
  },
  targets = { ttft { p = 95, below = s(2) }, tpot { p = 95, below = ms(25) } },
  vary = { ["routing.max_local_prefill_length"] = { 0, 1000, 100000 } },
}
