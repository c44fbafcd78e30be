-- Mixtral-8x7B in bf16. Values: config.json of mistralai/Mixtral-8x7B-v0.1.
return model {
  name = "Mixtral-8x7B",
  attention = "gqa",            -- model_type mixtral
  layers = 32,                  -- num_hidden_layers
  hidden = 4096,                -- hidden_size
  heads = 32,                   -- num_attention_heads
  kv_heads = 8,                 -- num_key_value_heads
  head_dim = 128,               -- hidden_size / num_attention_heads
  vocab = 32000,                -- vocab_size
  experts = 8,                  -- num_local_experts; every layer has them
  experts_active = 2,           -- num_experts_per_tok
  expert_intermediate = 14336,  -- intermediate_size
  weights = "bf16",             -- torch_dtype
  kv = "bf16",                  -- torch_dtype
}
