-- What CI runs: tandem's own scenarios, shortened, so that a change of scheduler, messenger or model shows what it
-- does.
return suite {
  question = "Do the shipped scenarios decide as they did, and as well?",
  seeds = 5,
  tolerance = percent(1),
  cases = {
    case { scenario = "w1-llama-70b.lua", set = { ["load.requests"] = 100 } },
    case {
      name = "w1-busy", scenario = "w1-llama-70b.lua", seeds = 10, -- prefillers have queues, and prompts are unlike
      set = { ["load.requests"] = 200, ["load.rate"] = per_second(24), ["load.prompt"] = uniform(128, 4096) },
      watch = { "ttft.p50", "ttft.p95", "tpot.p50", "spans.prefill_queue.mean", "goodput" },
    },
    case { scenario = "llama-8b-rates.lua", set = { ["load.requests"] = 200, ["load.rate"] = per_second(16) } },
    case { scenario = "article-r1-dp8.lua", set = { ["load.requests"] = 60, ["load.warmup"] = s(0) } },
    case {
      scenario = "article-r1-mixed.lua", set = { ["load.requests"] = 60, ["load.warmup"] = s(0) },
      watch = { "ttft.p50", "tpot.p50", "tpot.p95", "itl.p99", "goodput" },
    },
    case { scenario = "mixed-hardware.lua", set = { ["load.requests"] = 80, ["load.warmup"] = s(0) } },
    case { scenario = "layerwise-qwen3-235b.lua", watch = { "ttft.p50", "spans.exposed_transfer.mean" } },
    case { scenario = "real-gqa-2p2d.lua" },
    case { scenario = "real-mla-dp.lua" },
    case { scenario = "real-prefix.lua" },
  },
}
