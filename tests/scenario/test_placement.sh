#!/usr/bin/env bash
# Where instances stand and what their hand-overs cross: placements, NICs that are shared, posting by rank.
# shellcheck source=tests/scenario/cli.bash
source "$(dirname "$0")/cli.bash"

# near VALUE WANTED PERMILLE WHAT
near() {
    awk -v v="$1" -v w="$2" -v p="$3" 'BEGIN { exit !(v >= w * (1 - p / 1000) && v <= w * (1 + p / 1000)) }' ||
        fail "$4: $1, expected $2"
}

cat > "$here/slow.lua" << 'END'
local h200 = require "hardware.h200"
local fabrics = require "hardware.fabrics"
local slow = with(h200, { nic = with(fabrics.connectx7, { bandwidth = GB_s(0.5) }) })
return scenario {
  question = "0.98 GB of KV over a 0.5 GB/s network take 1.97 s, whatever the number of instances",
  model = require "models.llama-3.1-8b",
  pools = { prefill = pool { role = "prefill", machine = slow, shardings = { { tensor = 1 } } },
            decode = pool { role = "decode", machine = slow, shardings = { { tensor = 1 } } } },
  load = evenly { rate = per_second(0.05), requests = 12, prompt = 7501, output = 10 },
  routing = { prefill = "round_robin", decode = "round_robin" },
}
END
# mean KEY: of the first such object of the answer, in ms
mean() {
    awk -v key="\"$1\"" 'index($0, key) { inside = 1 }
        inside && /"mean"/ { gsub(/[^0-9.]/, ""); print; exit }' "$here/out"
}
exposed() {
    answers run "$here/slow.lua" --db "$here/runs.db" --format json "$@"
    mean exposed_transfer
}

# The network, for every count; and `explain` says so.
for decoders in 1 7 8 15; do
    near "$(exposed --set pools.decode.count=$decoders)" 1803 10 "transfer to $decoders decoders"
done
answers explain "$here/slow.lua" --set pools.prefill.count=4 --set pools.decode.count=4
expect '^prefill to decode: 16 of 16 pairs over the NICs (ConnectX-7 400G, one a GPU)' "$here/out"
expect '^2 machines' "$here/out"
expect '^decode-3: machine 2, GPU 3' "$here/out"

# On one machine, where both pools let the other be there: NVLink. Unless instances do not share it.
packed=(--set 'pools.prefill.placement="packed"' --set 'pools.decode.placement="packed"')
answers explain "$here/slow.lua" "${packed[@]}" --set pools.decode.count=8
expect '^prefill to decode: 7 of 8 pairs over NVLink, 1 of 8 pairs over the NICs' "$here/out"
near "$(exposed "${packed[@]}")" 0 1 "transfer over NVLink"
near "$(exposed "${packed[@]}" --set 'pools.prefill.machine.between_instances="nic"' \
    --set 'pools.decode.machine.between_instances="nic"')" 1803 10 "transfer between containers"
answers explain "$here/slow.lua" "${packed[@]}" --format json
expect '"path": "NVLink"' "$here/out"

# Two prefillers whose GPUs share a NIC, at the same instant: twice the time.
sed -e "s/rate = per_second(0.05), requests = 12/rate = per_second(0.001), requests = 12, size = 2/" \
    -e 's/evenly/burst/' "$here/slow.lua" > "$here/shared.lua"
exposed_shared() {
    answers run "$here/shared.lua" --db "$here/runs.db" --format json --set pools.prefill.count=2 \
        --set pools.decode.count=2 "$@"
    mean exposed_transfer
}
own="$(exposed_shared)"
shared="$(exposed_shared --set pools.prefill.machine.nics=4)"
near "$shared" "$(awk -v own="$own" 'BEGIN { print 2 * own }')" 80 "two GPUs at one NIC, against $own alone"
answers explain "$here/shared.lua" --set pools.prefill.machine.nics=4
expect 'ConnectX-7 400G, one for 2 GPUs, which share it; to ConnectX-7 400G, one a GPU' "$here/out"
refused 'pools.prefill.machine.nics: at most one NIC a GPU (8)' explain "$here/shared.lua" \
    --set pools.prefill.machine.nics=9

