-- Short prompts, and those of which a decoder has enough cached, are computed where they are decoded, and so is what a
-- decoder has preempted; the others come from a prefiller. A mixed instance takes what is too much for them.
local host = require "hardware.host"

return scenario {
  question = "Do prompts that decoders compute themselves give the right tokens?",
  model = require "models.tiny-gqa",
  pools = {
    prefill = pool { role = "prefill", machine = host, count = 1, shardings = { { tensor = 1 } }, page = 16,
                     token_budget = 128, chunk = 64, memory_utilization = percent(30) },
    decode = pool { role = "decode", machine = host, count = 1, shardings = { { tensor = 2 } }, page = 16,
                    token_budget = 64, chunk = 32, batch_max = 16, headroom = 1, memory_utilization = percent(4) },
    both = pool { role = "mixed", machine = host, count = 1, shardings = { { tensor = 1 } }, page = 16,
                  token_budget = 64, chunk = 32, batch_max = 16, headroom = 64, memory_utilization = percent(30) },
  },
  routing = { max_local_prefill_length = 48, max_prefill_queue_size = 4, prompt_max_pending_batch_tokens = 200 },
  load = sessions {
    rate = per_second(20),
    requests = 60,
    turns = uniform(1, 5),
    think = ms(50),
    block = 16,
    system = 32,
    first = uniform(1, 120),
    prompt = uniform(1, 40),
    output = uniform(1, 40),
  },
  messenger = { deadline = s(30), handoffs_max = 32 },
  expect = function(r)
    check(r.completed == 60, "every request completes")
  end,
}
