"""A stand-in for the Hugging Face hub: the few endpoints of a push, on this machine alone."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_made_up_for_this_test"
_MOST_BYTES = 10_000_000


class Hub(ThreadingHTTPServer):
    """A hub that keeps what is pushed in memory."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.repositories: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.objects: dict[str, bytes] = {}
        self.commits: list[str] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Request(BaseHTTPRequestHandler):
    server: Hub
    timeout = 20

    def do_POST(self) -> None:
        content = self._content()
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer({"error": "Invalid username or password."}, 401)
        hub, path = self.server, self.path.partition("?")[0]
        if path == "/api/repos/create":
            asked = json.loads(content)
            name = f"{asked['organization']}/{asked['name']}"
            hub.repositories[name] = asked
            return self._answer({"url": f"{hub.url}/{name}", "name": name})
        if path == "/api/validate-yaml":
            has_front = json.loads(content)["content"].startswith("---\n")
            return self._answer({"warnings": [], "errors": []}, 200 if has_front else 400)
        if "/preupload/" in path:
            files = [
                {"path": file["path"], "uploadMode": _mode(file["path"]), "shouldIgnore": False}
                for file in json.loads(content)["files"]
            ]
            return self._answer({"files": files})
        if path.endswith("/info/lfs/objects/batch"):
            return self._answer(
                {
                    "transfer": "basic",
                    "objects": [
                        {
                            **asked,
                            "actions": {"upload": {"href": f"{hub.url}/store/{asked['oid']}"}},
                        }
                        for asked in json.loads(content)["objects"]
                    ],
                }
            )
        if "/commit/" in path:
            self._commit(content)
            return self._answer({"commitUrl": f"{hub.url}/me/x/commit/0", "commitOid": "0" * 40})
        return self._answer({"error": f"no such endpoint {path}"}, 404)

    def do_PUT(self) -> None:
        content = self._content()
        self.server.objects[hashlib.sha256(content).hexdigest()] = content
        self._answer({})

    def _commit(self, content: bytes) -> None:
        for line in content.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "header":
                self.server.commits.append(value["summary"])
            elif item["key"] == "file":
                self.server.files[value["path"]] = base64.b64decode(value["content"])
            else:
                assert item["key"] == "lfsFile"
                self.server.files[value["path"]] = self.server.objects[value["oid"]]

    def _content(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            read = b""
            while size := int(self.rfile.readline(), 16):
                read += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return read
        length = int(self.headers.get("Content-Length", 0))
        assert length <= _MOST_BYTES
        return self.rfile.read(length)

    def _answer(self, document: dict[str, Any], status: int = 200) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _mode(path: str) -> str:
    return "lfs" if path.endswith(".safetensors") else "regular"


@contextmanager
def listening() -> Iterator[Hub]:
    """A hub in a thread of this process, until the block ends."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join(timeout=10)
