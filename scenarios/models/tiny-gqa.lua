-- A model for the real runtime on a CPU: every part of a grouped-query transformer, in the smallest sizes that eight ranks
-- can share. Its weights come from a seed.
return model {
  name = "tiny-gqa",
  attention = "gqa",
  layers = 4,
  hidden = 128,
  heads = 8,
  kv_heads = 8,
  head_dim = 16,
  vocab = 512,
  intermediate = 256,
  weights = "bf16",
  kv = "bf16",
  tail = bytes((128 + 512) * 4), -- hidden state and logits of the last position, f32
  tail_writes = 1,
}
