-- Kimi-K2-Instruct, 1T parameters of which 32B active, as Moonshot ships it (fp8, 128 x 128 block scales).
-- Values: config.json of moonshotai/Kimi-K2-Instruct.
return model {
  name = "Kimi-K2",
  attention = "mla",           -- model_type kimi_k2, the DeepSeek-V3 architecture
  layers = 61,                 -- num_hidden_layers
  dense_layers = 1,            -- first_k_dense_replace
  hidden = 7168,               -- hidden_size
  heads = 64,                  -- num_attention_heads
  kv_heads = 1,                -- all heads share one latent
  vocab = 163840,              -- vocab_size
  latent_dim = 512,            -- kv_lora_rank
  rope_dim = 64,               -- qk_rope_head_dim
  nope_dim = 128,              -- qk_nope_head_dim
  value_dim = 128,             -- v_head_dim
  q_latent_dim = 1536,         -- q_lora_rank
  intermediate = 18432,        -- intermediate_size
  experts = 384,               -- n_routed_experts
  experts_active = 8,          -- num_experts_per_tok
  expert_intermediate = 2048,  -- moe_intermediate_size
  shared_experts = 1,          -- n_shared_experts
  weights = "fp8_block",       -- quantization_config: fp8, e4m3, weight_block_size [128, 128]
  kv = "bf16",                 -- torch_dtype
  -- No tail: the model has no draft head (num_nextn_predict_layers 0).
}
