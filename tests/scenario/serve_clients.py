"""Clients of `tandem serve`: serve_clients.py TANDEM ROOT. Run by test_serve.sh."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time

TANDEM, ROOT = sys.argv[1], sys.argv[2]


class Server:
    def __init__(self, *options, scenario="scenarios/llama-8b-rates.lua"):
        self.process = subprocess.Popen(
            [TANDEM, "serve", f"{ROOT}/{scenario}", "--port", "0", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r" at http://127\.0\.0\.1:(\d+)/v1$", line.rstrip())
        assert found, (line, self.process.stderr.read())
        self.port = int(found.group(1))

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    def complete(self, body, path="/v1/completions", **headers):
        status, text = self.ask("POST", path, body, **headers)
        return status, json.loads(text)

    def stream(self, body, path="/v1/completions"):
        status, text = self.ask("POST", path, {**body, "stream": True})
        assert status == 200, text
        events = text.split("\n\n")
        assert events[-1] == "" and events[-2] == "data: [DONE]", events[-2:]
        assert all(event.startswith("data: ") and "\n" not in event for event in events[:-1])
        return [json.loads(event[6:]) for event in events[:-2]]

    def open_stream(self, tokens, receive=None):
        """A socket that has asked for a long stream and has read its head."""
        raw = socket.socket()
        if receive is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        raw.settimeout(30)
        raw.connect(("127.0.0.1", self.port))
        body = json.dumps({"prompt": [1], "max_tokens": tokens, "stream": True}).encode()
        raw.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert raw.recv(15) == b"HTTP/1.1 200 OK"
        return raw

    def metric(self, name):
        _, text = self.ask("GET", "/metrics")
        return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M).group(1))

    def running(self):
        return self.metric('vllm:num_requests_running{model_name="llama-8b-rates"}')

    def ended(self, reason):
        name = "vllm:request_success_total"
        return self.metric(f'{name}{{model_name="llama-8b-rates",finished_reason="{reason}"}}')

    def stop(self, within_s=10):
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=within_s)
        assert self.process.returncode == 0 and err == "", (self.process.returncode, err)
        return out


def until(what, within_s=5):
    end = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.05)


def answers(server):
    status, model = server.ask("GET", "/v1/models")
    assert status == 200 and json.loads(model)["data"][0]["id"] == "llama-8b-rates"
    assert server.ask("GET", "/health")[0] == 200
    ids = {"model": "llama-8b-rates", "prompt": [5] * 100, "max_tokens": 7, "ignore_eos": True, "unknown": 1}
    status, answer = server.complete(ids)
    assert status == 200 and answer["usage"]["prompt_tokens"] == 100, answer
    assert answer["usage"]["completion_tokens"] == 7 and len(answer["choices"][0]["text"].split()) == 7
    assert answer["choices"][0]["finish_reason"] == "length"
    assert server.complete({"prompt": [[1, 2, 3]]})[1]["usage"] == {
        "prompt_tokens": 3, "completion_tokens": 16, "total_tokens": 19, "prompt_tokens_details": {"cached_tokens": 0}}
    assert server.complete({"prompt": "four bytes a token"})[1]["usage"]["prompt_tokens"] == 5
    chat = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}], "max_completion_tokens": 3}
    answer = server.complete(chat, "/v1/chat/completions")[1]
    assert answer["object"] == "chat.completion" and answer["usage"]["completion_tokens"] == 3
    assert answer["choices"][0]["message"]["role"] == "assistant"


def streams(server):
    chunks = server.stream({"prompt": [1, 2], "max_tokens": 20, "stream_options": {"include_usage": True}})
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 20
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1])
    assert len(text.split()) == 20 and len(chunks) > 15, len(chunks)
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]]
    assert reasons[-1] == "length" and set(reasons[:-1]) == {None}
    chunks = server.stream({"prompt": [1], "max_tokens": 5, "stream_options": {"continuous_usage_stats": True}})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts[0] == 1 and counts[-1] == 5 and counts == sorted(counts), counts
    chunks = server.stream({"messages": [{"role": "user", "content": "a"}], "max_tokens": 4}, "/v1/chat/completions")
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant" and "role" not in chunks[1]["choices"][0]["delta"]


def errors(server):
    for body, why in [("{", "not JSON"), ("[]", "object"), ({}, "prompt"), ({"prompt": []}, "at least one"),
                      ({"prompt": [-1]}, "from 0"), ({"prompt": [1, "a"]}, "integers"),
                      ({"prompt": ["a", "b"]}, "several"), ({"prompt": [1], "max_tokens": 0}, "max_tokens"),
                      ({"prompt": [1], "n": 2}, "n:"), ({"prompt": [1], "stream": 1}, "true or false"),
                      ({"prompt": [1], "max_tokens": 3, "min_tokens": 4}, "min_tokens"),
                      ({"prompt": [1] * 4990, "max_tokens": 11}, "5000 tokens")]:
        status, answer = server.complete(body)
        assert status == 400 and why in answer["error"]["message"], (body, status, answer)
    assert server.complete({"prompt": [1], "model": "other"})[0] == 404
    assert server.complete({"messages": [{"content": "a"}]}, "/v1/chat/completions")[0] == 400
    assert server.ask("GET", "/v1/completions")[0] == 405 and server.ask("GET", "/nothing")[0] == 404
    assert server.complete({"prompt": "x" * (2 << 20)})[0] == 413
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"nonsense\r\n\r\n")
        raw.settimeout(10)
        while raw.recv(4096):
            pass


def leaves(server):
    before = server.ended("abort")
    raw = server.open_stream(4000)
    until(lambda: server.running() == 1)
    raw.close()
    until(lambda: server.running() == 0 and server.ended("abort") == before + 1)
    raw = server.open_stream(4000)
    raw.shutdown(socket.SHUT_WR)  # half closed: nobody asks any more, as engines see it
    until(lambda: server.ended("abort") == before + 2)
    raw.close()
    # Before its first token, and of an answer that is not streamed.
    raw = socket.create_connection(("127.0.0.1", server.port))
    body = json.dumps({"prompt": [1], "max_tokens": 4000}).encode()
    raw.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    until(lambda: server.running() == 1)
    raw.close()
    until(lambda: server.running() == 0 and server.ended("abort") == before + 3)


def slow(server):
    """Who does not read holds nobody up, and gets everything in the end, in fewer chunks."""
    before = server.ended("length")
    raw = server.open_stream(300, receive=2048)
    began = time.monotonic()
    server.stream({"prompt": [1], "max_tokens": 50})
    assert time.monotonic() - began < 5
    until(lambda: server.ended("length") == before + 2, within_s=15)
    text = b""
    while b"data: [DONE]" not in text:
        some = raw.recv(4096)
        assert some, text[-200:]
        text += some
    raw.close()
    words = "".join(json.loads(event)["choices"][0]["text"] for event in re.findall(rb"data: (\{.*\})\n", text))
    assert len(words.split()) == 300, len(words.split())


def together(server, count=200):
    lengths = [None] * count

    def one(i):
        usage = {"include_usage": True}
        chunks = server.stream({"prompt": [i] * 10, "max_tokens": 5 + i % 7, "stream_options": usage})
        lengths[i] = chunks[-1]["usage"]["completion_tokens"]

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lengths == [5 + i % 7 for i in range(count)]


server = Server("--body-max", "1")
answers(server)
streams(server)
errors(server)
leaves(server)
slow(server)
together(server)
assert "served" in server.stop()

# An API key guards what is under /v1, and connections beyond the limit wait until others are closed.
server = Server("--api-key", "secret", "--connections", "4")
assert server.ask("GET", "/v1/models")[0] == 401 and server.ask("GET", "/health")[0] == 200
assert server.complete({"prompt": [1]}, Authorization="Bearer secre")[0] == 401
assert server.complete({"prompt": [1]}, Authorization="Bearer secret")[0] == 200
held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
fifth = socket.create_connection(("127.0.0.1", server.port))
fifth.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
fifth.settimeout(0.5)
try:
    raise SystemExit(f"a fifth connection was served: {fifth.recv(100)}")
except TimeoutError:
    pass
for raw in held:
    raw.close()
fifth.settimeout(10)
assert fifth.recv(15) == b"HTTP/1.1 200 OK"
fifth.close()
server.stop()

# Prefixes are shared in blocks of the load's size.
server = Server(scenario="scenarios/sessions-prefix.lua")
prompt = list(range(2000))
assert server.complete({"prompt": prompt, "max_tokens": 1})[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
cached = server.complete({"prompt": prompt + [7] * 50, "max_tokens": 1})[1]["usage"]["prompt_tokens_details"]
assert 1000 < cached["cached_tokens"] <= 2000, cached
server.stop()

# It ends while requests are under way: those may end within the grace, then they are told.
server = Server("--grace", "1")
raw = server.open_stream(4900)
began = time.monotonic()
server.process.send_signal(signal.SIGTERM)
text = b""
while some := raw.recv(65536):
    text += some
assert b'"error"' in text and b"shutting down" in text and text.rstrip().endswith(b"0"), text[-300:]
out, err = server.process.communicate(timeout=10)
assert server.process.returncode == 0 and err == "", err
assert 0.9 < time.monotonic() - began < 6 and "1 went away" in out, out
