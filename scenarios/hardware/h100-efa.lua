-- AWS p5.48xlarge: 8 x H100 SXM 80 GB, EFA with 400 Gbit/s a GPU. Line rate reached: 389 of 400 (arXiv 2510.27656).
local fabrics = require "hardware.fabrics"

return with(require "hardware.h100", {
  name = "H100 SXM, EFA (AWS p5)",
  nic = fabrics.efa,           -- 32 devices of 100 Gbit/s a node, 400 Gbit/s a GPU; meta-pytorch/torchx PR 1098
  message = us(40),            -- assumed: one small write over EFA and its handling
  price = usd_per_hour(3.90),  -- a GPU; costnimbus.com, 2026-03. Sources disagree: 3.9 to 12.3 $
  price_basis = "on demand, AWS p5, 2026-03; sources disagree",
})
