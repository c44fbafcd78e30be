-- 8 x B200 SXM 180 GB with a 400 Gbit/s ConnectX-7 beside each GPU.
local fabrics = require "hardware.fabrics"

return machine {
  name = "B200 SXM, ConnectX-7",
  gpu = "B200",
  gpus = 8,                      -- HGX baseboard
  memory = GiB(180),             -- ai-dynamo/aiconfigurator@095f58a, systems/b200_sxm.yaml
  memory_bandwidth = TB_s(8),    -- SemiAnalysisAI/InferenceX-app@77ca49a, gpu-specs.ts; aiconfigurator says 7.7
  bf16 = TFLOPS(2250),           -- dense; SemiAnalysisAI/InferenceX-app@77ca49a, gpu-specs.ts
  fp8 = TFLOPS(4500),            -- dense; InferenceX-app@77ca49a
  fp4 = TFLOPS(9000),            -- dense; InferenceX-app@77ca49a
  nvlink = GB_s(900),            -- one direction; InferenceX-app@77ca49a
  nic = fabrics.connectx7,       -- 400 Gbit/s a GPU; InferenceX-app@77ca49a
  watcher = us(6.2),             -- p50 of the layer watcher, measured on Hopper; arXiv 2510.27656
  poll = us(2),                  -- assumed: a completion queue that is polled without pause
  message = us(15),              -- assumed: one small write and its handling
  price = usd_per_hour(2.90),    -- a GPU; InferenceX-app@77ca49a, constants.ts
  price_basis = "rental, InferenceX cost model, 2026-04-03",
}
