-- Qwen3-235B-A22B-FP8 (its config.json: quantization_config fp8, e4m3, weight_block_size [128, 128]; else equal).
return with(require "models.qwen3-235b", {
  name = "Qwen3-235B-FP8",
  weights = "fp8_block",
})
