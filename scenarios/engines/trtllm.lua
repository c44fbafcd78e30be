-- TensorRT-LLM.
return engine {
  kernels = "trtllm",
  host = ms(0.5),          -- as neutral: what its overlap scheduler leaves
  prefill_experts = percent(120), -- chosen on the rows of validation/serving.csv.xz that are not quoted
  memory_share = "free",   -- free_gpu_memory_fraction: for KV, of what weights and activations leave
  mixes = true,            -- in-flight batching
  graph_step = 8,          -- cuda_graph_config with padding: 1, 2, 4, then multiples of 8
  graph_max = 128,         -- cuda_graph_config.max_batch_size, its default
}
