-- A machine without a GPU whose steps were measured, by hand: for tests of replay.
return machine {
  name = "measured by hand",
  gpus = 8,
  memory = MiB(96),
  memory_bandwidth = GB_s(8),
  bf16 = TFLOPS(0.01),
  nvlink = GB_s(4),
  nic = nic { name = "loopback", base = us(30), bandwidth = GB_s(2), gap = us(2), knee = 1.0, posting = us(1),
              queue_depth = 64 },
  watcher = us(50),
  poll = us(50),
  message = us(100),
  price = usd_per_hour(0.01),
  price_basis = "none",
  steps = {
    steps {
      model = "tiny-gqa",
      sharding = { tensor = 2 },
      first_layer = us(900),
      prefill = { tokens = { 1, 16, 128 }, keys = { 1, 200 },
                  time = { { us(400), us(600) }, { us(900), us(1200) }, { us(5900), us(6500) } } },
    },
    steps {
      model = "tiny-gqa",
      sharding = { tensor = 1 },
      first_layer = us(100),
      decode = { sequences = { 1, 16 }, context = { 16, 4096 },
                 time = { { us(400), us(600) }, { us(2900), us(3500) } } },
    },
  },
}
