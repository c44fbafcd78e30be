-- The frame of a measured serving run: `tandem validate` puts in the model, the machine, the sharding, the engine and
-- the load of each row.
return scenario {
  question = "What do the clients of a closed loop see of one instance?",
  model = require "models.llama-3.1-70b",
  pools = {
    mixed = pool { role = "mixed", machine = require "hardware.h200", shardings = { { tensor = 8 } } },
  },
  load = closed { concurrency = 64, requests = 640, prompt = uniform(820, 1024), output = uniform(820, 1024) },
}
