-- Requests that are alike up to their eighth prefix block, behind what all share, go to the same worker, wherever that
-- is; others in turn.
return function(request, workers)
  return (request[8] or request.id) % #workers + 1
end
