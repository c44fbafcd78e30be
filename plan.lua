local h200 = require 'hardware.h200'
return scenario {
  question = 'How many decoders?',
  model = require 'models.llama-3.1-8b',
  pools = {
    prefill = pool {
      role = 'prefill', machine = h200,
      count = 1, plan = {1, 4},
      shardings = { { tensor = 2 },
                    { tensor = 1 } },
      token_budget = 16384,
    },
    decode = pool { role = 'decode', machine = h200, count = 2,
      shardings = { { tensor = 2 } },
      batch_max = 128, page = 32,
      queue = 'shortest_first' },
  },
  load = poisson {
    rate = per_second(2.5),
    prompt = uniform(512, 2048),
    output = quantiles { [0] = 1, [500] = 100, [1000] = 900 },
    requests = 100, warmup = ms(1500),
  },
  routing = { decode = 'power_of_two' },
  targets = { ttft { p = 95, below = s(2) },
    tpot { p = 99.9, below = ms(25) }, attainment = percent(90) },
  plan = { nodes = 8, seeds = 5 },
}
