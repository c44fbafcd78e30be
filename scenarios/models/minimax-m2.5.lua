-- MiniMax-M2.5 as MiniMax ships it (fp8, 128 x 128 block scales). Values: config.json of MiniMaxAI/MiniMax-M2.5.
return model {
  name = "MiniMax-M2.5",
  attention = "gqa",           -- model_type minimax_m2
  layers = 62,                 -- num_hidden_layers
  hidden = 3072,               -- hidden_size
  heads = 48,                  -- num_attention_heads
  kv_heads = 8,                -- num_key_value_heads
  head_dim = 128,              -- head_dim
  vocab = 200064,              -- vocab_size
  experts = 256,               -- num_local_experts; every layer has them
  experts_active = 8,          -- num_experts_per_tok
  expert_intermediate = 1536,  -- intermediate_size
  weights = "fp8_block",       -- quantization_config: fp8, weight_block_size [128, 128]
  kv = "bf16",
}
