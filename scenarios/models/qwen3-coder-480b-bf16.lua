-- Qwen3-Coder-480B-A35B-Instruct with its original weights (config.json: torch_dtype bfloat16).
return with(require "models.qwen3-coder-480b", {
  name = "Qwen3-Coder-480B-bf16",
  weights = "bf16",
})
