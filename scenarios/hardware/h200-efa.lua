-- AWS p5en.48xlarge: 8 x H200 SXM 141 GB, EFA with 2 x 200 Gbit/s a GPU. Line rate reached: 365 of 400 (arXiv
-- 2510.27656).
local fabrics = require "hardware.fabrics"

return with(require "hardware.h200", {
  name = "H200 SXM, EFA (AWS p5en)",
  nic = fabrics.efa,            -- 16 x 200 Gbit/s a node, 2 a GPU; uccl-project/uccl, ep/README.md
  message = us(40),             -- assumed: one small write over EFA and its handling
  price = usd_per_hour(7.912),  -- a GPU: 63.296 $ an hour for 8; dstackai/dstack PR 4110
  price_basis = "on demand, AWS p5en.48xlarge, 2026-08-06",
})
