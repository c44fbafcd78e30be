-- For routing.decode: the smallest share of KV in use with this request, or nobody where it fits in none.
return function(request, workers)
  local best, most
  for i = 1, #workers do
    local worker = workers[i]
    local free = worker.free_tokens - request.prompt_tokens + worker.cached_tokens
    if free >= 0 and (most == nil or free * most.kv_tokens > most.free * worker.kv_tokens) then
      best, most = i, { free = free, kv_tokens = worker.kv_tokens }
    end
  end
  return best
end
