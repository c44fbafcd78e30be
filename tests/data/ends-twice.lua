-- Found and shrunk by `tandem fuzz`: an answer is lost with the instance that sent it, so the request ends once more
-- when the next attempt does. The clean-up that follows the end of the run must not stop there.
return scenario {
  question = "Is everything given back when a request ends twice?",
  model = model { name = "drawn", attention = "gqa", layers = 1, hidden = 8, heads = 8, kv_heads = 4, head_dim = 2,
                  vocab = 1048576, intermediate = 8, weights = "bf16", expert_weights = "bf16", kv = "fp8" },
  pools = {
    mixed = pool {
      role = "mixed", count = 2, page = 16, memory_utilization = percent(100), queue = "earliest_deadline",
      token_budget = 9, batch_max = 5, headroom = 30, prefix_cache = false, repeat_max = 1, shardings = { {} },
      engine = engine { receive = 2 },
      machine = machine {
        name = "drawn", gpus = 1, memory = bytes(54539312), memory_bandwidth = TB_s(1), bf16 = TFLOPS(100),
        nvlink = GB_s(100), watcher = s(0), poll = s(0), message = us(16.213), price = usd_per_hour(0),
        price_basis = "none",
        nic = nic { name = "drawn", base = us(2), bandwidth = GB_s(0.001), gap = ns(138.216), knee = 1.75,
                    posting = ns(99.917), queue_depth = 1 },
        steps = { steps { model = "drawn", first_layer = us(3.751), sharding = {},
          prefill = { tokens = { 1, 64 }, keys = { 1, 512 },
                      time = { { ns(15000), ns(30000) }, { ns(60000), ns(90000) } } },
          decode = { sequences = { 1, 16 }, context = { 1, 4096 },
                     time = { { ns(15000), ns(30000) }, { ns(30000), ns(60000) } } } } },
      },
    },
  },
  load = listed { block = 16, requests = { { prompt = 20, output = 1 } } },
  routing = { decode = "round_robin", prefill = "round_robin" },
  messenger = { deadline = never, attempts_max = 2, handoffs_max = 1 },
  faults = {
    kill { node = "mixed-0", at = us(97.656) },
    kill { node = "mixed-1", back = us(56.797) },
    late { skip = 3, delay = s(3.5) },
  },
}
