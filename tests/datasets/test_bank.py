"""What is taken out of a bank is what was put in, and only what may be."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.datasets import bank as bank_module
from voiceseq.datasets.bank import AFTER_S, Bank, Stream, Utterance, those_that_fit, weights_sha256, write_bank
from voiceseq.errors import BundleError, InputError

FRAME_S, SHA = 0.03, "ab" * 32
LICENCES = {"books": "CC BY 4.0", "street": "CC0", "band": "public domain"}


def wandering(seed: int, time: int, size: int = 6) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.tanh(np.cumsum(rng.normal(0, 0.2, (time, size)), 0)).astype(np.float32)


def some_streams() -> list[Stream]:
    said = (
        Utterance(10, 200, "to start a computer game"),
        Utterance(215, 400, None),
        Utterance(410, 700, "hey luna what is art"),
        Utterance(705, 900, "luna hey"),
        Utterance(1000, 1500, "the end of hey luna"),
    )
    return [
        Stream("speech", "books", wandering(1, 1500), said),
        Stream("noise", "street", wandering(2, 1024)),
        Stream("speech", "books", wandering(3, 40), (Utterance(0, 40, "computer"),)),
        Stream("music", "band", wandering(4, 2300)),
    ]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bank") / "bank"
    return write_bank(some_streams(), SHA, folder, frame_s=FRAME_S, licences=LICENCES)


@pytest.fixture
def written(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "written"))


def test_what_was_written_comes_back_within_half_a_step(written: Path) -> None:
    bank = Bank.load(written, SHA)
    assert len(bank) == 4
    for stream, given in zip(bank, some_streams(), strict=True):
        assert (stream.kind, stream.source, stream.utterances) == (given.kind, given.source, given.utterances)
        assert stream.frames.dtype == np.float32
        assert stream.frames.shape == given.frames.shape
        assert np.abs(stream.frames - given.frames).max() <= 1 / (bank.config.levels - 1) + 1e-6
    assert bank.config.levels == 64
    assert bank.hours == pytest.approx(
        {"speech": 1540 * FRAME_S / 3600, "noise": 1024 * FRAME_S / 3600, "music": 2300 * FRAME_S / 3600}
    )


def test_the_card_names_sources_licences_and_backbone(written: Path) -> None:
    bundle = load_bundle(written)
    for word in (*LICENCES, *LICENCES.values(), SHA):
        assert word in bundle.card
    assert {row["name"]: row["licence"] for row in bundle.training["data"]} == LICENCES
    assert not [name for name in bundle.files if name.endswith((".pkl", ".pt"))]


def test_another_backbone_is_refused(written: Path) -> None:
    Bank.load(written)
    with pytest.raises(BundleError, match="does not understand"):
        Bank.load(written, "cd" * 32)


def test_another_bundle_is_refused(tmp_path: Path) -> None:
    path = save_bundle(tmp_path / "other", kind="language-model", config={})
    with pytest.raises(BundleError, match="a bank was wanted"):
        Bank.load(path)
    with pytest.raises(BundleError, match="no weights"):
        weights_sha256(load_bundle(path))


@pytest.mark.parametrize("name", ["streams-00.bin", "utterances.json.xz", "frequencies.xz", "README.md", "bundle.json"])
def test_a_changed_byte_is_refused(written: Path, name: str) -> None:
    data = bytearray((written / name).read_bytes())
    data[len(data) // 2] ^= 1
    (written / name).write_bytes(data)
    with pytest.raises(BundleError):
        Bank.load(written)


def test_wrong_contents_under_a_right_seal_are_refused(written: Path, tmp_path: Path) -> None:
    """Whoever makes a bundle can seal anything."""
    bundle = load_bundle(written)
    files = {name: bundle.read(name) for name in bundle.files if name != "README.md"}
    first = bundle.config["entries"][0]
    for number, (changed, config) in enumerate(
        [
            ({"utterances.json.xz": bank_module._pack([[]])}, {}),
            ({"utterances.json.xz": bank_module._pack([["x"]] * 4)}, {}),
            ({"utterances.json.xz": b"no"}, {}),
            ({"frequencies.xz": bank_module._pack(1)}, {}),
            ({"frequencies.xz": files["frequencies.xz"][:-30]}, {}),
            ({}, {"levels": 8}),
            ({}, {"levels": 0}),
            ({}, {"entries": [{**first, "file": "elsewhere.bin"}, *bundle.config["entries"][1:]]}),
            ({}, {"entries": [{**first, "time": 1501}, *bundle.config["entries"][1:]]}),
            ({}, {"entries": [{**first, "time": -1}, *bundle.config["entries"][1:]]}),
            ({}, {"entries": [{**first, "time": 10**15}, *bundle.config["entries"][1:]]}),
        ]
    ):
        path = tmp_path / f"forged-{number}"
        save_bundle(path, kind="bank", config=bundle.config | config, files=files | changed)
        with pytest.raises(BundleError):
            list(Bank.load(path))


def test_the_finest_levels_that_fit_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(levels: tuple[int, ...]) -> Path:
        return write_bank(streams, SHA, tmp_path / "bank", frame_s=FRAME_S, licences=LICENCES, levels=levels)

    def size(path: Path) -> int:
        return sum(entry.size for name, entry in load_bundle(path).files.items() if name != "README.md")

    streams = some_streams()
    sizes = {count: size(save((count,))) for count in (64, 32, 8)}
    assert sizes[64] > sizes[32] > sizes[8]
    for count, most in sizes.items():
        monkeypatch.setattr(bank_module, "MAX_BANK", most)
        path = save((64, 32, 8))
        assert (Bank.load(path).config.levels, size(path)) == (count, most)
    monkeypatch.setattr(bank_module, "MAX_BANK", sizes[8] - 1)
    with pytest.raises(InputError, match="h fit"):
        save((64, 32, 8))


def test_of_what_does_not_fit_every_kind_loses_its_last_streams(tmp_path: Path) -> None:
    streams = [Stream(kind, kind, wandering(7 * n, 4000)) for n in range(8) for kind in ("speech", "noise")]
    licences = {"speech": "CC0", "noise": "CC0"}
    assert those_that_fit(streams) == streams
    for most in (14_000, 9_000):
        kept = those_that_fit(streams, most)
        counts = {kind: sum(stream.kind == kind for stream in kept) for kind in licences}
        assert 2 <= counts["speech"] == counts["noise"] < 8
        assert all(one is other for one, other in zip(kept, streams, strict=False))
        write_bank(kept, SHA, tmp_path / str(most), frame_s=FRAME_S, licences=licences, most=most)


def test_files_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bank_module, "MAX_FILE", 4000)
    streams = [Stream("noise", "street", wandering(seed, 500)) for seed in range(12)]
    path = write_bank(streams, SHA, tmp_path / "bank", frame_s=FRAME_S, licences=LICENCES)
    parts = sorted(path.glob("streams-*.bin"))
    assert len(parts) > 2
    assert all(part.stat().st_size <= 4000 for part in parts)
    for stream, given in zip(Bank.load(path), streams, strict=True):
        assert np.abs(stream.frames - given.frames).max() < 0.02


@pytest.mark.parametrize(
    ("phrases", "gone"),
    [
        ([], []),
        (["Hey, Luna!"], [(410, 700), (1000, 1500)]),
        (["luna hey"], [(705, 900)]),
        (["art"], [(410, 700)]),  # and not in "start"
        (["computer", "luna"], [(10, 200), (410, 700), (705, 900), (1000, 1500)]),
        (["nobody says that", "..."], []),
    ],
)
def test_what_says_the_phrase_is_left_out(written: Path, phrases: list[str], gone: list[tuple[int, int]]) -> None:
    bank = Bank.load(written)
    whole = bank[0]
    keep = np.ones(1500, bool)
    for start, end in gone:
        keep[start : end + round(AFTER_S / FRAME_S)] = False
    pieces = [stream for stream in bank.streams(("speech",), phrases) if len(stream.frames) != 40]
    assert np.array_equal(np.concatenate([piece.frames for piece in pieces]), whole.frames[keep])
    left = [said.text for piece in pieces for said in piece.utterances]
    untouched = [said for said in whole.utterances if keep[said.start : said.end].all()]
    assert left == [said.text for said in untouched]
    for piece in pieces:
        for said in piece.utterances:
            (where,) = [one for one in untouched if one.text == said.text]
            assert np.array_equal(piece.frames[said.start : said.end], whole.frames[where.start : where.end])


def test_kinds_are_chosen(written: Path) -> None:
    bank = Bank.load(written)
    given = [said.text for stream in some_streams() for said in stream.utterances if said.text]
    assert list(bank.texts()) == given
    assert [stream.kind for stream in bank.streams(("noise", "music"))] == ["noise", "music"]
    assert [stream.kind for stream in bank.streams()] == [stream.kind for stream in bank]


def test_what_cannot_be_a_bank_is_refused(tmp_path: Path) -> None:
    good = some_streams()[0]
    wrong = {
        "nothing": [],
        "'birds'": [replace(good, kind="birds")],
        "licence of 'unknown'": [replace(good, source="unknown")],
        "-1..1": [replace(good, frames=good.frames * 3)],
        "sizes": [good, replace(good, frames=good.frames[:, :2])],
        "outside its stream": [replace(good, utterances=(Utterance(0, 1501),))],
    }
    for message, streams in wrong.items():
        with pytest.raises(InputError, match=message):
            write_bank(streams, SHA, tmp_path / "bank", frame_s=FRAME_S, licences=LICENCES)
    assert not (tmp_path / "bank").exists()


def test_texts_survive_as_they_are(tmp_path: Path) -> None:
    said = (Utterance(0, 5, 'caf\u00e9 "\u4f60\u597d"\n'), Utterance(5, 9, ""))
    stream = replace(some_streams()[0], utterances=said)
    path = write_bank([stream], SHA, tmp_path / "bank.zip", frame_s=FRAME_S, licences=LICENCES)
    assert Bank.load(path)[0].utterances == said
    assert json.dumps(load_bundle(path).config)
