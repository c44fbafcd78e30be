-- Llama-2-70B in bf16. Values: microsoft/vidur@7d47513, vidur/config/model_config.py (Llama2_70BModelConfig).
return model {
  name = "Llama-2-70B",
  attention = "gqa",     -- model_type llama
  layers = 80,           -- num_hidden_layers
  hidden = 8192,         -- hidden_size
  heads = 64,            -- num_attention_heads
  kv_heads = 8,          -- num_key_value_heads
  head_dim = 128,        -- hidden_size / num_attention_heads
  vocab = 32000,        -- the Llama 2 tokenizer: 32,000 tokens (Llama 2 model card)
  intermediate = 28672,  -- intermediate_size
  weights = "bf16",      -- torch_dtype
  kv = "bf16",           -- torch_dtype
}
