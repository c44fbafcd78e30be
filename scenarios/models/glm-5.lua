-- GLM-5, 744B parameters of which 40B active, with sparse attention; weights as zai-org/GLM-5-FP8 ships them.
-- Values: config.json of zai-org/GLM-5.
return model {
  name = "GLM-5",
  attention = "mla",           -- model_type glm_moe_dsa
  layers = 78,                 -- num_hidden_layers
  dense_layers = 3,            -- first_k_dense_replace
  hidden = 6144,               -- hidden_size
  heads = 64,                  -- num_attention_heads
  kv_heads = 1,                -- all heads share one latent
  vocab = 154880,              -- vocab_size
  latent_dim = 512,            -- kv_lora_rank
  rope_dim = 64,               -- qk_rope_head_dim
  nope_dim = 192,              -- qk_nope_head_dim
  value_dim = 256,             -- v_head_dim
  q_latent_dim = 2048,         -- q_lora_rank
  intermediate = 12288,        -- intermediate_size
  experts = 256,               -- n_routed_experts
  experts_active = 8,          -- num_experts_per_tok
  expert_intermediate = 2048,  -- moe_intermediate_size
  shared_experts = 1,          -- n_shared_experts
  index_topk = 2048,           -- index_topk
  index_heads = 32,            -- index_n_heads
  index_dim = 128,             -- index_head_dim
  draft_layers = 1,            -- num_nextn_predict_layers
  weights = "fp8_block",       -- quantization_config of the FP8 checkpoint: weight_block_size [128, 128]
  kv = "bf16",                 -- dtype
  tail = bytes(6144 * 2 + 154880 * 4), -- hidden state and logits of the last position, for the draft head
  tail_writes = 2,
}
