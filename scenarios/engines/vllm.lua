-- vLLM.
return engine {
  kernels = "vllm",
  host = ms(0.2),          -- what is left of a step with asynchronous scheduling; this and the next were chosen on the
  host_sequence = us(18),  -- rows of validation/serving.csv.xz that are not quoted
  prefill = percent(110),  -- of the kernels: what lies between them where no graph holds them; chosen on the same rows,
  prefill_experts = percent(160), -- as is this
  mixes = true,            -- chunked prefill: prompts and decoding sequences share a step
  graph_step = 8,          -- cudagraph_capture_sizes: 1, 2, 4, then multiples of 8
  memory_share = "gpu",    -- gpu_memory_utilization: of the GPU, for weights, activations and KV
  graph_max = 512,         -- max_cudagraph_capture_size
}
