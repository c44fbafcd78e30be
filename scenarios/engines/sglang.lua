-- SGLang.
return engine {
  kernels = "sglang",
  host = ms(0.5),          -- as neutral: what its overlapped scheduler leaves
  host_sequence = us(45),  -- chosen on the rows of validation/serving.csv.xz that are not quoted
  memory_share = "static", -- mem_fraction_static: of the GPU, for weights and KV; activations lie beside it
  mixes = false,           -- enable_mixed_chunk is off: prompts go first, in steps of their own
  graph_step = 8,          -- cuda_graph_bs: 1, 2, 4, 8, then multiples of 8
  graph_max = 512,         -- cuda_graph_max_bs, as the benchmarks set it
}
