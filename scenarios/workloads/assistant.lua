-- Lengths of a search assistant: questions with the passages found for them (mean 4,440 tokens) and short answers (mean
-- 327). Assumed, for scenarios whose source gives a request rate and no lengths; the quantiles are not measured.
return {
  prompt = quantiles { [0] = 256, [500] = 3500, [900] = 8000, [1000] = 16000 },
  output = quantiles { [0] = 16, [500] = 250, [900] = 600, [1000] = 1200 },
}
