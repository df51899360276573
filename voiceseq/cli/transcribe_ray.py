"""``voiceseq transcribe --engine ray``: workers on a cluster, or on this machine where no address is given.

Every node wants voiceseq installed and the inputs in reach (a shared disk, or URLs); the bundle is sent to the workers,
the texts come back and are written by this process.
"""

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from voiceseq.bundles import export_bundle
from voiceseq.cli.transcribe_engines import Found, Part, Worker
from voiceseq.errors import InputError, MissingDependencyError
from voiceseq.inference.transcriber import Settings

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # a busy machine takes longer than its 30 s


class Ray:
    """A crew of Ray actors, ``threads`` processors each; ``count`` None: as many as the cluster has room for.

    Raises MissingDependencyError where ray is not installed, InputError where there is no cluster at the address.
    """

    def __init__(
        self, count: int | None, address: str | None, model: str, settings: Settings, threads: int | None
    ) -> None:
        try:
            import ray
        except ModuleNotFoundError as error:
            raise MissingDependencyError(f"--engine ray needs ray ({error}): pip install 'voiceseq[ray]'") from error
        self._ray, threads = ray, threads or 1
        self._own = not ray.is_initialized()
        _quiet(ray)
        if self._own:
            self._connect(address, None if count is None else count * threads)
        self.size = count or max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        # a worker is never restarted by Ray itself: who gives out the parts knows which one to repeat
        actor = ray.remote(num_cpus=threads, max_restarts=0, max_task_retries=0)(Worker)
        bundle = ray.put(_packed(model))
        self._hire = lambda: actor.remote(bundle, settings, threads)
        self._idle: list[Any] = []
        self._busy: dict[Any, tuple[int, Any]] = {}

    def _connect(self, address: str | None, cpus: int | None) -> None:
        quiet = {"include_dashboard": False} if address is None else {}
        try:
            self._ray.init(
                address=address or "local",
                num_cpus=cpus if address is None else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={"env_vars": {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}},
                **quiet,
            )
        except Exception as error:  # Ray raises plain ones, too
            said = (str(error).splitlines() or [""])[0]
            failed = "Ray could not be started" if address is None else f"--address {address}: no Ray cluster there"
            raise InputError(f"{failed} ({said})") from error

    def give(self, number: int, part: Part) -> None:
        worker = self._idle.pop() if self._idle else self._hire()
        self._busy[worker.transcribe.remote(part)] = number, worker

    def take(self) -> tuple[int, list[Found] | str]:
        (ready, *_), _ = self._ray.wait(list(self._busy), num_returns=1)
        number, worker = self._busy.pop(ready)
        try:
            found: list[Found] = self._ray.get(ready)
        except self._ray.exceptions.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return number, lines[-1][:300] if lines else type(error).__name__
        self._idle.append(worker)
        return number, found

    def close(self) -> None:
        for worker in (*self._idle, *(worker for _, worker in self._busy.values())):
            self._ray.kill(worker)
        self._idle, self._busy = [], {}
        if self._own:
            self._ray.shutdown()


def _quiet(ray: Any) -> None:
    """Ray tells of workers that died on stdout, where the texts go; we tell what matters of it ourselves."""
    inside: Any = getattr(getattr(ray, "_private", None), "worker", None)
    if hasattr(inside, "print_to_stdstream"):
        inside.print_to_stdstream = lambda *given, **more: None


def _packed(model: str) -> bytes:
    """The bundle as one zip."""
    with tempfile.TemporaryDirectory() as folder:
        return Path(export_bundle(model, Path(folder) / "bundle.zip")).read_bytes()
