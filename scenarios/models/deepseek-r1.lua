-- DeepSeek-R1, 671B parameters of which 37B active, as DeepSeek ships it (fp8, 128 x 128 block scales).
-- Values: config.json of deepseek-ai/DeepSeek-R1.
return model {
  name = "DeepSeek-R1",
  attention = "mla",           -- model_type deepseek_v3
  layers = 61,                 -- num_hidden_layers
  dense_layers = 3,            -- first_k_dense_replace
  hidden = 7168,               -- hidden_size
  heads = 128,                 -- num_attention_heads
  kv_heads = 1,                -- all heads share one latent (num_key_value_heads counts them after decompression)
  vocab = 129280,              -- vocab_size
  latent_dim = 512,            -- kv_lora_rank
  rope_dim = 64,               -- qk_rope_head_dim
  nope_dim = 128,              -- qk_nope_head_dim
  value_dim = 128,             -- v_head_dim
  q_latent_dim = 1536,         -- q_lora_rank
  intermediate = 18432,        -- intermediate_size
  experts = 256,               -- n_routed_experts
  experts_active = 8,          -- num_experts_per_tok
  expert_intermediate = 2048,  -- moe_intermediate_size
  shared_experts = 1,          -- n_shared_experts
  draft_layers = 1,            -- num_nextn_predict_layers
  weights = "fp8_block",       -- quantization_config: fp8, e4m3, weight_block_size [128, 128]
  kv = "bf16",                 -- torch_dtype; engines keep the latent in bf16 unless told otherwise
  -- The draft head (num_nextn_predict_layers 1) starts from the last position's hidden state and logits, so they follow
  -- the KV: hidden_size values of bf16 and vocab_size of fp32, one write each.
  tail = bytes(7168 * 2 + 129280 * 4),
  tail_writes = 2,
}
