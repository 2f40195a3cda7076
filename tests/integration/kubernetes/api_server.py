"""As much of kube-apiserver as Ray's autoscaler uses: HTTPS with client certificates, five paths, one kind of patch.

Whatever else is asked gets an error and is written down: `refused` must be empty at the end of a test.
"""

import json
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.integration.kubernetes.store import PatchError, Store

__all__ = ["ApiServer", "issue_certificate"]

JSON_PATCH = "application/json-patch+json"
HANDSHAKE_S = 10.0
# What comes with a list of pods; a server that keeps one state in memory is always new enough.
LIST_OPTIONS = {"labelSelector", "resourceVersion", "resourceVersionMatch"}


def issue_certificate(folder: Path) -> tuple[Path, Path]:
    """Certificate and key for 127.0.0.1, good for a day. It signs itself, and so serves as its own authority."""
    certificate, key = folder / "api-server.pem", folder / "api-server.key"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    names = ["-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *curve, *names, *files], check=True, capture_output=True)
    return certificate, key


class ApiServer:
    """Serves a `Store` on the loopback interface while the context is open. Only holders of the certificate get in."""

    def __init__(self, store: Store, certificate: Path, key: Path) -> None:
        self.refused: list[str] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        self._server = _Server(Answers(store, self.refused), context)
        self._thread = threading.Thread(target=self._server.serve_forever, name="api-server", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Answers:
    """From a request to a status and a document."""

    def __init__(self, store: Store, refused: list[str]) -> None:
        self._store, self.refused = store, refused
        pods = f"/api/v1/namespaces/{store.namespace}/pods"
        self._paths: list[tuple[str, str, Callable[..., tuple[int, Any]]]] = [
            ("GET", rf"/apis/ray\.io/v1/namespaces/{store.namespace}/rayclusters/{store.name}", self._cluster),
            ("PATCH", rf"/apis/ray\.io/v1/namespaces/{store.namespace}/rayclusters/{store.name}", self._patch),
            ("GET", pods, self._list),
            ("GET", rf"{pods}/(?P<name>[a-z0-9.-]+)", self._pod),
        ]

    def answer(self, method: str, target: str, content_type: str, body: bytes) -> tuple[int, Any]:
        """`target`: path with query."""
        parts = urlsplit(target)
        for known, path, handler in self._paths:
            found = re.fullmatch(path, parts.path)
            if known == method and found is not None:
                query = parse_qs(parts.query, keep_blank_values=True)
                return handler(query=query, content_type=content_type, body=body, **found.groupdict())
        return self._refuse(404, f"{method} {target}: unknown here")

    def _cluster(self, query: dict[str, list[str]], **_: Any) -> tuple[int, Any]:
        return self._refuse(400, f"GET of the RayCluster with {query}") if query else (200, self._store.cluster())

    def _patch(self, content_type: str, body: bytes, **_: Any) -> tuple[int, Any]:
        if content_type != JSON_PATCH:
            return self._refuse(415, f"PATCH of the RayCluster as {content_type}")
        try:
            return 200, self._store.patch_cluster(json.loads(body))
        except json.JSONDecodeError as error:
            return self._refuse(400, f"PATCH of the RayCluster: {error}")
        except PatchError as error:
            return self._refuse(422, f"PATCH of the RayCluster: {error}")

    def _list(self, query: dict[str, list[str]], **_: Any) -> tuple[int, Any]:
        wanted = [f"ray.io/cluster={self._store.name}"]
        if set(query) - LIST_OPTIONS or query.get("labelSelector") != wanted:
            return self._refuse(400, f"a list of pods by {query}")
        items = list(self._store.pods().values())
        return 200, {"kind": "PodList", "metadata": {"resourceVersion": self._store.version}, "items": items}

    def _pod(self, name: str, **_: Any) -> tuple[int, Any]:
        pod = self._store.pods().get(name)
        return self._refuse(404, f"pod {name} is not there") if pod is None else (200, pod)

    def _refuse(self, code: int, why: str) -> tuple[int, Any]:
        self.refused.append(why)
        return code, {"kind": "Status", "status": "Failure", "code": code, "message": why}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answers: Answers, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self._context = answers, context

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In the request's own thread: a caller that does not finish its handshake holds up nobody."""
        request.settimeout(HANDSHAKE_S)
        with self._context.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller without a certificate, or one that was killed, has seen it itself; the rest are faults of ours."""
        error = sys.exception()
        if not isinstance(error, ssl.SSLError | ConnectionError | TimeoutError):
            self.answers.refused.append(f"the stand-in failed: {error!r}")


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def _respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        code, document = self.server.answers.answer(self.command, self.path, self.headers.get("Content-Type", ""), body)
        content = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PATCH = do_POST = do_PUT = do_DELETE = _respond  # noqa: N815  # as http.server looks for them

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name there
        """Silent."""
