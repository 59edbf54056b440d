# SPDX-License-Identifier: Apache-2.0
"""A webhook and a span, from the running service to their receiver.

rametd starts ramet-notify, which gets an event and a span from the service and sends them. The test
starts a second service, since the receiver is a setting; it needs no VM.
"""

from __future__ import annotations

import hmac
import json
import shlex

from conftest import on_host

SECRET = "0123456789abcdef"
HERE = "/tmp/fault-webhook"
SETTINGS = [
    "--config=/dev/null",
    "--listen_port=7998",
    f"--run_dir={HERE}/run",
    f"--state_dir={HERE}/state",
    "--vm_uid_base=700000",
    "--cgroup=/fault-webhook",
    "--network=",
    "--templates_dir=",
    "--sizes=",
    "--pool_warm=0",
    "--pool_blank_vms=0",
]

# Runs on the host of the VMs: starts a receiver and the service, creates a key, makes a call with it, and
# prints the first delivery and the first span once the service's metrics count them.
PROGRAM = f"""
import json, os, queue, shutil, subprocess, sys, threading, time, urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

got, spans = queue.Queue(), queue.Queue()

class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.send_response(204)
        self.end_headers()
        if self.path == "/v1/traces":
            spans.put(body)
            return
        got.put({{"headers": {{k.lower(): v for k, v in self.headers.items()}}, "body": body}})

    def log_message(self, *args):
        pass

def create_key():
    made = subprocess.run(
        ["/usr/bin/rametctl", *settings, "key", "create", "--tier", "operator", "--name", "test"],
        capture_output=True)
    return made.stdout.decode().split()[0]

def is_live():
    if rametd.poll() is not None or time.monotonic() > give_up:
        raise RuntimeError("rametd or ramet-notify did not start")
    try:
        return urllib.request.urlopen("http://127.0.0.1:7998/livez", timeout=30).status == 200
    except OSError:
        return False

def metrics(key):
    request = urllib.request.Request("http://127.0.0.1:7998/metrics")
    request.add_header("authorization", "Bearer " + key)
    return urllib.request.urlopen(request, timeout=30).read().decode()

def call(key):
    url = "http://127.0.0.1:7998/v1/sandboxes/sbx_" + 32 * "f" + "/exec"
    request = urllib.request.Request(url, b'{{"code": ""}}', {{"authorization": "Bearer " + key}})
    try:
        urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as refused:
        assert refused.code == 404, refused

server = HTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
settings = {SETTINGS!r} + [f"--webhook_url=http://127.0.0.1:{{server.server_port}}/hook",
                           "--webhook_events=key.*",
                           f"--otlp_url=http://127.0.0.1:{{server.server_port}}/v1/traces"]
os.environ["RAMET_WEBHOOK_SECRET"] = {SECRET!r}
shutil.rmtree({HERE!r}, ignore_errors=True)
os.makedirs({HERE!r} + "/state")
os.chmod({HERE!r}, 0o755)
log = open({HERE!r} + "/log", "w+b")
rametd = subprocess.Popen(["/usr/lib/ramet/rametd", *settings], stdout=log, stderr=log)
try:
    give_up = time.monotonic() + 90
    while not is_live():  # only events after the first start are sent
        time.sleep(0.05)
    key = create_key()
    first = got.get(timeout=60)
    call(key)
    first["span"] = spans.get(timeout=60)
    for count in ("ramet_webhooks_delivered_total 1", "ramet_spans_sent_total 1"):
        while count not in metrics(key):
            time.sleep(0.05)
    print(json.dumps(first))
except Exception as failed:
    log.seek(0)
    sys.exit(f"{{failed!r}}; the service's log: {{log.read().decode()[-3000:]}}")
finally:
    rametd.terminate()
    rametd.wait()
    shutil.rmtree({HERE!r}, ignore_errors=True)
    if os.path.isdir("/sys/fs/cgroup/fault-webhook"):
        os.rmdir("/sys/fs/cgroup/fault-webhook")
"""


def test_webhook_and_span_are_delivered_by_the_running_service() -> None:
    on_host("mkdir -p /sys/fs/cgroup/fault-webhook")
    first = json.loads(on_host(f"timeout 240 python3 -c {shlex.quote(PROGRAM)}"))
    body, headers = first["body"], first["headers"]
    line = json.loads(body)
    assert line["event"] == headers["ramet-event"] == "key.created"
    assert line["id"] == headers["ramet-delivery"]
    time, v1 = (part.split("=")[1] for part in headers["ramet-signature"].split(","))
    good = hmac.new(SECRET.encode(), f"{time}.{body}".encode(), "sha256").hexdigest()
    assert hmac.compare_digest(good, v1)
    (resource,) = json.loads(first["span"])["resourceSpans"]
    (span,) = resource["scopeSpans"][0]["spans"]
    assert span["name"] == "exec"
