#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks with h2spec that the API conforms to HTTP/2, strict cases included.

    h2spec.py H2SPEC SERVER plain|tls

SERVER is that of test/service, the service with fake VMs. The test passes if only cases of EXCEPTIONS
fail.
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

from defects import certificate

# third_party/h2o/README.md gives the reasons.
EXCEPTIONS = {
    "plain": {("http2/3.5", "Sends invalid connection preface")},
    "tls": set(),
}
TIMEOUT_S = 10  # some cases pass if nothing is received for so long
SKIPPED = 77


def serve(program, *settings):
    server = subprocess.Popen([program, *settings], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    return server, int(server.stdout.readline())


def ask(h2spec, port, *flags):
    """Runs h2spec; returns the number of cases, and the errors by section and title of the case."""
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        subprocess.run([h2spec, "--host", "127.0.0.1", "--port", str(port), "--strict",
                        "--path", "/v1/openapi.json", "--timeout", str(TIMEOUT_S),
                        "--junit-report", report.name, *flags], stdout=subprocess.DEVNULL)
        cases = list(xml.parse(report.name).iter("testcase"))
    name = {case: (case.get("package"), case.get("classname")) for case in cases}
    bad = {name[case]: "".join(case.itertext()).strip() for case in cases if len(case)}
    return len(cases), bad


def check(n, bad, exceptions):
    for case, error in bad.items():
        print(*case, "(an exception):" if case in exceptions else "FAILED:", error, sep="\n  ")
    print(f"{n} cases, {len(bad)} failed, {len(exceptions)} may fail")
    return n > 140 and bad.keys() <= exceptions


def main():
    if len(sys.argv) != 4 or sys.argv[3] not in EXCEPTIONS:
        sys.exit("usage: h2spec.py H2SPEC SERVER plain|tls")
    h2spec, program, how = sys.argv[1:]
    if not os.access(h2spec, os.X_OK):
        print(f"{h2spec} does not exist: build it with ./dev test h2o")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        settings, flags = [f"dir={folder}"], []
        if how == "tls":
            cert, key = certificate(folder)
            settings, flags = [*settings, f"tls_cert={cert}", f"tls_key={key}"], ["--tls", "--insecure"]
        server, port = serve(program, *settings)
        try:
            good = check(*ask(h2spec, port, *flags), EXCEPTIONS[how])
        finally:
            server.terminate()
        good = server.wait() == 0 and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
