"""The pages and the API: everything that the network can reach."""

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
from alti.web.openapi import description
from alti.web.questions import EXPLAIN, EXPORT, VIEW, Field, read
from alti.web.settings import LOOPBACK, Limits, Refused, Settings
from alti.web.worker import Worker

STATIC = Path(__file__).with_name("static")
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
READING = 10.0  # seconds for the body of a request
DRAINED = 64  # times the limit of a body that is read and thrown away, so that its sender hears why
TWO_LENGTHS = (
    "The request has both Content-Length and Transfer-Encoding, so it is not clear where it ends: "
    "send only one of them."
)
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def create(worker: Worker, described: dict[str, Any], settings: Settings) -> Starlette:
    """The application, for any ASGI server."""
    limits = settings.limits
    told = {**described, "limits": {name: getattr(limits, name) for name in Limits.__slots__}}
    names = [model["name"] for model in described["models"]]
    methods = [method["name"] for method in described["methods"]]

    def api(kind: str, fields: dict[str, Field]) -> Route:
        async def answer(request: Request) -> Response:
            asked = read(await _body(request, limits.bytes), fields, limits)
            asked["model"] = _known("model", asked["model"] or names[0], names, 404)
            for spec in asked.get("methods") or [asked["method"]]:
                _known("method", spec.partition(":")[0], methods, 400)
            body = await worker.ask(kind, asked, request.is_disconnected)
            plain = asked.get("format", "json") != "json"
            return Response(body, media_type="text/plain" if plain else "application/json")

        return Route(f"/api/{kind}", answer, methods=["POST"])

    routes = [
        api("explain", EXPLAIN),
        api("view", VIEW),
        api("export", EXPORT),
        Route("/api/models", _fixed(json.dumps(told).encode(), "application/json")),
        Route(
            "/api/openapi.json",
            _fixed(json.dumps(description(names, methods)).encode(), "application/json"),
        ),
        Route("/html.css", _fixed(html.STYLE.encode(), "text/css")),
        *(
            Route(_address(file), _fixed(file.read_bytes(), TYPES[file.suffix]))
            for file in sorted(STATIC.iterdir())
        ),
    ]
    hosts = (*LOOPBACK, settings.host) if settings.local else ()
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={
            Refused: _refused,
            HTTPException: _wrong_address,
            ClientDisconnect: _left,
            500: _broken,
        },
    )


class Guard:
    """Headers on every answer; at a loopback address, none to other names: a hostile page could point its own here."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        if self.hosts and _host(Request(scope)) not in self.hosts:
            sentence = "This server answers to localhost only: open it under the address that alti serve printed."
            await _error(421, sentence)(scope, receive, guarded)
            return
        if {"content-length", "transfer-encoding"} <= set(Request(scope).headers):
            answer = _error(400, TWO_LENGTHS)  # a proxy in front may go by the other one
            answer.headers["Connection"] = "close"
            await answer(scope, receive, guarded)
            return
        await self.app(scope, receive, guarded)


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


def _address(file: Path) -> str:
    return "/" if file.name == "index.html" else f"/{file.name}"


def _fixed(body: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    """Something that stays the same while the server runs; browsers ask whether it has changed."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=kind, headers=headers)

    return answer


async def _body(request: Request, limit: int) -> bytes:
    """What was sent, counted as it comes: a declared length may lie."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(READING):
            async for part in request.stream():
                size += len(part)
                if size <= limit:
                    parts.append(part)
                elif size > DRAINED * limit:
                    break
    except TimeoutError:
        raise Refused(408, f"The body did not arrive within {READING:.0f} seconds.") from None
    if kind != "application/json":
        raise Refused(
            415, "The body has to be JSON: send the header Content-Type: application/json."
        )
    if size > limit:
        raise Refused(413, f"The body has more than the {limit} bytes that this server takes.")
    return b"".join(parts)


def _error(status: int, sentence: str) -> Response:
    headers = {"Retry-After": "5"} if status == 503 else {}
    return JSONResponse({"error": sentence}, status, headers=headers)


async def _refused(request: Request, error: Exception) -> Response:
    return _error(error.status if isinstance(error, Refused) else 500, str(error))


async def _wrong_address(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    if status == 405:
        answer = _error(405, f"{request.url.path} does not take {request.method}.")
        answer.headers.update(getattr(error, "headers", None) or {})
        return answer
    return _error(
        status, "There is nothing at this address: the page is at /, its API at /api/openapi.json."
    )


async def _left(request: Request, error: Exception) -> Response:
    return _error(400, "The connection was closed before the whole request had come.")


async def _broken(request: Request, error: Exception) -> Response:
    return _error(500, "Something went wrong inside alti; the server's terminal says what.")
