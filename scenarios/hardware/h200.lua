-- 8 x H200 SXM 141 GB with a 400 Gbit/s ConnectX-7 beside each GPU.
local fabrics = require "hardware.fabrics"

return machine {
  name = "H200 SXM, ConnectX-7",
  gpu = "H200",
  gpus = 8,                      -- HGX baseboard
  memory = GiB(141),             -- ai-dynamo/aiconfigurator@095f58a, systems/h200_sxm.yaml
  memory_bandwidth = TB_s(4.8),  -- the same; SemiAnalysisAI/InferenceX-app@77ca49a, gpu-specs.ts
  bf16 = TFLOPS(989),            -- dense; InferenceX-app@77ca49a
  fp8 = TFLOPS(1979),            -- dense; InferenceX-app@77ca49a
  nvlink = GB_s(450),            -- one direction; InferenceX-app@77ca49a
  nic = fabrics.connectx7,       -- 400 Gbit/s a GPU; InferenceX-app@77ca49a
  watcher = us(6.2),             -- p50 of the layer watcher; arXiv 2510.27656
  poll = us(2),                  -- assumed: a completion queue that is polled without pause
  message = us(15),              -- assumed: one small write and its handling
  price = usd_per_hour(1.60),    -- a GPU; InferenceX-app@77ca49a, constants.ts
  price_basis = "rental, InferenceX cost model, 2026-04-03",
}
