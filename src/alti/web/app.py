"""The pages and the API: everything that is reachable from the network."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from alti.views import html
from alti.web.fields import Field
from alti.web.openapi import description
from alti.web.process import CRASHED
from alti.web.questions import KINDS, read
from alti.web.settings import LOOPBACK, Limits, Refused, Settings
from alti.web.worker import Worker

STATIC = Path(__file__).with_name("static")
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
BODY_SECONDS = 10.0  # for the body of a request to arrive
DRAINED = 64  # times the size limit that is read and discarded, so that the sender learns why
NOT_LOCAL = "This server answers to localhost only: open it at the address that alti serve printed."
TWO_LENGTHS = (
    "The request has both Content-Length and Transfer-Encoding, so it is not clear where it ends: "
    "send only one of them."
)
NOT_FOUND = "There is nothing at this address: the page is at /, its API at /api/openapi.json."
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def create(worker: Worker, described: dict[str, Any], settings: Settings) -> Starlette:
    """The ASGI application. `described` is what the worker can explain."""
    hosts = (*LOOPBACK, settings.host) if settings.local else ()
    handlers = {
        Refused: _on_refused,
        HTTPException: _on_http_exception,
        ClientDisconnect: _on_disconnect,
        500: _on_crash,
    }
    return Starlette(
        routes=[*_api(worker, described, settings.limits), *_files(described, settings.limits)],
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers=handlers,
    )


def _api(worker: Worker, described: dict[str, Any], limits: Limits) -> list[Route]:
    """The requests that the worker answers."""
    models = _names(described["models"])
    methods = _names(described["methods"])

    def route(kind: str, fields: dict[str, Field]) -> Route:
        async def respond(request: Request) -> Response:
            most = limits.file_bytes if {"image", "file"} & fields.keys() else limits.bytes
            question = read(await _body(request, most), fields, limits)
            question["model"] = _known("model", question["model"] or models[0], models, 404)
            if question.get("versus") is not None:
                _known("model", question["versus"], models, 404)
            for spec in question.get("methods") or [question.get("method", "alti")]:
                _known("method", spec.partition(":")[0], methods, 400)
            ticket = question.pop("ticket", None)
            body = await worker.ask(kind, question, request.is_disconnected, ticket)
            is_json = question.get("format", "json") == "json"
            return Response(body, media_type="application/json" if is_json else "text/plain")

        return Route(f"/api/{kind}", respond, methods=["POST"])

    async def state(request: Request) -> Response:
        return JSONResponse(worker.state(request.query_params.get("ticket", "")))

    routes = [route(kind, fields) for kind, (_, fields) in KINDS.items()]
    return [*routes, Route("/api/queue", state)]


def _files(described: dict[str, Any], limits: Limits) -> list[Route]:
    """What stays the same while the server runs."""
    shown = {**described, "limits": {name: getattr(limits, name) for name in Limits.__slots__}}
    api = description(_names(described["models"]), _names(described["methods"]))
    return [
        Route("/api/models", _fixed(json.dumps(shown).encode(), "application/json")),
        Route("/api/openapi.json", _fixed(json.dumps(api).encode(), "application/json")),
        Route("/html.css", _fixed(html.STYLE.encode(), "text/css")),
        *(
            Route(_path(file), _fixed(file.read_bytes(), TYPES[file.suffix]))
            for file in sorted(STATIC.iterdir())
        ),
    ]


def _names(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["name"] for entry in entries]


class Guard:
    """Sets the security headers, and rejects ambiguous requests and foreign host names.

    On a loopback address only local names are served: a hostile page could point its own name here.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...]) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = self._rejection(Request(scope)) or self.app
        await answer(scope, receive, _with_headers(send))

    def _rejection(self, request: Request) -> Response | None:
        if self.hosts and _host(request) not in self.hosts:
            return _error(421, NOT_LOCAL)
        if {"content-length", "transfer-encoding"} <= set(request.headers):
            response = _error(400, TWO_LENGTHS)  # a proxy may go by the other one
            response.headers["Connection"] = "close"
            return response
        return None


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return send_with_headers


def _host(request: Request) -> str:
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _known(what: str, name: str, names: list[str], status: int) -> str:
    if name not in names:
        shown = repr(name) if len(name) <= 60 else f"{name[:57]!r}…"
        raise Refused(status, f"There is no {what} {shown} here: choose one of {', '.join(names)}.")
    return name


def _path(file: Path) -> str:
    return "/" if file.name == "index.html" else f"/{file.name}"


def _fixed(body: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    """Serves unchanging content, with an ETag that lets browsers revalidate it."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}

    async def respond(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=kind, headers=headers)

    return respond


async def _body(request: Request, limit: int) -> bytes:
    """The request's body, counted as it arrives: the declared length may be wrong."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size <= limit:
                    parts.append(part)
                elif size > DRAINED * limit:
                    break
    except TimeoutError:
        message = f"The body did not arrive within {BODY_SECONDS:.0f} seconds."
        raise Refused(408, message) from None
    if kind != "application/json":
        raise Refused(415, "The body must be JSON: send the header Content-Type: application/json.")
    if size > limit:
        raise Refused(413, f"The body is longer than the {limit} bytes that this server accepts.")
    return b"".join(parts)


def _error(status: int, sentence: str) -> Response:
    headers = {"Retry-After": "5"} if status == 503 else {}
    return JSONResponse({"error": sentence}, status, headers=headers)


async def _on_refused(request: Request, error: Exception) -> Response:
    return _error(error.status if isinstance(error, Refused) else 500, str(error))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    if status != 405:
        return _error(status, NOT_FOUND)
    response = _error(405, f"{request.url.path} does not accept {request.method}.")
    response.headers.update(getattr(error, "headers", None) or {})
    return response


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return _error(400, "The connection was closed before the request was complete.")


async def _on_crash(request: Request, error: Exception) -> Response:
    return _error(500, CRASHED)
