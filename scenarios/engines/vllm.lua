-- vLLM.
return engine {
  kernels = "vllm",
  host = ms(0.5),          -- as neutral: what is left of a step's work with asynchronous scheduling
  mixes = true,            -- chunked prefill: prompts and decoding sequences share a step
  graph_step = 8,          -- cudagraph_capture_sizes: 1, 2, 4, then multiples of 8
  graph_max = 512,         -- max_cudagraph_capture_size
}
