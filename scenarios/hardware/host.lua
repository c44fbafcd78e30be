-- A machine without GPUs as the real runtime uses it: an executor process is a "GPU". The figures are of a small shared
-- machine and only good for a first look; `tandem calibrate` measures them where it runs.
return machine {
  name = "host",
  gpu = "A100",                  -- selects efficiencies; a calibrated profile does not need them
  gpus = 8,                      -- executors a machine
  memory = MiB(96),              -- an executor's share: weights, activations and KV of a tiny model
  memory_bandwidth = GB_s(8),    -- one core's, assumed
  bf16 = TFLOPS(0.01),           -- one core's f32, assumed
  nvlink = GB_s(4),              -- shared memory between executors, assumed
  nic = nic {
    name = "loopback",
    base = us(30),               -- assumed: a wake-up on each side
    bandwidth = GB_s(2),         -- assumed
    gap = us(2),                 -- assumed
    knee = 1.0,
    posting = us(1),             -- assumed
    queue_depth = 64,
  },
  watcher = us(50),              -- assumed: the fabric thread naps
  poll = us(50),                 -- assumed
  message = us(100),             -- assumed: two wake-ups
  price = usd_per_hour(0.01),
  price_basis = "nominal: a core of a machine that is there anyway",
}
