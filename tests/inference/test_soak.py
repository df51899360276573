"""An hour of the day-long soak of benchmarks/soak.py."""

import importlib.util

import pytest
from places import ROOT


@pytest.mark.slow
def test_an_hour_of_listening_leaves_no_trace() -> None:
    spec = importlib.util.spec_from_file_location("soak", ROOT / "benchmarks" / "soak.py")
    assert spec
    assert spec.loader
    soak = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(soak)
    row = soak.measure(hours=1)["rows"][0]
    assert row["met"], row
    assert row["events"] > 30
    assert row["replaced"] == 6 * 20
