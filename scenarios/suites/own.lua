-- What CI runs: tandem's own scenarios, short, so that a change of scheduler, messenger or model shows what it does.
return suite {
  question = "Do the shipped scenarios decide as they did, and as well?",
  seeds = 5,
  tolerance = percent(1),
  cases = {
    case { scenario = "w1-llama-70b.lua", set = { ["load.requests"] = 300 } },
  },
}
