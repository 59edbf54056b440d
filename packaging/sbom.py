# SPDX-License-Identifier: Apache-2.0
"""sbom.py DIR INSTALLED ROOTFS KERNEL TIME: writes a list of what packages contain (SPDX 2.3, JSON).

DIR has the packages, INSTALLED lists the packages of the root that they were built in (name, tab, version),
ROOTFS is the guest's root file system, KERNEL the version of its kernel's source package, and TIME the
seconds since 1970 that the list is dated. The list goes to standard output; the same input gives the same
bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

TOP = Path(__file__).resolve().parents[1]
# Libraries of which programs contain a copy (NOTICE), by the package that the copy is from.
STATIC = ["libarchive-dev", "libc6-dev", "libcap-dev", "libseccomp-dev", "libsqlite3-dev", "libssl-dev", "liburing-dev"]

Entry = dict[str, object]


def entry(kind: str, name: str, version: str, purl: str = "", **more: object) -> Entry:
    identity = re.sub(r"[^A-Za-z0-9.-]", "-", f"{kind}-{name}-{version}")
    found: Entry = {
        "SPDXID": f"SPDXRef-{identity}",
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        **more,
    }
    if purl:
        found["externalRefs"] = [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": purl,
            }
        ]
    return found


def file_entry(path: Path) -> Entry:
    name, version = re.split(r"[-_]", path.name.removesuffix(path.suffix))[:2] \
        if path.suffix == ".whl" else path.name.split("_")[:2]
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return entry(
        "file", path.name, version, packageFileName=path.name, comment=f"the package {name}",
        licenseDeclared="Apache-2.0", checksums=[{"algorithm": "SHA256", "checksumValue": digest}],
    )


def debian(kind: str, name: str, version: str) -> Entry:
    return entry(kind, name, version, f"pkg:deb/debian/{name}@{version}")


def linked(installed: Path) -> Iterator[Entry]:
    versions = dict(line.split("\t") for line in installed.read_text().splitlines())
    for name in STATIC:
        yield debian("linked", name, versions[name])
    pinned = (TOP / "third_party/h2o/source.sha256").read_text()
    version = re.search(r"h2o_(\S+)\.dsc$", pinned, re.MULTILINE)
    assert version, "source.sha256 names no h2o"
    yield debian("linked", "h2o", version[1])


def guest(rootfs: Path, kernel: str) -> Iterator[Entry]:
    yield debian("guest", "linux-source-6.1", kernel)
    status = subprocess.run(
        ["debugfs", "-R", "cat /var/lib/dpkg/status", str(rootfs)],
        check=True, capture_output=True, text=True,
    ).stdout
    for paragraph in status.split("\n\n"):
        name = re.search(r"^Package: (\S+)$", paragraph, re.MULTILINE)
        version = re.search(r"^Version: (\S+)$", paragraph, re.MULTILINE)
        if name and version and "\nStatus: install ok installed" in paragraph:
            yield debian("guest", name[1], version[1])
    for pin in re.finditer(
        r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", (TOP / "rootfs/requirements.txt").read_text(), re.MULTILINE
    ):
        yield entry("guest", pin[1], pin[2], f"pkg:pypi/{pin[1].lower()}@{pin[2]}")


def relate(one: str, kind: str, other: Entry) -> dict[str, object]:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other["SPDXID"]}


def main() -> None:
    folder, installed, rootfs = map(Path, sys.argv[1:4])
    kernel, seconds = sys.argv[4:]
    files = [file_entry(p) for p in sorted(folder.iterdir()) if p.suffix in (".deb", ".whl")]
    relations = [relate("SPDXRef-DOCUMENT", "DESCRIBES", file) for file in files]
    packages = list(files)
    for file in files:
        name = str(file["name"])
        if name.startswith("ramet_"):
            parts, kind = list(linked(installed)), "STATIC_LINK"
        elif name.startswith("ramet-guest_"):
            parts, kind = list(guest(rootfs, kernel)), "CONTAINS"
        else:
            continue
        packages += parts
        relations += [relate(str(file["SPDXID"]), kind, part) for part in parts]
    identity = hashlib.sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": "ramet",
        "documentNamespace": f"urn:ramet:spdx:{identity}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(seconds))),
            "creators": ["Tool: ramet-packaging-sbom"],
        },
        "packages": packages,
        "relationships": relations,
    }
    json.dump(document, sys.stdout, indent=1)
    print()


main()
