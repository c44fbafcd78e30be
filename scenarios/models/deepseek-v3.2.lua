-- DeepSeek-V3.2, 671B parameters of which 37B active: DeepSeek-V3 with sparse attention (fp8, 128 x 128 block scales).
-- Values: config.json of deepseek-ai/DeepSeek-V3.2.
return with(require "models.deepseek-r1", {
  name = "DeepSeek-V3.2",
  index_topk = 2048,           -- index_topk
  index_heads = 64,            -- index_n_heads
  index_dim = 128,             -- index_head_dim
})
