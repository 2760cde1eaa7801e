"""The web application: read-only pages behind a token, and a stream of the parts that changed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from atoll.dashboard.followed import FollowedRun
from atoll.dashboard.monitor import Monitor
from atoll.dashboard.pages import FederationState, LivePage, Status, index_page, run_page, shell, side_page
from atoll.errors import AtollError
from atoll.report.html.page import asset, digest
from atoll.report.view import NOT_AS_WRITTEN

CHECK = 0.05  # seconds between looks at whether something changed
PAUSE = 0.4  # seconds between two updates of one page, however fast the rounds are
ALIVE = 10.0  # seconds after which a quiet stream says that it is alive
FEDERATION_EVERY = 5.0
REPORT_SECONDS = 120
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
STATIC = {"page.css": "text/css", "page.js": "text/javascript", "live.js": "text/javascript"}

Result = TypeVar("Result")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


def new_token() -> str:
    """A random name that only the one who started the dashboard knows."""
    return secrets.token_urlsafe(24)


class Guard:
    """Lets through what comes from this machine's browser with the token: GET or HEAD, a host name of this machine, and
    an address that begins with the token. Everything else learns nothing."""

    def __init__(self, application: Application, token: str, hosts: set[str]) -> None:
        self._application, self._token, self._hosts = application, token, hosts

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._application(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        prefix = f"/{self._token}"
        inner = {**scope, "path": scope["path"][len(prefix) :] or "/", "root_path": ""}
        await self._application(inner, receive, _with_headers(send))

    def _refusal(self, scope: Message) -> Response | None:
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(given) != 1 or given[0].lower() not in self._hosts:
            return PlainTextResponse("not here\n", 421)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("read-only\n", 405)
        first = scope["path"].split("/")[1] if scope["path"].startswith("/") else ""
        if not secrets.compare_digest(first.encode("utf-8", "surrogatepass"), self._token.encode()):
            return PlainTextResponse("not found\n", 404)
        return None


def _with_headers(send: Send) -> Send:
    """Every answer carries the policy, unless it has one of its own."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            if not any(name.lower() == b"content-security-policy" for name, _ in headers):
                headers.append((b"content-security-policy", POLICY.encode()))
            headers += [
                (b"x-content-type-options", b"nosniff"),
                (b"referrer-policy", b"no-referrer"),
                (b"cross-origin-resource-policy", b"same-origin"),
                (b"cache-control", b"no-store"),
            ]
            message = {**message, "headers": headers}
        await send(message)

    return sending


class Dashboard:
    """The pages of all runs below a folder."""

    def __init__(self, monitor: Monitor, status: Status | None = None) -> None:
        self.monitor, self._status = monitor, status
        self._federations: dict[str, tuple[float, FederationState]] = {}
        self._reports: dict[str, tuple[int, Path]] = {}
        self._scratch = tempfile.TemporaryDirectory(prefix="atoll-dashboard-")
        self._writing = asyncio.Lock()

    def application(self) -> Starlette:
        routes = [
            Route("/", self.index),
            Route("/events", self.index_events),
            Route("/run/{name}", self.run),
            Route("/run/{name}/events", self.run_events),
            Route("/run/{name}/report", self.report),
            Route("/side", self.side),
            Route("/side/events", self.side_events),
            Route("/static/{name}", self.static),
        ]

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            self.monitor.start()
            try:
                yield
            finally:
                self.monitor.stop()
                self._scratch.cleanup()

        return Starlette(routes=routes, lifespan=lifespan)

    # -- pages ---------------------------------------------------------------------------------------------------------

    async def index(self, _: Request) -> Response:
        return HTMLResponse(shell(await _in_thread(self._index_page)))

    async def run(self, request: Request) -> Response:
        run = self.monitor.run(request.path_params["name"])
        if run is None:
            return PlainTextResponse("no such run\n", 404)
        return HTMLResponse(shell(await self._run_page(run), back=".."))

    async def side(self, request: Request) -> Response:
        return HTMLResponse(shell(await _in_thread(self._side_page, request)))

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            return PlainTextResponse("not found\n", 404)
        text = live_script() if name == "live.js" else asset(name)
        return Response(text, media_type=STATIC[name])

    async def report(self, request: Request) -> Response:
        """The full report, by a process of its own: drawing networks needs torch, which would stay in memory."""
        run = self.monitor.run(request.path_params["name"])
        if run is None or run.view is None:
            return PlainTextResponse("no such run\n", 404)
        async with self._writing:
            version, path = self._reports.get(run.id, (-1, Path()))
            if version != run.version:
                version, path = run.version, Path(self._scratch.name) / f"{run.id}.html"
                problem = await _write_report(run.path, path)
                if problem:
                    return PlainTextResponse(f"{problem}\n", 500)
                self._reports[run.id] = (version, path)
        inline = f"style-src {digest(asset('page.css'))}; script-src {digest(asset('page.js'))}; img-src data:"
        text = await _in_thread(path.read_text, "utf-8")
        return HTMLResponse(
            text,
            headers={
                "content-security-policy": f"default-src 'none'; {inline}; base-uri 'none'; frame-ancestors 'none'"
            },
        )

    # -- streams -------------------------------------------------------------------------------------------------------

    async def index_events(self, request: Request) -> Response:
        return _stream(_changes(request, partial(_in_thread, self._index_page), lambda: self.monitor.version))

    async def run_events(self, request: Request) -> Response:
        run = self.monitor.run(request.path_params["name"])
        if run is None:
            return PlainTextResponse("no such run\n", 404)
        every = FEDERATION_EVERY if self._federation_of(run) is not None else None
        return _stream(_changes(request, partial(self._run_page, run), lambda: run.version, every))

    async def side_events(self, request: Request) -> Response:
        page = partial(_in_thread, self._side_page, request)
        return _stream(_changes(request, page, lambda: sum(run.version for run in self._picked(request))))

    # -- what pages show -----------------------------------------------------------------------------------------------

    def _index_page(self) -> LivePage:
        version = self.monitor.version
        return replace(index_page(self.monitor.runs(), str(self.monitor.root)), version=version)

    def _side_page(self, request: Request) -> LivePage:
        version = sum(run.version for run in self._picked(request))
        return replace(side_page(self._picked(request)), version=version)

    def _picked(self, request: Request) -> list[FollowedRun]:
        names = request.query_params.getlist("run")
        return [run for name in dict.fromkeys(names) if (run := self.monitor.run(name)) is not None]

    async def _run_page(self, run: FollowedRun) -> LivePage:
        folder, federation = self._federation_of(run), None
        if folder is not None and self._status is not None:
            federation = await self._federation(folder)
        return await _in_thread(_drawn, run, federation)

    def _federation_of(self, run: FollowedRun) -> str | None:
        engine = run.view.config.get("engine", {}) if run.view is not None else {}
        folder = engine.get("federation") if isinstance(engine, dict) else None
        return folder if isinstance(folder, str) and self._status is not None else None

    async def _federation(self, folder: str) -> FederationState:
        now = asyncio.get_running_loop().time()
        moment, state = self._federations.get(folder, (-FEDERATION_EVERY, FederationState()))
        if now - moment >= FEDERATION_EVERY and self._status is not None:
            self._federations[folder] = (now, state)  # others need not ask while this one does
            try:
                state = await _in_thread(self._status, folder)
            except (AtollError, OSError, ImportError) as problem:
                state = FederationState(notes=[f"its state is not known: {problem}"])
            self._federations[folder] = (now, state)
        return state


