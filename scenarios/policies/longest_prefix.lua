-- The worker that has most of the prompt cached, however busy it is. Where all prompts begin alike, one worker gets
-- all.
return function(request, workers)
  local best, most = 1, -1
  for i = 1, #workers do
    if workers[i].cached_tokens > most then
      best, most = i, workers[i].cached_tokens
    end
  end
  return best
end
