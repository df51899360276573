"""What ships: whole, small, with its licence, and at work."""

import pytest

import voiceseq
from voiceseq.bundles import load_bundle, shipped_bundles, verify_bundle

NAMES = sorted(shipped_bundles())


def test_something_ships() -> None:
    assert "shakespeare" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_bundle_is_whole_small_and_licensed(name: str) -> None:
    report = verify_bundle(name)
    assert report.ok, report.problems
    assert not report.unlisted
    bundle = load_bundle(name)
    assert max(entry.size for entry in bundle.files.values()) <= 20e6
    assert sum(entry.size for entry in bundle.files.values()) <= 40e6
    assert bundle.licence
    assert all(source["licence"] for source in bundle.training["data"])
    assert "licence" in bundle.card.lower()
    assert not any(mark in str(bundle.training) + bundle.card for mark in ("/home/", "/root/", "/work/", "../"))


def test_shakespeare_prefers_shakespeare() -> None:
    model = voiceseq.load("shakespeare")
    verse, noise, typo = model.score(["What say you, my lord?", "Wsa thyau yo, ?mdorl", "What say yuo, my lord?"])
    assert verse.log_prob > typo.log_prob > noise.log_prob
    text = model.generate(["ROMEO:"], 200, temperature=0.5, seed=1)[0]
    assert len(text) == 200
    assert text == model.generate(["ROMEO:"], 200, temperature=0.5, seed=1)[0]
    assert sum(text.count(word) for word in (" the ", " and ", " to ", " of ", " I ", " my ")) >= 3
