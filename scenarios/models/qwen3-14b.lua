-- Qwen3-14B in bf16. Values: config.json of Qwen/Qwen3-14B.
return model {
  name = "Qwen3-14B",
  attention = "gqa",
  layers = 40,            -- num_hidden_layers
  hidden = 5120,          -- hidden_size
  heads = 40,             -- num_attention_heads
  kv_heads = 8,           -- num_key_value_heads
  head_dim = 128,         -- head_dim
  vocab = 151936,         -- vocab_size
  intermediate = 17408,   -- intermediate_size
  weights = "bf16",       -- torch_dtype
  kv = "bf16",
}
