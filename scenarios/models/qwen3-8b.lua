-- Qwen3-8B in bf16. Values: config.json of Qwen/Qwen3-8B.
return model {
  name = "Qwen3-8B",
  attention = "gqa",
  layers = 36,            -- num_hidden_layers
  hidden = 4096,          -- hidden_size
  heads = 32,             -- num_attention_heads
  kv_heads = 8,           -- num_key_value_heads
  head_dim = 128,         -- head_dim
  vocab = 151936,         -- vocab_size
  intermediate = 12288,   -- intermediate_size
  weights = "bf16",       -- torch_dtype
  kv = "bf16",
}
