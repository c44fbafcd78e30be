-- Dynamo's KV router at temperature 0, in blocks of 64 tokens: overlap_score_weight times what would have to be
-- prefilled, and the blocks that decode there. The lowest cost wins, the first of equal ones.
local WEIGHT <const> = 1
local BLOCK <const> = 64

return function(request, workers)
  local best, least
  for i = 1, #workers do
    local worker = workers[i]
    local prefill = worker.queued_tokens + request.prompt_tokens - worker.cached_tokens
    local active = worker.kv_tokens - worker.free_tokens + request.prompt_tokens
    local cost = WEIGHT * (prefill // BLOCK) + active // BLOCK
    if least == nil or cost < least then
      best, least = i, cost
    end
  end
  return best
end
