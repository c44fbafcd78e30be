-- The NICs beside the GPUs. One write of b bytes takes base + b / bandwidth; in a stream of paged writes each takes
-- (gap^knee + (b / bandwidth)^knee)^(1 / knee). Fitted to Table 2 of arXiv 2510.27656.

return {
  -- NVIDIA ConnectX-7, 400 Gbit/s, one a GPU.
  connectx7 = nic {
    name = "ConnectX-7 400G",
    base = us(11.2),         -- Table 2: single writes of 64 KiB to 32 MiB
    bandwidth = GB_s(46.8),  -- Table 2: the same fit; 45 to 47 of 50 GB/s are usual
    gap = ns(86),            -- Table 2: paged writes, 11.1 M a second at 1 KiB
    knee = 1.75,             -- Table 2: paged writes of 1 to 64 KiB
    posting = ns(86),        -- 86 to 152 ns of the posting thread a write; the paged figures were reached at 86
    queue_depth = 256,       -- assumed: a usual send queue; the fit has no such limit
  },

  -- NVIDIA ConnectX-6, 200 Gbit/s: half of the rate of the ConnectX-7 fit, else the same. Assumed, not measured.
  connectx6 = nic {
    name = "ConnectX-6 200G",
    base = us(11.2),
    bandwidth = GB_s(23.4),
    gap = ns(86),
    knee = 1.75,
    posting = ns(86),
    queue_depth = 256,
  },

  -- AWS EFA, 2 x 200 Gbit/s a GPU.
  efa = nic {
    name = "EFA 2x200G",
    base = us(32.2),         -- Table 2: single writes
    bandwidth = GB_s(43.3),  -- Table 2: single writes
    gap = ns(474),           -- Table 2: paged writes, 2.11 M a second from one posting thread
    knee = 8,                -- Table 2: nearly a maximum of the two
    posting = ns(500),       -- about 500 ns a write: EFA has no batched doorbell
    queue_depth = 256,       -- assumed
  },
}
