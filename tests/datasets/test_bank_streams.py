"""What a bank is made of, and that its labels are where the sound is."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from voiceseq.audio.augment import AugmentConfig, Augmenter, Gain, Noise, Speed
from voiceseq.audio.files import write_audio
from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.cli import wakeword_bank
from voiceseq.cli.main import Command, command_parser
from voiceseq.datasets import bank_streams
from voiceseq.datasets.bank import Bank, weights_sha256
from voiceseq.datasets.bank_streams import (
    GAP_S,
    SAMPLE_RATE,
    SCENE_S,
    Source,
    build_bank,
    by_speaker,
    further_passes,
    gather,
    hardened,
    long_streams,
    scenes,
    share_out,
)
from voiceseq.datasets.manifest import Clip, held_out
from voiceseq.errors import ConfigError, InputError
from voiceseq.models.backbone import Backbone, BackboneConfig

FRAME = 480


@pytest.fixture
def tones(tmp_path: Path) -> Callable[..., Path]:
    """A corpus of loud tones, a row a tone; further fields by name."""

    def make(name: str, seconds: list[float], **fields: object) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        time = np.arange(round(max(seconds) * SAMPLE_RATE)) / SAMPLE_RATE
        write_audio(folder / "tone.wav", (0.5 * np.sin(2 * np.pi * 440 * time)).astype(np.float32), SAMPLE_RATE)
        rows = []
        for number, duration in enumerate(seconds):
            own = {key: value[number] if isinstance(value, list) else value for key, value in fields.items()}
            rows.append({"id": f"{name}-{number}", "audio": "tone.wav", "duration": duration} | own)
        path = folder / "manifest.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return make


def clips_of(path: Path, kind: str = "speech") -> tuple[Clip, ...]:
    (source,) = gather({kind: [path]}, {path.parent.name: "CC0"})
    return source.clips


def loud(samples: np.ndarray) -> np.ndarray:
    """The level of each hundredth of a second."""
    whole = samples[: len(samples) // 160 * 160].reshape(-1, 160)
    return np.sqrt((whole**2).mean(1))


def test_only_what_may_be_given_away_is_gathered(tones: Callable[..., Path]) -> None:
    speakers = [f"speaker-{number}" for number in range(40)]
    books = tones("books", [0.1] * 40, speaker=speakers, text="a word")
    free = tones(
        "free",
        [0.1] * 6,
        package=["one", "one", "two", "three", "one", "one"],
        share=["train", "test", "train", "train", "train", "train"],
        kind=["noise", "noise", "noise", "noise", "music", "noise"],
        licence="MIT",
        licence_class=["permissive", "permissive", "gpl", "share-alike", "permissive", "permissive"],
    )
    esc = tones("esc", [0.1] * 3, label=["dog", "airplane", "rain"], kind="environment", licence="CC BY",
                source=["ESC:1.wav", "ESC:2.wav", "ESC:3.wav"])  # fmt: skip
    found = gather(
        {"speech": [books], "noise": [free, esc]}, {"books": "CC BY 4.0"}, 0.3, ("permissive", "share-alike")
    )
    kept = {source.name: [clip.id for clip in source.clips] for source in found}
    assert kept == {
        "books": [f"books-{number}" for number in range(40) if not held_out(speakers[number], 0.3)],
        "one": ["free-0", "free-5"],
        "three": ["free-3"],
        "ESC": ["esc-0", "esc-2"],
    }
    assert 0 < len(kept["books"]) < 40
    assert {source.name: source.licence for source in found}["books"] == "CC BY 4.0"
    with pytest.raises(InputError, match="states no licence for 'books'"):
        gather({"speech": [books]}, {})
    with pytest.raises(InputError, match="kind 'birds'"):
        gather({"birds": [books]}, {})
    with pytest.raises(InputError, match="nothing of these"):
        gather({"speech": [books]}, {"books": "CC0"}, 1.0)


def test_hours_are_shared_out_alike() -> None:
    def source(name: str, kind: str, hours: int) -> Source:
        return Source(name, kind, "CC0", tuple(Clip(f"{name}-{n}", Path("x"), 36.0) for n in range(100 * hours)))

    sources = [source("long", "speech", 9), source("short", "speech", 1), source("middle", "speech", 4)]
    chosen = share_out([*sources, source("din", "noise", 2)], {"speech": 7, "noise": 5}, np.random.default_rng(1))
    assert {one.name: round(one.hours, 6) for one in chosen} == {"short": 1, "middle": 3, "long": 3, "din": 2}
    for one in chosen:
        assert len({clip.id for clip in one.clips}) == len(one.clips)


def test_noise_and_music_come_again_until_their_hours_are_full() -> None:
    def source(name: str, kind: str, hours: float) -> Source:
        return Source(name, kind, "CC0", (Clip(name, Path("x"), 3600 * hours),))

    chosen = [source("talk", "speech", 1), source("din", "noise", 1), source("song", "music", 0.5)]
    chosen.append(source("hum", "noise", 0.4))
    again = further_passes(chosen, {"speech": 9.0, "noise": 3.0, "music": 50.0})
    assert [one.name for one in again] == ["song", "song", "din", "hum"]


def test_a_further_pass_sounds_otherwise(tones: Callable[..., Path], tmp_path: Path) -> None:
    din = gather({"noise": [tones("din", [5.0] * 3, licence="MIT")]}, {})
    heard: list[np.ndarray] = []

    def listen(samples: np.ndarray) -> np.ndarray:
        heard.append(samples)
        return np.zeros((10, 1), np.float32)

    settings = {"frame_s": 0.03, "hours": {"noise": 30 / 3600}, "augment": AugmentConfig()}
    build_bank(din, listen, "ab" * 32, tmp_path / "bank", **settings)  # type: ignore[arg-type]
    first, second = heard
    pitch = [float(np.abs(np.fft.rfft(one)).argmax() * SAMPLE_RATE / len(one)) for one in (first, second)]
    assert pitch[0] == pytest.approx(440, abs=2)
    assert abs(pitch[1] - 440) > 4


def test_scenes_are_clips_with_gaps_and_never_silent(tones: Callable[..., Path]) -> None:
    path = tones("books", [1.5, 4.0, 0.7] * 9, text=[f"number {n}" for n in range(27)])
    pieces = list(scenes(clips_of(path), np.random.default_rng(2)))
    assert len(pieces) > 1
    assert [text for piece in pieces for _, _, text in piece.said] == [f"number {n}" for n in range(27)]
    for piece in pieces:
        assert len(piece.samples) < (SCENE_S + 5) * SAMPLE_RATE
        level = loud(piece.samples)
        assert level.min() > 10 ** (-80 / 20)
        for start, end, _ in piece.said:
            assert level[int(start) // 160 + 2 : int(end) // 160 - 1].min() > 0.3
        ends = [end for _, end, _ in piece.said]
        starts = [start for start, _, _ in piece.said[1:]] + [len(piece.samples)]
        for end, start in zip(ends, starts, strict=True):
            assert GAP_S[0] * SAMPLE_RATE - 1 <= start - end <= GAP_S[1] * SAMPLE_RATE + 1
            assert level[int(end) // 160 + 2 : int(start) // 160 - 1].max(initial=0) < 10 ** (-40 / 20)


def test_labels_move_with_the_sound(tones: Callable[..., Path]) -> None:
    path = tones("books", [2.0] * 3, text="a tone")
    (piece,) = scenes(clips_of(path), np.random.default_rng(3))
    fast = hardened(piece, Augmenter(AugmentConfig(speed=Speed(1.0, (1.25, 1.25)))), np.random.default_rng(1))
    assert len(fast.samples) == pytest.approx(len(piece.samples) / 1.25, abs=2)
    level = loud(fast.samples)
    assert len(fast.said) == 3
    for start, end, text in fast.said:
        assert text == "a tone"
        assert end - start == pytest.approx(1.6 * SAMPLE_RATE, abs=2)
        assert level[int(start) // 160 + 2 : int(end) // 160 - 2].min() > 0.3
        assert level[int(end) // 160 + 2 : int(end) // 160 + 5].max() < 0.05


def test_a_share_of_the_scenes_is_hardened(tones: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bank_streams, "SCENE_S", 3.0)
    path = tones("books", [3.0] * 40)
    source = Source("books", "speech", "CC0", clips_of(path))
    quiet = Augmenter(AugmentConfig(gain=Gain(1.0, (-40.0, -40.0))))

    def share(wanted: float) -> float:
        level = np.concatenate([loud(s.samples) for s in long_streams(source, np.random.default_rng(5), quiet, wanted)])
        return float((level < 0.01).mean())

    assert share(0.0) < 0.2  # the gaps
    assert 0.3 < share(0.5) < 0.8
    assert share(1.0) > 0.95


def test_a_voice_stays_together() -> None:
    voices = [name for name in "abcdefgh" for _ in range(6)]
    clips = [Clip(str(number), Path("x"), 1.0, speaker=voice) for number, voice in enumerate(voices)]
    order = by_speaker(clips, np.random.default_rng(1))
    assert sorted(int(clip.id) for clip in order) == list(range(48))
    heard = [clip.speaker for clip in order]
    turns = [voice for voice, before in zip(heard, [None, *heard], strict=False) if voice != before]
    assert sorted(turns) == list("abcdefgh") != turns
    assert [clip.id for clip in order if clip.speaker == "a"] != ["0", "1", "2", "3", "4", "5"]
    nobody = by_speaker([Clip(str(number), Path("x"), 1.0) for number in range(20)], np.random.default_rng(1))
    assert sorted(int(clip.id) for clip in nobody) == list(range(20))


def small_backbone() -> Backbone:
    torch.manual_seed(1)
    return Backbone(BackboneConfig(symbols=5, channels=8, size=16, layers=1, bottleneck=4)).eval()


def test_listening_goes_on_from_piece_to_piece() -> None:
    backbone = small_backbone()
    samples = np.random.default_rng(1).normal(0, 0.1, 70 * SAMPLE_RATE + 123).astype(np.float32)
    with torch.inference_mode():
        whole = backbone(torch.from_numpy(samples)[None])[0].bottleneck[0].numpy()
    assert np.allclose(wakeword_bank.listen(backbone, samples), whole, atol=1e-5)


def test_a_bank_holds_what_the_backbone_hears(tones: Callable[..., Path], tmp_path: Path) -> None:
    books = gather({"speech": [tones("books", [3.0, 2.0, 4.0] * 8, text="hey luna")]}, {"books": "CC0"})
    din = gather({"noise": [tones("din", [5.0] * 3, licence=["MIT", "MIT", "CC0"])]}, {})
    heard: list[np.ndarray] = []

    def listen(samples: np.ndarray) -> np.ndarray:
        level = loud(samples)[: len(samples) // FRAME * 3].reshape(-1, 3).mean(1, keepdims=True)
        heard.append(np.clip(level, 0, 1))
        return heard[-1]

    settings = {"frame_s": 0.03, "hours": {"speech": 1.0, "noise": 1.0}, "augment": AugmentConfig(noise=Noise(0.5))}
    paths = [
        build_bank([*books, *din], listen, "ab" * 32, tmp_path / name, **settings)  # type: ignore[arg-type]
        for name in ("one", "two")
    ]
    assert (paths[0] / "streams-00.bin").read_bytes() == (paths[1] / "streams-00.bin").read_bytes()
    bank = Bank.load(paths[0], "ab" * 32)
    for stream, frames in zip(bank, heard, strict=False):
        assert np.abs(stream.frames - frames).max() <= 1 / 63 + 1e-6
        for said in stream.utterances:
            assert stream.frames[said.start + 1 : said.end - 1].min() > 0.3
    assert sum(len(stream.utterances) for stream in bank) == 24
    assert sum(len(stream.frames) for stream in bank.streams(leave_out=["hey luna"]) if stream.kind == "speech") < 100
    assert {row["name"]: row["licence"] for row in bank.bundle.training["data"]} == {"books": "CC0", "din": "MIT, CC0"}


def test_without_noises_there_is_none_to_mix_in(tones: Callable[..., Path], tmp_path: Path) -> None:
    books = gather({"speech": [tones("books", [3.0])]}, {"books": "CC0"})
    noisy = AugmentConfig(noise=Noise(1.0))
    path = build_bank(
        books, lambda s: np.zeros((len(s) // FRAME, 2), np.float32), "ab", tmp_path / "bank",
        frame_s=0.03, hours={"speech": 1.0}, augment=noisy, share=1.0,
    )  # fmt: skip
    assert Bank.load(path).hours.keys() == {"speech"}
    with pytest.raises(ConfigError, match="a share from 0 to 1"):
        build_bank(books, lambda s: s, "ab", path, frame_s=0.03, hours={}, augment=noisy, share=2.0)


def run(*words: str) -> int:
    parser = command_parser("wakeword bank", Command("", "x", ""))
    wakeword_bank.add_arguments(parser)
    return wakeword_bank.run(parser.parse_args([str(word) for word in words]))


def test_the_command(tones: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backbone = small_backbone()
    save_bundle(tmp_path / "backbone", kind="backbone", config=backbone.config, weights=backbone.state_dict())
    books, din = tones("books", [3.0] * 6, text="hey luna"), tones("din", [20.0] * 2, licence="MIT")
    out = tmp_path / "bank"
    wanted = ["--out", out, "--backbone", tmp_path / "backbone", "--json"]
    assert run(*wanted, "--speech", books, "--licence", "books=CC BY 4.0", "--noise", din) == 0  # type: ignore[arg-type]
    told = json.loads(capsys.readouterr().out)
    assert told["levels"] == 64
    assert told["hours"].keys() == {"speech", "noise"}
    bank = Bank.load(out, weights_sha256(load_bundle(tmp_path / "backbone")))
    assert bank.hours["noise"] == pytest.approx(3 * 40 / 3600, rel=0.2)  # three times, faster or slower
    with pytest.raises(ConfigError, match="no manifests came"):
        run(*wanted)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="NAME=LICENCE was wanted"):
        run(*wanted, "--speech", books, "--licence", "books")  # type: ignore[arg-type]
