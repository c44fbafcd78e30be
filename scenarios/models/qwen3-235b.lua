-- Qwen3-235B-A22B in bf16. The FP8 release is qwen3-235b-fp8.lua. Values: config.json of Qwen/Qwen3-235B-A22B.
return model {
  name = "Qwen3-235B",
  attention = "gqa",           -- model_type qwen3_moe
  layers = 94,                 -- num_hidden_layers
  hidden = 4096,               -- hidden_size
  heads = 64,                  -- num_attention_heads
  kv_heads = 4,                -- num_key_value_heads
  head_dim = 128,              -- head_dim
  vocab = 151936,              -- vocab_size
  experts = 128,               -- num_experts; every layer has them (decoder_sparse_step 1, mlp_only_layers [])
  experts_active = 8,          -- num_experts_per_tok
  expert_intermediate = 1536,  -- moe_intermediate_size
  weights = "bf16",            -- torch_dtype
  kv = "bf16",                 -- torch_dtype
}
