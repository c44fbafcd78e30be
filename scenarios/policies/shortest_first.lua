-- For the queue of a pool: short prompts first, but a prompt with a deadline before those without.
return function(request)
  if request.deadline_ns < math.maxinteger then
    return request.deadline_ns - math.maxinteger
  end
  return request.prompt_tokens
end
