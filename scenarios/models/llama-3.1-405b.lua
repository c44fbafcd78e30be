-- Llama-3.1-405B in bf16. Values: config.json of meta-llama/Llama-3.1-405B.
return model {
  name = "Llama-3.1-405B",
  attention = "gqa",     -- model_type llama
  layers = 126,           -- num_hidden_layers
  hidden = 16384,         -- hidden_size
  heads = 128,            -- num_attention_heads
  kv_heads = 8,          -- num_key_value_heads
  head_dim = 128,        -- hidden_size / num_attention_heads
  vocab = 128256,        -- vocab_size
  intermediate = 53248,  -- intermediate_size
  weights = "bf16",      -- torch_dtype
  kv = "bf16",           -- torch_dtype
}
