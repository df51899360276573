"""All that the doors of the server (HTTP, WebSockets, Wyoming) share."""

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from voiceseq.apps.serve.catalogue import Catalogue
from voiceseq.apps.serve.limits import Gate, Limits
from voiceseq.apps.serve.logs import Log
from voiceseq.apps.serve.metrics import Metrics
from voiceseq.apps.serve.workers import Workers

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Settings:
    """Where the server listens and whom it answers."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    origins: tuple[str, ...] = ()
    wyoming: str | None = None  # tcp://host:port or unix:///path
    wyoming_allow: tuple[str, ...] = ()
    zeroconf: str | None = None
    page: Path = field(default_factory=lambda: Path(__file__).resolve().parent.parent / "page")


class Service:
    """Workers and their models, who is inside, and what is counted. ``start`` and ``stop`` it."""

    def __init__(
        self,
        catalogue: Catalogue,
        limits: Limits,
        log: Log,
        processes: Mapping[str, int] | None = None,
        opener: str | None = None,
    ) -> None:
        self.catalogue, self.limits, self.log = catalogue, limits, log
        self.metrics = Metrics()
        self.workers = Workers(catalogue, limits, self.metrics, log, processes, opener or "voiceseq:load")
        self.gate = Gate(limits, self.workers.late_s)
        self.metrics.gauges["clients"] = lambda: {(("kind", kind),): n for kind, n in self.gate.inside.items()}
        self.metrics.gauges["late_seconds"] = lambda: {
            (("kind", role),): self.workers.late_s(role) for role in self.workers.roles
        }
        self._folder: Path | None = None

    @property
    def folder(self) -> Path:
        """Of uploads, once it is started."""
        assert self._folder is not None
        return self._folder

    async def start(self) -> None:
        """Raises BundleError where a model cannot be opened."""
        await self.workers.start()
        self._folder = Path(tempfile.mkdtemp(prefix="voiceseq-serve-"))  # last: whoever is killed before leaves nothing

    async def drain(self) -> None:
        """Let nobody in, and give those who are inside time to end: live streams are finished, files transcribed."""
        self.gate.stopping.set()
        kinds = ("listeners", "speakers", "files", "texts")
        try:
            async with asyncio.timeout(self.limits.stop_s):
                while any(self.gate.inside[kind] for kind in kinds):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            left = {kind: self.gate.inside[kind] for kind in kinds}
            self.log.warning("stopping with clients inside", **left)

    async def stop(self) -> None:
        await self.workers.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
