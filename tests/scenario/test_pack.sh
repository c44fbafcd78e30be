#!/usr/bin/env bash
# pack, and explain --step: from a CSV to the operators of a step on a GPU of one's own; and what they refuse.
source "$(dirname "$0")/cli.bash"

mkdir -p "$here/hardware/kernels/MINE"
{
    echo "gemm_dtype,m,n,k,latency"
    for n in 1024 32768; do
        for k in 1024 32768; do
            for m in 1 64 4096; do
                # 700 TFLOP/s behind two microseconds
                awk -v m=$m -v n=$n -v k=$k \
                    'BEGIN { printf "bfloat16,%d,%d,%d,%.6f\n", m, n, k, 2 * m * n * k / 7e11 + 0.002 }'
            done
        done
    done
} > "$here/gemm.csv"
head_options=(--gpu MINE --engine vllm --engine-version 1.0 --source "a test" --licence MIT)
table="$here/hardware/kernels/MINE/gemm.vllm-1.0.csv"
answers pack "$here/gemm.csv" --table gemm "${head_options[@]}" --out "$table"
expect '12 rows in 4 series; 0 merged' "$here/out"
expect '^# gpu: MINE$' "$table"
xz -k "$here/gemm.csv"
answers pack "$here/gemm.csv.xz" --table gemm "${head_options[@]}" --out "$here/again.csv"
cmp "$table" "$here/again.csv" || fail 'the same rows, compressed, make another table'

# A machine with that GPU finds the table beside the scenario; what it lacks is modelled.
cat > "$here/mine.lua" <<'LUA'
local h100 = require "hardware.h100"
return scenario {
  question = "a GPU of my own",
  model = require "models.llama-3.1-8b",
  pools = { mixed = pool { role = "mixed", machine = with(h100, { name = "mine", gpu = "MINE" }),
                           shardings = { { tensor = 1 } } } },
  load = poisson { rate = per_second(1), requests = 10, prompt = uniform(100, 200), output = uniform(10, 20) },
}
LUA
answers explain "$here/mine.lua" --step 16,1024
expect 'down .* interpolated .* MINE gemm, vllm 1.0, bfloat16' "$here/out"
expect 'decode attention .* modelled' "$here/out"
expect '^step, as simulated ' "$here/out"
answers explain "$here/mine.lua" --step prefill:512,0 --format csv
expect '^operator,count,each_us,total_ms,share_percent,estimate,bound,source' "$here/out"
answers explain "$1/scenarios/w1-llama-70b.lua" --step 16,2048 --format json
expect '"pool": "decode"' "$here/out"
expect '"estimate": "interpolated"' "$here/out"
answers run "$here/mine.lua" --db "$here/mine.db"

sed 's/"MINE"/"MINI"/' "$here/mine.lua" > "$here/other.lua"
refused "no kernels of a GPU 'MINI' are measured" explain "$here/other.lua"
sed 's/"MINE"/"H20"/' "$here/mine.lua" > "$here/other.lua"
refused 'did you mean' explain "$here/other.lua"
xz -k "$table"
rm "$table"
answers explain "$here/mine.lua" --step 16,1024
expect 'down .* interpolated .* MINE gemm, vllm 1.0, bfloat16' "$here/out"
xz -dk "$table.xz"
printf damaged | dd of="$table.xz" bs=1 seek=200 conv=notrunc status=none
mv "$table" "$here/good.csv"
refused 'gemm.vllm-1.0.csv.xz: cannot be read' explain "$here/mine.lua" --step 16,1024
rm "$table.xz"
sed 's/^# gpu:.*//' "$here/good.csv" > "$table"
refused 'gemm.vllm-1.0.csv: a comment "# gpu: TEXT"' explain "$here/mine.lua" --step 16,1024

refused "did you mean 'gemm'" pack "$here/gemm.csv" --table gem "${head_options[@]}" --out "$here/x.csv"
refused '^--gpu: a text' pack "$here/gemm.csv" --table gemm --out "$here/x.csv"
sed -i '3s/0\./x./' "$here/gemm.csv"
refused 'gemm.csv:3: latency: .* a time is wanted' pack "$here/gemm.csv" --table gemm "${head_options[@]}" \
    --out "$here/x.csv"
refused 'FILE.csv' pack "$here/gemm.csv" --table gemm "${head_options[@]}" --out "$here/x.zst"
[ ! -e "$here/x.csv" ] || fail 'a refused table left a file'
refused 'BATCH,CONTEXT is wanted' explain "$1/scenarios/w1-llama-70b.lua" --step 16
refused 'csv and md are of --step' explain "$1/scenarios/w1-llama-70b.lua" --format csv
