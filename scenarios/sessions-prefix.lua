-- Conversations: what the prefix cache of prefillers is worth where every turn repeats what was said before.
return scenario {
  question = "How much of the prompts of a chat service do its prefillers not have to compute again?",
  model = require "models.llama-3.1-70b",
  pools = {
    prefill = pool { role = "prefill", machine = require "hardware.h100", count = 2, shardings = { { tensor = 4 } } },
    decode = pool { role = "decode", machine = require "hardware.h100", count = 2, shardings = { { tensor = 4 } } },
  },
  load = sessions {
    rate = per_second(4), requests = 3000, warmup_requests = 300,
    turns = uniform(2, 8), think = s(20), system = 600,
    prompt = uniform(40, 400), output = uniform(100, 400),
  },
  routing = { prefill = "prefix_aware", decode = "least_kv" },
  targets = { ttft { p = 95, below = s(1) }, tpot { p = 95, below = ms(40) } },
  expect = function(r)
    check(r.completed + r.warmup_requests == 3000, "every turn is answered")
    check(r.cached_share > 0.4, "two fifths of the prompts were there before")
  end,
}
