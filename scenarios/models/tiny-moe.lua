-- As tiny-gqa.lua, with 8 experts of which 2 work on a token, and a shared one, in all layers but the first.
return model {
  name = "tiny-moe",
  attention = "gqa",
  layers = 4,
  dense_layers = 1,
  hidden = 128,
  heads = 8,
  kv_heads = 2,
  head_dim = 16,
  vocab = 512,
  intermediate = 256,
  experts = 8,
  experts_active = 2,
  expert_intermediate = 64,
  shared_experts = 1,
  weights = "bf16",
  kv = "bf16",
}
