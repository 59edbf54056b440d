# SPDX-License-Identifier: Apache-2.0
"""The service answers as its description of the API says: schemathesis makes requests to every route,
valid and invalid ones, and checks all answers. The VMs are fake, with agents that run scripts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stand_in import Service

HERE = Path(__file__).parent


def test_every_answer_conforms_to_the_description(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("api")  # a short path, for the sockets in it
    settings = ["max_vms=64", "silence_ms=200", "pro", "pro", "operator", "admin"]
    service = Service(folder, *settings, agent=False)
    users = [
        {"name": name, "fixedHeaders": [{"name": "Authorization", "value": f"Bearer {key}"}]}
        for name, key in zip(("first", "second"), service.keys)
    ]
    (folder / "auth.json").write_text(json.dumps({"auth": users}))
    with service.client(headers={"authorization": f"Bearer {service.keys[0]}"}) as http:
        for i in range(6):
            sandbox = http.post("/v1/sandboxes", json={}).json()["id"]
            if i % 2:
                http.post(f"/v1/sandboxes/{sandbox}/freeze")
        (folder / "openapi.json").write_text(http.get("/v1/openapi.json").text)
    command = [sys.executable, "-m", "schemathesis.cli", f"--config-file={HERE}/schemathesis.toml"]
    done = subprocess.run(
        [*command, "--no-color", "run", "openapi.json", f"--url={service.base}"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(HERE),
            "RAMET_OPERATOR_KEY": service.keys[2],
            "RAMET_ADMIN_KEY": service.keys[3],
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    service.stop()
