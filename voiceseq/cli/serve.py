"""``voiceseq serve``: OpenAI's transcription API, WebSockets, Wyoming for Home Assistant, and the page."""

import argparse
import ipaddress
import os
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from voiceseq.errors import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from voiceseq.apps.serve.running import Running

TOKEN = "VOICESEQ_TOKEN"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", action="append", metavar="NAME", help="a bundle of wake words, speech or text; repeat for "
        "several (default: all that ship)")  # fmt: skip
    add("--host", default="127.0.0.1", help="address to listen on; any but this machine's own wants --token "
        "(default: %(default)s)")  # fmt: skip
    add("--port", type=int, default=8000, help="0 takes any that is free (default: %(default)s)")
    add("--token", metavar="T", help=f"what clients must show (default: ${TOKEN}, if that is set)")
    add(
        "--origin",
        action="append",
        default=[],
        metavar="URL",
        help="pages from there may ask, too: https://host[:port]",
    )
    add("--wyoming", metavar="URI", help="Home Assistant's protocol, at tcp://host:port or unix:///path")
    add("--wyoming-allow", action="append", default=[], metavar="NET", help="who may connect to it, such as "
        "192.168.1.0/24: it knows no tokens")  # fmt: skip
    add("--zeroconf", metavar="NAME", nargs="?", const="voiceseq", help="announce Wyoming on the local network")
    add("--processes", action="append", default=[], metavar="ROLE=N", help="how many for listeners, speakers, files, "
        "texts (default: one each)")  # fmt: skip
    add("--limit", action="append", default=[], metavar="NAME=N", help="a wrong name lists all: listeners=200")
    add("--log-text", action="store_true", help="also log what people say")


def run(args: argparse.Namespace) -> int:
    args.token = args.token or os.environ.get(TOKEN) or None
    check(args)
    try:
        from voiceseq.apps.serve import running
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("voiceseq"):
            raise
        raise MissingDependencyError(f"serving needs {error.name}: pip install 'voiceseq[serve]'") from error
    return serve(args, running.run)


def check(args: argparse.Namespace) -> None:
    """Raises ConfigError with all that is wrong."""
    mistakes = []
    if args.host.strip("[]") not in LOOPBACK and args.token is None:
        mistakes.append(f"--host {args.host}: others can reach this address, so --token (or ${TOKEN}) is wanted")
    if args.token is not None and not (args.token.isascii() and args.token.isprintable()):
        mistakes.append("--token: plain characters were wanted, such as `openssl rand -hex 16` gives")
    if not 0 <= args.port <= 65535:
        mistakes.append(f"--port {args.port}: 0 to 65535 was wanted")
    mistakes += check_wyoming(args)
    mistakes += [f"--origin {one}: https://host[:port] was wanted" for one in args.origin if not is_origin(one)]
    mistakes += [f"--{name} {one}: NAME=NUMBER was wanted" for name in ("limit", "processes")
                 for one in getattr(args, name) if "=" not in one]  # fmt: skip
    if mistakes:
        raise ConfigError("; ".join(mistakes))


def check_wyoming(args: argparse.Namespace) -> list[str]:
    if args.wyoming is None:
        given = [f"--{name}" for name in ("wyoming-allow", "zeroconf") if getattr(args, name.replace("-", "_"))]
        return [f"{one} wants --wyoming" for one in given]
    mistakes = []
    try:
        uri = urlsplit(args.wyoming)
        whole = (
            bool(uri.path) if uri.scheme == "unix" else uri.scheme == "tcp" and uri.hostname and uri.port is not None
        )
    except ValueError:
        whole = False
    if not whole:
        mistakes.append(f"--wyoming {args.wyoming}: tcp://host:port or unix:///path was wanted")
    elif uri.scheme == "tcp" and uri.hostname not in LOOPBACK and not args.wyoming_allow:
        mistakes.append("--wyoming: others can reach this address and Wyoming knows no tokens, so say who may connect: "
                        "--wyoming-allow 192.168.1.0/24 (your network), or 0.0.0.0/0 for all")  # fmt: skip
    for one in args.wyoming_allow:
        try:
            ipaddress.ip_network(one, strict=False)
        except ValueError as error:
            mistakes.append(f"--wyoming-allow: {error}")
    return mistakes


def is_origin(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.netloc) and not parts.path


def pairs(given: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (one.partition("=") for one in given)}


def processes_of(given: list[str]) -> dict[str, int]:
    """Raises ConfigError."""
    roles = ("listeners", "speakers", "files", "texts")
    for name, text in pairs(given).items():
        if name not in roles or not text.isdecimal() or not 1 <= int(text) <= 64:
            raise ConfigError(f"--processes {name}={text}: {', '.join(roles)} with 1 to 64 was wanted")
    return {name: int(text) for name, text in pairs(given).items()}


def serve(args: argparse.Namespace, run_until_stopped: "Callable[..., Coroutine[Any, Any, None]]") -> int:
    import asyncio

    from voiceseq.apps.serve.catalogue import open_catalogue
    from voiceseq.apps.serve.limits import Limits
    from voiceseq.apps.serve.logs import Log
    from voiceseq.apps.serve.service import Service, Settings

    limits, processes = Limits.parse(pairs(args.limit)), processes_of(args.processes)
    catalogue = open_catalogue(args.model or ())
    host = args.host.strip("[]")
    settings = Settings(host, args.port, args.token, tuple(args.origin), args.wyoming, tuple(args.wyoming_allow),
                        args.zeroconf)  # fmt: skip

    async def main() -> None:
        service = Service(catalogue, limits, Log(with_text=args.log_text), processes)
        await run_until_stopped(service, settings, tell)

    asyncio.run(main())
    return 0


def tell(running: "Running") -> None:
    host = running.settings.host
    address = f"[{host}]" if ":" in host else host
    print(f"voiceseq: http://{address}:{running.port}", file=sys.stderr, flush=True)
    if running.settings.wyoming is not None:
        print(f"voiceseq: Wyoming at {running.settings.wyoming}", file=sys.stderr, flush=True)
