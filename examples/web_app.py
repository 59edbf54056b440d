# SPDX-License-Identifier: Apache-2.0
"""A web application in a sandbox, forked into three versions; the best of them is merged."""

from __future__ import annotations

import urllib.request

from ramet import Sandbox

# The server runs beside the Python process's calls, which change `page` while it serves.
SERVER = """
import http.server, threading

page = {"title": "A shop", "price": 30}
visitors = []

class Shop(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        visitors.append(self.headers["X-Forwarded-For"])
        body = f"<h1>{page['title']}</h1><p>Only {page['price']} euros</p>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Shop)
threading.Thread(target=server.serve_forever, daemon=True).start()
"""


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return bytes(answer.read()).decode()


def main() -> None:
    with Sandbox() as shop:
        shop.run_code(SERVER)
        print("original ", shop.url(8000))
        print("         ", get(shop.url(8000)))
        versions = shop.fork(3)
        for version, price in zip(versions, (25, 19, 12)):
            version.run_code(f"page.update(title='A sale', price={price})")
            print(f"version   {version.url(8000)}")
            print("         ", get(version.url(8000)))
        best = min(versions, key=lambda one: int(get(one.url(8000)).split("Only ")[1].split()[0]))
        shop.merge_into(best)
        print("merged    the shop continues as its best version:", get(shop.url(8000)))
        for version in versions:
            if version is not best:
                version.close()


if __name__ == "__main__":
    main()
