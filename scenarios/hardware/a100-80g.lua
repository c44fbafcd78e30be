-- 8 x A100 SXM 80 GB with a 200 Gbit/s ConnectX-6 beside each GPU.
local fabrics = require "hardware.fabrics"

return machine {
  name = "A100 SXM 80G, ConnectX-6",
  gpu = "A100",
  gpus = 8,                        -- HGX baseboard
  memory = GiB(80),                -- ai-dynamo/aiconfigurator@095f58a, systems/a100_sxm.yaml
  memory_bandwidth = TB_s(2.039),  -- the same
  bf16 = TFLOPS(312),              -- dense; the same. No fp8 units: fp8 weights are computed in bf16
  nvlink = GB_s(300),              -- one direction; the same
  nic = fabrics.connectx6,         -- 25 GB/s a GPU between nodes; the same
  watcher = us(6.2),               -- p50 of the layer watcher, measured on Hopper; arXiv 2510.27656
  poll = us(2),                    -- assumed: a completion queue that is polled without pause
  message = us(15),                -- assumed: one small write and its handling
  price = usd_per_hour(1.84),      -- a GPU: 14.75 $ an hour for 8 of 40 GB; no price of 80 GB is at hand
  price_basis = "capacity block, AWS p4d.24xlarge (40 GB GPUs), 2024-Q4",
}
