-- Qwen3-32B in bf16. Values: config.json of Qwen/Qwen3-32B.
return model {
  name = "Qwen3-32B",
  attention = "gqa",
  layers = 64,            -- num_hidden_layers
  hidden = 5120,          -- hidden_size
  heads = 64,             -- num_attention_heads
  kv_heads = 8,           -- num_key_value_heads
  head_dim = 128,         -- head_dim
  vocab = 151936,         -- vocab_size
  intermediate = 25600,   -- intermediate_size
  weights = "bf16",       -- torch_dtype
  kv = "bf16",
}
