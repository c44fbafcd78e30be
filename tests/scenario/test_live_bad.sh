#!/usr/bin/env bash
# A run onto an endpoint that is overloaded, breaks and dawdles: each request is sent once, at the load's time whatever
# the others wait for, and stored under what became of it; no latency has a failure in it.
source "$1/tests/scenario/cli.bash"
cd "$here"
cat > load.lua <<'L'
local h100 = require "hardware.h100"
return scenario {
  question = "What becomes of each?",
  model = require "models.llama-3.1-8b",
  pools = { mixed = pool { role = "mixed", machine = h100, count = 1, shardings = { { tensor = 1 } } } },
  load = evenly { rate = per_second(40), requests = 60, prompt = 20, output = 5 },
}
L
cat > endpoint.py <<'P'
import itertools, json, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Endpoint(BaseHTTPRequestHandler):
    counter = itertools.count()

    def log_message(self, *_):
        pass

    def whole(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.whole(200, {"data": [{"id": "m"}]})

    def event(self, value):
        self.wfile.write(b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n")

    def chunk(self, text, tokens):
        usage = {"prompt_tokens": 21, "completion_tokens": tokens}  # it counts one token more than was sent
        self.event({"choices": [{"text": text}], "usage": usage})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert len(asked["prompt"]) == 20 and asked["ignore_eos"] and asked["model"] == "m"
        number = next(Endpoint.counter)
        with open("asked", "a") as asked_file:
            asked_file.write(f"{number}\n")
        if number % 6 == 0:
            return self.whole((429, 503, 529)[number // 6 % 3], {"error": {"message": "busy"}})
        self.send_response(200)
        self.end_headers()
        if number % 6 == 1:
            self.chunk("a", 1)
            self.event({"error": {"message": "out of memory"}})
            return self.event(b"[DONE]")
        if number % 6 == 2:
            return self.chunk("a", 1)  # and dies
        if number % 6 == 3:
            time.sleep(0.7)
        self.chunk("ab", 2)  # two tokens at once
        self.wfile.flush()
        time.sleep(0.03)
        self.chunk("cde", 5)
        self.event(b"[DONE]")

class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

server = Server(("127.0.0.1", 0), Endpoint)
print(server.server_port, flush=True)
server.serve_forever()
P
python3 endpoint.py > port &
server=$!
trap 'kill $server 2> /dev/null || true; rm -rf "$here"' EXIT
until [ -s port ]; do sleep 0.05; done

status 0 run load.lua --endpoint "http://127.0.0.1:$(cat port)/v1/" --format json
expect '10 requests: the endpoint sent an error in the answer: out of memory' err
expect '10 requests: the answer ended before it was complete: it ended before \[DONE\]' err
for code in 429 503 529; do
    expect "requests: status $code, the endpoint was overloaded (429, 503, 529): busy" err
done
expect '30 of 30 prompts have another number of tokens at the endpoint, +1.0 on average' err
expect '2.50 tokens a chunk' err
[ "$(wc -l < asked)" = 60 ] || fail "60 requests were sent $(wc -l < asked) times"
python3 - out <<'P'
import json, sys
run = json.load(open(sys.argv[1]))
assert (run["requests"], run["completed"], run["rejected"], run["failed"]) == (60, 30, 10, 20), run
assert run["rejections"] == {"overload": 10} and run["failures"] == {"stream_error": 10, "cut": 10}, run
assert run["output_tokens"] == 150, run["output_tokens"]
# Ten of thirty waited; nobody else did, neither before it was sent nor at the endpoint.
assert 650 < run["ttft_ms"]["p90"] < 1500 and run["ttft_ms"]["p50"] < 300, run["ttft_ms"]
assert run["spans_ms"]["route"]["p50"] < 100, run["spans_ms"]["route"]
assert 5 < run["tpot_ms"]["p50"] < 20, run["tpot_ms"]  # 30 ms for four tokens
P
sql_is tandem.db "SELECT count(*) FROM request WHERE arrived_ns = request * 25000000" 60
