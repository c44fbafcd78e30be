-- gpt-oss-120b as OpenAI ships it: experts in mxfp4, the rest in bf16. Values: config.json of openai/gpt-oss-120b.
return model {
  name = "gpt-oss-120b",
  attention = "gqa",           -- model_type gpt_oss
  layers = 36,                 -- num_hidden_layers
  hidden = 2880,               -- hidden_size
  heads = 64,                  -- num_attention_heads
  kv_heads = 8,                -- num_key_value_heads
  head_dim = 64,               -- head_dim
  vocab = 201088,              -- vocab_size
  experts = 128,               -- num_local_experts; every layer has them
  experts_active = 4,          -- num_experts_per_tok
  expert_intermediate = 2880,  -- intermediate_size
  window = 128,                -- sliding_window
  full_layers = 18,            -- layer_types: sliding and full alternate
  weights = "bf16",            -- quantization_config: modules_to_not_convert names attention, router, embeddings, head
  expert_weights = "fp4",      -- quantization_config: mxfp4
  fp4_block = 32,              -- mxfp4: values that share a scale
  kv = "bf16",                 -- its release in bf16
}
