-- Llama-3.1-70B in bf16. Values: config.json of meta-llama/Llama-3.1-70B.
return model {
  name = "Llama-3.1-70B",
  attention = "gqa",     -- model_type llama
  layers = 80,           -- num_hidden_layers
  hidden = 8192,         -- hidden_size
  heads = 64,            -- num_attention_heads
  kv_heads = 8,          -- num_key_value_heads
  head_dim = 128,        -- hidden_size / num_attention_heads
  vocab = 128256,        -- vocab_size
  intermediate = 28672,  -- intermediate_size
  weights = "bf16",      -- torch_dtype
  kv = "bf16",           -- torch_dtype
}
