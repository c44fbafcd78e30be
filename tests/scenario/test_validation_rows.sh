#!/usr/bin/env bash
# scripts/validation-rows: the rows that validate reads are those it makes of the published ones; and two of its rules.
set -euo pipefail
root=$1
"$root/scripts/validation-rows" --check

here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
mkdir -p "$here/scripts" "$here/scenarios/hardware"
cp "$root/scripts/validation-rows" "$here/scripts"
cp "$root"/scenarios/hardware/*.lua "$here/scenarios/hardware"
cp -r "$root/scenarios/validation" "$here/scenarios"

# What is said of the row whose published line matches, with another time to its first token.
said_of() { # PATTERN TTFT_US -> "rule ttft_rule"
    xz -dc "$root/scenarios/validation/serving-published.csv.xz" |
        awk -F, -v OFS=, -v pattern="$1" -v ttft="$2" '
            $0 ~ pattern && !found { found = 1; if (ttft > 0) $28 = ttft; print FNR > "/dev/stderr" } { print }' \
            2> "$here/line" | xz > "$here/scenarios/validation/serving-published.csv.xz"
    "$here/scripts/validation-rows"
    # Comments take one line more in the rows than in what was published.
    xz -dc "$here/scenarios/validation/serving.csv.xz" | grep -v '^#' |
        sed -n "$(($(cat "$here/line") - 3))p" | cut -d, -f1,2 | tr , ' '
}
same() { # WHAT GOT EXPECTED
    [ "$2" = "$3" ] || { echo "$1: '$2' instead of '$3'" && exit 1; }
}

# H: five seconds are more than the prompts of four clients take; what fewer places than clients explain is kept.
same paused "$(said_of 'sglang,.*,DeepSeek-R1,b200_sxm,fp4,.*,agg,8192,1024,4,' 5500000)" ' H'
same queued "$(said_of 'trtllm,0.8.1.*,DeepSeek-V3,h100_sxm,fp8,.*,disagg,1024,1024,6,' 12345000)" ' '
# M: a day's runs of one version are those of the entries with multi-token prediction; another day's are not.
same 'with drafts' "$(said_of ',20260114,trtllm,1.1.0rc2.post2,DeepSeek-R1,' 0)" 'M M'
