-- For admission.admit: turned away where every worker has more than 65,536 prompt tokens before it.
local MOST <const> = 65536

return function(request, workers)
  for i = 1, #workers do
    if workers[i].queued_tokens <= MOST then
      return true
    end
  end
  return false
end
