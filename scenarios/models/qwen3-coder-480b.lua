-- Qwen3-Coder-480B-A35B-Instruct as it is served, in fp8 with 128 x 128 block scales (Qwen's own FP8 release).
-- The bf16 weights are qwen3-coder-480b-bf16.lua. Values: config.json of Qwen/Qwen3-Coder-480B-A35B-Instruct.
return model {
  name = "Qwen3-Coder-480B",
  attention = "gqa",           -- model_type qwen3_moe
  layers = 62,                 -- num_hidden_layers
  hidden = 6144,               -- hidden_size
  heads = 96,                  -- num_attention_heads
  kv_heads = 8,                -- num_key_value_heads
  head_dim = 128,              -- head_dim
  vocab = 151936,              -- vocab_size
  experts = 160,               -- num_experts; every layer has them (decoder_sparse_step 1, mlp_only_layers [])
  experts_active = 8,          -- num_experts_per_tok
  expert_intermediate = 2560,  -- moe_intermediate_size
  weights = "fp8_block",       -- the FP8 release: weight_block_size [128, 128]
  kv = "bf16",                 -- torch_dtype
}