# 15,040 writes a rank at 40 us: 602 ms on one rank as on eight, for ranks post side by side.
for tensor in 1 2 4 8; do
    runs="$(exposed --set pools.prefill.machine.nic='with(require("hardware.fabrics").connectx7, {posting = us(40)})' \
        --set pools.decode.machine.nic='require("hardware.fabrics").connectx7' \
        --set pools.prefill.shardings="{{tensor=$tensor}}" --set pools.decode.shardings="{{tensor=$tensor}}" \
        --set pools.prefill.page=32 --set pools.decode.page=32)"
    ttft="$(mean ttft_ms)"
    awk -v r="$runs" -v t="$ttft" 'BEGIN { exit !(r > 300 && t > 602 && t < 650) }' ||
        fail "TP$tensor: $runs ms of transfer beyond the prefill, TTFT $ttft"
done

# GPUs 1 and 3 share a NIC: two prefillers side by side have one each, where neighbours that share one do not.
listed="$(exposed_shared --set 'pools.prefill.machine.gpu_nics={1, 2, 1, 2, 3, 4, 3, 4}')"
near "$listed" "$own" 10 "two GPUs at two NICs that others share"
answers explain "$here/shared.lua" --set 'pools.prefill.machine.gpu_nics={1, 2, 1, 2, 3, 4, 3, 4}'
expect 'ConnectX-7 400G, 4 for 8 GPUs, which use NIC 1 2 1 2 3 4 3 4; to ConnectX-7 400G, one a GPU' "$here/out"
near "$(exposed_shared --set 'pools.prefill.machine.gpu_nics={1, 1, 2, 2, 3, 3, 4, 4}')" "$shared" 1 \
    "neighbours, listed"
answers explain "$here/shared.lua" --set 'pools.prefill.machine.gpu_nics={1, 1, 2, 2, 3, 3, 4, 4}'
expect 'one for 2 GPUs, which share it' "$here/out"
refused 'pools.prefill.machine.gpu_nics: 2 entries for 8 GPUs' explain "$here/shared.lua" \
    --set 'pools.prefill.machine.gpu_nics={1, 2}'
refused 'pools.prefill.machine.gpu_nics: no GPU uses NIC 2' explain "$here/shared.lua" \
    --set 'pools.prefill.machine.gpu_nics={1, 1, 1, 1, 3, 3, 3, 3}'

# DistServe's low node affinity: two machines with a prefiller and a decoder each.
sed -e 's/tensor = 1/tensor = 4/g' -e 's/evenly { rate = per_second(0.05)/poisson { rate = per_second(2)/' \
    -e 's/"round_robin"/"random"/' "$here/slow.lua" > "$here/pairs.lua"
sides=(--set 'pools.prefill.count=2' --set 'pools.decode.count=2' --set 'pools.prefill.placement="spread"'
    --set 'pools.decode.placement="beside prefill"')
answers explain "$here/pairs.lua" "${sides[@]}"
expect '^prefill to decode: 2 of 4 pairs over NVLink, 2 of 4 pairs over the NICs' "$here/out"
answers explain "$here/pairs.lua" "${sides[@]}" --set 'routing.affinity="node"'
expect '^prefill to decode: 2 of 2 pairs over NVLink$' "$here/out"
across="SELECT count(*) FROM request WHERE decoder <> prefiller + 2"
answers run "$here/pairs.lua" "${sides[@]}" --db "$here/any.db"
[ "$(sql "$here/any.db" "$across")" != 0 ] || fail "a random router made pairs"
answers run "$here/pairs.lua" "${sides[@]}" --db "$here/pairs.db" --set 'routing.affinity="node"'
sql_is "$here/pairs.db" "$across" 0
sql_is "$here/pairs.db" 'SELECT sum(nic_transmit_busy_ns) FROM instance' 0
for affinity in none:'NVLink, NIC' node:NVLink; do
    answers plan "$here/pairs.lua" "${sides[@]}" --format json --set "routing.affinity=\"${affinity%%:*}\"" \
        --set plan.requests=200 --set plan.compare_mixed=false --set 'targets={ttft{p=95, below=s(2)}}'
    expect "\"kv_over\": \"${affinity#*:}\"" "$here/out"
done

# What does not go is said.
refused 'pools.decode.placement: lists 1 machines for 2 instances' explain "$here/slow.lua" \
    --set pools.decode.placement='{3}' --set pools.decode.count=2
answers explain "$here/slow.lua" --set pools.decode.placement='{1, 1}' --set pools.decode.count=2 \
    --set pools.prefill.placement='{1}' --format json
expect '"nvlink_pairs": 2' "$here/out"
