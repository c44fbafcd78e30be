-- 4 x GB200 a tray; 72 GPUs of a rack share NVLink, of which this file sees a tray. 400 Gbit/s ConnectX-7 a GPU.
local fabrics = require "hardware.fabrics"

return machine {
  name = "GB200 NVL72 tray, ConnectX-7",
  gpu = "GB200",
  gpus = 4,                      -- SemiAnalysisAI/InferenceX-app@77ca49a, gpu-specs.ts
  nvlink_gpus = 72,              -- of a rack
  memory = GiB(185),             -- 198.7e9 bytes; ai-dynamo/aiconfigurator@095f58a, systems/gb200.yaml
  memory_bandwidth = TB_s(8),    -- InferenceX-app@77ca49a
  bf16 = TFLOPS(2500),           -- dense; InferenceX-app@77ca49a
  fp8 = TFLOPS(5000),            -- dense; InferenceX-app@77ca49a
  fp4 = TFLOPS(10000),           -- dense; InferenceX-app@77ca49a
  nvlink = GB_s(900),            -- one direction; InferenceX-app@77ca49a
  nic = fabrics.connectx7,       -- assumed: as beside B200; NVL72 racks are also sold with 800 Gbit/s
  watcher = us(6.2),             -- p50 of the layer watcher, measured on Hopper; arXiv 2510.27656
  poll = us(2),                  -- assumed: a completion queue that is polled without pause
  message = us(15),              -- assumed: one small write and its handling
  price = usd_per_hour(3.30),    -- a GPU; InferenceX-app@77ca49a, constants.ts
  price_basis = "rental, InferenceX cost model, 2026-04-03",
}