def _drawn(run: FollowedRun, federation: FederationState | None) -> LivePage:
    """The page of a run, whatever its files say: one that cannot be drawn is damaged."""
    version = run.version
    with run.lock:
        try:
            return replace(run_page(run, federation), version=version)
        except (AtollError, *NOT_AS_WRITTEN) as problem:
            broken = problem
    run.cannot_be_drawn(broken)
    return replace(run_page(run, federation), version=run.version)


async def _in_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    return await anyio.to_thread.run_sync(function, *arguments)


async def _write_report(run: Path, out: Path) -> str:
    """Run `atoll report`; why it failed, or nothing."""
    program = "from atoll.cli.app import main; main()"
    command = [sys.executable, "-c", program, "report", str(run), "-o", str(out)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        _, said = await asyncio.wait_for(process.communicate(), REPORT_SECONDS)
    except TimeoutError:
        process.kill()
        return "the report took too long"
    return "" if process.returncode == 0 else " ".join(said.decode(errors="replace").split())[-300:] or "failed"


def live_script() -> str:
    return files("atoll.dashboard").joinpath("assets", "live.js").read_text(encoding="utf-8")


def _stream(changes: AsyncIterator[str]) -> Response:
    return StreamingResponse(changes, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def _changes(
    request: Request,
    page: Callable[[], Awaitable[LivePage]],
    version: Callable[[], int],
    every: float | None = None,
) -> AsyncIterator[str]:
    """The parts of a page that differ from what was sent before, as server-sent events. `every`: look again after so
    many seconds, although no run has changed."""
    loop = asyncio.get_running_loop()
    sent: dict[str, str] = {}
    given = request.query_params.get("version", "")
    seen = int(given) if given.isdecimal() else -1  # what the browser shows already
    drawn, spoke = -PAUSE, loop.time()
    while not await request.is_disconnected():
        now = loop.time()
        due = version() != seen or (every is not None and now - drawn >= every)
        if due and now - drawn >= PAUSE:
            seen, drawn = version(), now
            message = _difference(await page(), sent)
            if message:
                spoke = loop.time()
                yield f"data: {json.dumps(message, separators=(',', ':'))}\n\n"
        if loop.time() - spoke >= ALIVE:
            spoke = loop.time()
            yield ": alive\n\n"
        await asyncio.sleep(CHECK)


def _difference(page: LivePage, sent: dict[str, str]) -> dict[str, Any]:
    """What changed since the last message to this browser."""
    message: dict[str, Any] = {}
    for kind, items in (("parts", page.parts), ("rows", page.rows)):
        for name, text in items.items():
            if kind == "parts" and name == "runs" and page.rows:
                continue  # its rows are sent one by one
            mark = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
            if sent.get(f"{kind}-{name}") != mark:
                sent[f"{kind}-{name}"] = mark
                message.setdefault(kind, {})[name] = text
    if page.rows:
        order = list(page.rows)
        if sent.get("order") != ",".join(order):
            sent["order"] = ",".join(order)
            message["order"] = order
    return message
