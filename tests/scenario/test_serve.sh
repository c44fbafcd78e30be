#!/usr/bin/env bash
# `tandem serve` from the outside, by clients that do what clients do: ask and read, ask wrongly, go away, read slowly,
# shut down half of a connection, and be there when the server ends.
source "$1/tests/scenario/cli.bash"
refused '--port 70000: must be from 0 to 65535' serve "$root/tests/data/run-small.lua" --port 70000
refused 'model' serve "$root/tests/data/run-small.lua" --port 0 --model 'a"b'
exec python3 "$root/tests/scenario/serve_clients.py" "$TANDEM" "$root"
