return suite {
  question = "Does my service still decide as it did?",
  seeds = 2,
  cases = { case { scenario = "my-service.lua", set = { ["load.requests"] = 100 } } },
}
