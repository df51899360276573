"""A real browser without a screen, whose microphone is a file; for tests of the page."""

import importlib.util
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

FLAGS = (
    *("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking"),
    *("disable-component-update", "disable-sync", "disable-dev-shm-usage", "window-size=1100,900"),
    *("use-fake-ui-for-media-stream", "use-fake-device-for-media-stream", "autoplay-policy=no-user-gesture-required"),
)


def missing() -> str:
    """What keeps a browser from being driven here; "" where nothing does."""
    lacks = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if importlib.util.find_spec("selenium") is None:
        lacks.append("the package selenium")
    return ", ".join(lacks)


@contextmanager
def browser(microphone: Path) -> "Iterator[Chrome]":
    """Chromium; ``microphone`` is a wav that it hears over and over."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for flag in (*FLAGS, f"use-file-for-fake-audio-capture={microphone}", f"user-data-dir={profile}"):
            options.add_argument(f"--{flag}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
        driver.set_script_timeout(60)
        try:
            yield driver
        finally:
            driver.quit()


def until(found: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What ``found`` gives as soon as it gives something; the machine may be busy, so it is given time."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "it did not come in time"
        time.sleep(0.1)
    return value
