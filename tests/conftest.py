"""What several test files share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings
from places import ROOT

# The same examples in every run, and no clock: what fails is what was changed. VOICESEQ_FUZZ=1 looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
if not os.environ.get("VOICESEQ_FUZZ"):
    settings.load_profile("same")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data: $VOICESEQ_SHARED, else ../shared beside the repository; without it the test skips."""
    folder = Path(os.environ.get("VOICESEQ_SHARED") or ROOT.parent / "shared")
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}: set VOICESEQ_SHARED to the folder that holds it")
    return folder
