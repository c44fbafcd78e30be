-- Fewest prompt tokens to compute: those that wait at a worker, and those of the request that it has not cached. What
-- "prefix_aware" decides, but for ties, as a function.
return function(request, workers)
  local best, least
  for i = 1, #workers do
    local worker = workers[i]
    local tokens = worker.queued_tokens + request.prompt_tokens - worker.cached_tokens
    if least == nil or tokens < least then
      best, least = i, tokens
    end
  end
  return best
end
