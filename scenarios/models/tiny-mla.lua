-- As tiny-gqa.lua, with multi-head latent attention: one latent of 64 + 16 elements a token in place of keys and values.
return model {
  name = "tiny-mla",
  attention = "mla",
  layers = 4,
  hidden = 128,
  heads = 8,
  kv_heads = 1,
  latent_dim = 64,
  rope_dim = 16,
  nope_dim = 16,
  value_dim = 16,
  q_latent_dim = 64,
  vocab = 512,
  intermediate = 256,
  weights = "bf16",
  kv = "bf16",
}
