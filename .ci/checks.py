"""What `make test` runs: lint, format, types, tests; then one summary. Exit status 1 when any of them failed."""

import subprocess
import sys
import time

# strict but for what torch (modules return Any, parts are untyped) and numba (no types at all) make impossible
STRICT = ["--strict", "--no-warn-return-any", "--allow-untyped-calls", "--allow-untyped-decorators"]
CHECKS = {
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
    "mypy --strict": ["mypy", *STRICT, "-p", "voiceseq.core", "-p", "voiceseq.bundles"],
    "pytest": ["pytest", "-m", "not slow"],
}


def main() -> int:
    names = [name for name in CHECKS if name != "pytest" or "--lint" not in sys.argv]
    results = []
    for name in names:
        print(f"== {name}", flush=True)
        start = time.monotonic()
        code = subprocess.run([sys.executable, "-m", *CHECKS[name]]).returncode
        results.append((name, code, time.monotonic() - start))
    print("\n== summary")
    for name, code, seconds in results:
        print(f"{name:14} {'ok' if code == 0 else 'FAILED':8} {seconds:6.0f} s")
    return int(any(code for _, code, _ in results))


if __name__ == "__main__":
    sys.exit(main())
