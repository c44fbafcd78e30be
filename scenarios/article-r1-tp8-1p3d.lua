-- DeepSeek-R1 with tensor parallelism over a node, one node that prefills for three that decode.
--
-- The article on disaggregated prefill and decode (Perplexity, 2025-08) reports over 90 tokens/s for a user at about
-- one request/s a decoder node, and a time to first token about 100 ms above aggregated serving; that KV transfers take
-- tens to hundreds of milliseconds and a decode step tens. article-r1-tp8-aggregated.lua is the same load on the same
-- four nodes. It gives no lengths: those of workloads/assistant.lua are assumed. Tokens per user follow from the batch,
-- and so from the length of the answers: with answers of 460 tokens in place of 327 the median user gets 88 tokens/s.
--
-- With --record transfers the run also tells how long the KV of a prompt is on its way. Since it goes layer by layer,
-- that is as long as its prefill takes; what of it the request waits for is the exposed transfer.
local h200 = require "hardware.h200-efa"
local lengths = require "workloads.assistant"

return scenario {
  question = "Which speed do users see when one DeepSeek-R1 node prefills for three that decode?",
  model = require "models.deepseek-r1",
  pools = {
    prefill = pool { role = "prefill", machine = h200, count = 1, shardings = { { tensor = 8 } }, token_budget = 8192 },
    decode = pool { role = "decode", machine = h200, count = 3, shardings = { { tensor = 8 } } },
  },
  load = poisson {
    rate = per_second(3), requests = 3000, warmup = s(30), prompt = lengths.prompt, output = lengths.output,
  },
  expect = function(r)
    check(r.completed == r.requests, "every request is answered")
    check(r.tpot_ms.p50 < 1000 / 90, "the median user gets over 90 tokens/s")
    check(r.itl_ms.max < 20, "nothing interrupts decoding")
    check(r.spans_ms.exposed_transfer.p99 < 1, "transfers hide behind prefill")
    check(r.instances[1].utilization > 0.3 and r.instances[1].utilization < 0.8, "one prefiller feeds three decoders")
    if r.transfer_ms.p50 ~= nil then
      check(r.transfer_ms.p50 > 10 and r.transfer_ms.p99 < 1000, "KV is on its way for tens to hundreds of ms")
    end
  end,
}
