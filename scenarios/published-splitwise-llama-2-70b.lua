-- A published deployment: Splitwise's Llama-2-70B, prompts on one node of eight H100, tokens on another, one request
-- at a time (Mutinifni/splitwise-sim@8f99e7d, perf_model.csv). The prompt phase took 53.4, 77.9 and 136.8 ms at 512,
-- 1,024 and 2,048 tokens, a token 29.8, 29.7 and 31.0 ms.
--
-- An engine of 2023 spends 22 ms of host time a step: what is missing at answers of 256, 1,024 and 4,096 tokens, of
-- which none is compared here (`tandem validate steps`). With that a token takes up to 6 % more than measured,
-- prompts 12 to 22 % less: their kernels of that year were slower than our tables.
local prompt_ms = { ["512"] = 53.4, ["1024"] = 77.9, ["2048"] = 136.8 }
local token_ms = { ["512"] = 29.8, ["1024"] = 29.7, ["2048"] = 31.0 }
local h100 = require "hardware.h100"
local then_engine = engine { kernels = "vllm", host = ms(22.3) }

return scenario {
  question = "How long do a prompt and a token of Llama-2-70B take where prompts and tokens have a node of H100 each?",
  model = require "models.llama-2-70b",
  pools = {
    prefill = pool { role = "prefill", machine = h100, shardings = { { tensor = 8 } }, engine = then_engine },
    decode = pool { role = "decode", machine = h100, shardings = { { tensor = 8 } }, engine = then_engine },
  },
  load = closed { concurrency = 1, requests = 20, prompt = 1024, output = 128 },
  targets = {},
  vary = { ["load.prompt"] = { 512, 1024, 2048 } },
  expect = function(r)
    local prompt, token = r.spans_ms.prefill.mean, r.tpot_ms.mean
    local measured_prompt, measured_token = prompt_ms[r.params["load.prompt"]], token_ms[r.params["load.prompt"]]
    check(r.completed == 20, "every request is served")
    check(token > 0.9 * measured_token and token < 1.1 * measured_token, "a token as measured, within a tenth")
    check(prompt > 0.7 * measured_prompt and prompt < 1.25 * measured_prompt,
          "a prompt at most 30 % less or a quarter more")
  end,
}
