"""What `make test` runs: lint, format, types, tests; then one summary. Exit status 1 when any of them failed."""

import os
import subprocess
import sys
import time

# strict but for what torch (modules return Any, parts are untyped) and numba (no types at all) make impossible
STRICT = ["--strict", "--no-warn-return-any", "--allow-untyped-calls", "--allow-untyped-decorators"]
# what listens to a microphone in real time and looks at a terminal or a browser wants the machine for itself
ALONE = ["tests/apps/test_page.py", "tests/apps/test_screen.py", "tests/commands/test_listen.py"]
ALONE += ["tests/commands/test_wakeword.py"]
# two test processes with two threads each would wait for each other on two cores
ENVIRONMENT = {"OMP_NUM_THREADS": "1", **os.environ}
LINT = {
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
    "mypy --strict": [
        "mypy",
        "--cache-dir",
        ".mypy_cache/strict",
        *STRICT,
        "-p",
        "voiceseq.core",
        "-p",
        "voiceseq.bundles",
    ],
}
# the long files first, so that no process is left alone with one at the end
SHARED_OUT = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "tests/training", "tests"]
TESTS = {
    "pytest": ["pytest", "-m", "not slow", *SHARED_OUT, *(f"--ignore={name}" for name in ALONE)],
    "pytest, live": ["pytest", "-m", "not slow", *ALONE],
}


def main() -> int:
    tests = {} if "--lint" in sys.argv else TESTS
    # the tests one after the other, what only reads the code side by side
    rounds = [LINT, *({name: command} for name, command in tests.items())]
    results = []
    for checks in rounds:
        print(f"== {', '.join(checks)}", flush=True)
        start = time.monotonic()
        running = {
            name: subprocess.Popen([sys.executable, "-m", *command], env=ENVIRONMENT)
            for name, command in checks.items()
        }
        results += [(name, process.wait(), time.monotonic() - start) for name, process in running.items()]
    print("\n== summary")
    for name, code, seconds in results:
        print(f"{name:14} {'ok' if code == 0 else 'FAILED':8} {seconds:6.0f} s")
    return int(any(code for _, code, _ in results))


if __name__ == "__main__":
    sys.exit(main())
