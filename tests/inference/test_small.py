"""Names, captions, clips, forecasts and chorales at work, as bundles and from the command line."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import voiceseq
from voiceseq.bundles import save_bundle
from voiceseq.cli import main
from voiceseq.datasets.digits import CANVAS, MOVES, clip
from voiceseq.errors import ConfigError, InputError
from voiceseq.inference.captioner import Captioner, FrameClassifier, read_frames
from voiceseq.inference.composer import TICKS, Composer, chances_of, midi_bytes, variable_length
from voiceseq.inference.forecaster import Forecaster, Settings
from voiceseq.inference.names import NameWriter
from voiceseq.models.frames import FrameConfig, FrameNetwork, FramesToText
from voiceseq.models.seq2seq import Seq2SeqConfig
from voiceseq.models.series import LEVELS, Scaling, calibrate, futures, interval
from voiceseq.text.vocabulary import Vocabulary

KINDS = ("female", "male")


@pytest.fixture(scope="module", autouse=True)
def seeded() -> None:
    torch.manual_seed(2)


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = Vocabulary.from_text("ab", specials=("unknown", "bos", "eos"))
    config = Seq2SeqConfig(2, len(target), size=8, embedding=4, attention="none")
    return save_bundle(
        tmp_path_factory.mktemp("n") / "names",
        kind="names",
        config=dataclasses.asdict(config),
        weights=FramesToText(config).state_dict(),
        vocabularies={"target": target.to_json(), "kinds": Vocabulary(KINDS, "word").to_json()},
        decoding={"beam": 2, "alpha": 0.0, "max_length": 3},
    )


def test_the_kind_of_a_name_is_bayes_rule(names: Path) -> None:
    model = voiceseq.load(names)
    assert isinstance(model, NameWriter)
    (found,) = model.kinds_of(["ab"])
    assert sum(found.values()) == pytest.approx(1.0)
    frames, lengths = model._encode(list(KINDS))
    tokens = torch.tensor([[model.bos, *model.target.encode("ab")]] * 2)
    with torch.no_grad():
        steps = model.network(frames, tokens, lengths).log_softmax(-1)
    wanted = [*model.target.encode("ab"), model.eos]
    total = torch.stack([steps[:, place, symbol] for place, symbol in enumerate(wanted)]).sum(0)
    assert found["female"] == pytest.approx(float(total.softmax(0)[0]), abs=1e-5)


def test_names_are_written_by_seed_and_kind(names: Path, capsys) -> None:
    model = voiceseq.load(names)
    assert model.write(["male"] * 5, seed=3) == model.write(["male"] * 5, seed=3)
    assert all(
        set(name) <= set("ab") and len(name) <= 3 for name in model.write(["female"] * 9, temperature=2.0, seed=1)
    )
    assert model.write([]) == []
    with pytest.raises(InputError, match="one of female, male"):
        model.write(["robot"])
    with pytest.raises(InputError, match="0 letters"):
        model.kinds_of([""])
    lines = ["male", "", "robot", "\ufefffemale", "x" * 100_000]
    assert main.main(["generate", *lines, "--model", str(names), "--seed", "1"]) == 1
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 5
    assert len(captured.err.splitlines()) == 3


# --- pictures and clips -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = Vocabulary(("<bos>", "<eos>", "a", "seven"), "word", ("bos", "eos"))
    config = Seq2SeqConfig(24, len(target), size=8, embedding=4)
    return save_bundle(
        tmp_path_factory.mktemp("c") / "captions",
        kind="captioner",
        config=dataclasses.asdict(config),
        weights=FramesToText(config).state_dict(),
        vocabularies={"target": target.to_json()},
        decoding={"beam": 2, "alpha": 0.0, "max_length": 4},
    )


def picture(path: Path, frames: np.ndarray) -> Path:
    from PIL import Image

    first, *rest = [Image.fromarray((255 * frame).astype(np.uint8)) for frame in frames]
    first.save(path, save_all=bool(rest), append_images=rest) if rest else first.save(path)
    return path


def test_pictures_are_captioned_alone_as_together(captions: Path) -> None:
    model = voiceseq.load(captions)
    assert isinstance(model, Captioner)
    images = [np.random.default_rng(i).random((8, 8 + 5 * i)) for i in range(3)]
    together = model.caption(images, beam=2)
    assert together == [model.caption([image], beam=2)[0] for image in images]
    weights = model.looks(images[1], "a seven")
    assert weights.shape == (3, 13)
    torch.testing.assert_close(weights.sum(1), torch.ones(3))
    for wrong in (np.zeros((0, 3)), np.ones((8, 8)) * 2, np.full((8, 8), np.nan), np.zeros((8, 500)), np.zeros(8)):
        with pytest.raises(InputError):
            model.caption([wrong])


def test_ink_is_what_the_border_is_not(tmp_path: Path) -> None:
    image = np.zeros((20, 30))
    image[8:12, 10:20] = 1.0
    dark, light = picture(tmp_path / "d.png", image[None]), picture(tmp_path / "l.png", 1 - image[None])
    np.testing.assert_allclose(read_frames(dark)[0], read_frames(light)[0], atol=0.01)


def test_the_command_captions_files_line_by_line(captions: Path, tmp_path: Path, capsys) -> None:
    good = picture(tmp_path / "g.png", np.random.default_rng(1).random((1, 32, 40)))
    (tmp_path / "bad.png").write_bytes(b"no picture")
    files = [str(good), str(tmp_path / "bad.png"), str(tmp_path / "absent.png"), "", "a\x00b"]
    plot = tmp_path / "p.png"
    assert main.main(["caption", *files, "--model", str(captions), "--plot", str(plot)]) == 1
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 5
    assert len(captured.err.splitlines()) == 4
    assert plot.exists()


def test_a_clip_has_a_class(tmp_path: Path, capsys) -> None:
    config = FrameConfig(features=CANVAS * CANVAS, outputs=3, size=8, pool="mean")
    bundle = save_bundle(
        tmp_path / "activity",
        kind="frame-classifier",
        config=dataclasses.asdict(config),
        weights=FrameNetwork(config).state_dict(),
        vocabularies={"classes": Vocabulary(MOVES, "word").to_json()},
    )
    model = voiceseq.load(bundle)
    assert isinstance(model, FrameClassifier)
    frames, _ = clip(1, 1)
    (found,) = model.classify([frames])
    assert found.label in MOVES
    assert sum(found.probabilities.values()) == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(InputError):
        model.classify([np.zeros((3, 5))])
    file = picture(tmp_path / "c.gif", frames.reshape(-1, CANVAS, CANVAS))
    assert main.main(["caption", str(file), "--model", str(bundle)]) == 0
    assert capsys.readouterr().out.strip() in MOVES


# --- series -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("difference", [False, True])
def test_scaling_comes_back(difference: bool, root: bool) -> None:
    values = np.random.default_rng(1).normal(10, 1.5, 40)
    scaling = Scaling.of(values[:20], 4, difference, root)
    scaled = scaling.scale(values)
    back = scaling.unscale(scaled[None, 20 - scaling.lost :], values[:20])
    np.testing.assert_allclose(back[0], values[20:])
    with pytest.raises(InputError, match="values came"):
        scaling.scale(values[:1])


def certain() -> FrameNetwork:
    """A network that says N(0, 1) whatever it reads."""
    network = FrameNetwork(FrameConfig(features=1, outputs=2, size=4)).eval()
    with torch.no_grad():
        network.output.weight.zero_()
        network.output.bias.copy_(torch.tensor([0.0, math.log(math.e - 1)]))
    return network


def test_futures_are_drawn_from_the_gaussians_and_follow_what_happened_lately() -> None:
    plain = Scaling(3, False, 5.0, 2.0)
    known = np.array([7.0, 3.0] * 6)  # always one spread off: neither wider nor narrower
    drawn = futures(certain(), plain, known, 3, seed=1)
    assert drawn.shape == (200, 3)
    assert abs(drawn.mean() - 5) < 0.3
    assert abs(drawn.std() - 2) < 0.2
    np.testing.assert_array_equal(drawn, futures(certain(), plain, known, 3, seed=1))
    assert futures(certain(), plain, 5 + 3 * (known - 5), 3, seed=1).std() == pytest.approx(3 * drawn.std(), rel=1e-4)
    found = interval(drawn, 0.8)
    inside = (drawn >= found.low) & (drawn <= found.high)
    assert np.abs(inside.mean(0) - 0.8).max() < 0.02


def test_calibrated_intervals_cover_what_they_say_on_what_follows() -> None:
    plain = Scaling(6, False, 5.0, 2.0)
    values = np.random.default_rng(3).standard_t(3, 330) * 3 + 5  # wider than the network thinks, and with long tails
    widths = calibrate(certain(), plain, values, np.arange(50, 190), 2)
    hits: dict[float, list[np.ndarray]] = {level: [] for level in LEVELS}
    for end in range(190, 328):
        draws = futures(certain(), plain, values[:end], 2)
        for level, seen in hits.items():
            found = interval(draws, level, np.array(widths[str(level)]))
            seen.append((found.low <= values[end : end + 2]) & (values[end : end + 2] <= found.high))
    for level, seen in hits.items():
        assert np.mean(seen) == pytest.approx(level, abs=0.15)


def test_forecasts_as_bundle_and_command(tmp_path: Path, capsys) -> None:
    config = FrameConfig(features=1, outputs=2, size=4)
    settings = Settings(11, False, 50.0, 40.0, 4, {"0.8": [1.0, 1.1, 1.2, 1.3]})
    bundle = save_bundle(
        tmp_path / "s",
        kind="forecaster",
        config=dataclasses.asdict(config),
        weights=FrameNetwork(config).state_dict(),
        decoding=dataclasses.asdict(settings),
    )
    model = voiceseq.load(bundle)
    assert isinstance(model, Forecaster)
    found = model.forecast(range(20), steps=6)
    assert len(found.mean) == 6
    assert (found.low < found.mean).all()
    assert (found.mean < found.high).all()
    for wrong in ({"steps": 0}, {"level": 0.7}):
        with pytest.raises(InputError):
            model.forecast(range(20), **wrong)
    with pytest.raises(ConfigError, match="4 numbers"):
        dataclasses.replace(settings, widths={"0.8": [1.0]})
    lines = ["1 2 3 4", "", "1,2;3", "x", "\ufeff1 2 3", "1e999 2 3", "1 " * 50_000]
    assert main.main(["forecast", *lines, "--model", str(bundle)]) == 1
    captured = capsys.readouterr()
    rows = captured.out.split("\n")[:-1]
    assert [bool(row) for row in rows] == [True, False, True, False, True, False, True]
    assert rows[0].count("to") == 4
    assert len(captured.err.splitlines()) == 3


# --- music ------------------------------------------------------------------------------------------------------------


def test_a_midi_file_holds_what_was_drawn(tmp_path: Path, capsys) -> None:
    config = FrameConfig(features=88, outputs=88, size=8)
    bundle = save_bundle(
        tmp_path / "m", kind="composer", config=dataclasses.asdict(config), weights=FrameNetwork(config).state_dict()
    )
    model = voiceseq.load(bundle)
    assert isinstance(model, Composer)
    roll = model.compose(steps=6, seed=4)
    np.testing.assert_array_equal(roll, model.compose(steps=6, seed=4))
    assert roll.sum(1).min() >= 1
    np.testing.assert_array_equal(played(midi_bytes(roll), 6), roll)
    assert model.loss(roll) > 0
    lines = [str(tmp_path / "one.mid"), "", str(tmp_path / "absent" / "two.mid")]
    assert main.main(["generate", *lines, "--model", str(bundle), "--length", "5", "--seed", "1"]) == 1
    assert capsys.readouterr().out.split("\n") == [lines[0], "", "", ""]
    assert (tmp_path / "one.mid").read_bytes().startswith(b"MThd")
    with pytest.raises(InputError, match="temperature"):
        model.compose(temperature=0.0)


def played(data: bytes, steps: int) -> np.ndarray:
    """Read a MIDI file of one track back into a piano roll."""
    assert data[:4] == b"MThd"
    assert int.from_bytes(data[12:14], "big") == TICKS
    assert int.from_bytes(data[18:22], "big") == len(data) - 22
    roll, sounding, place, now = np.zeros((steps, 88)), set(), 22, 0
    while place < len(data):
        wait = 0
        while True:
            wait, place, more = wait << 7 | data[place] & 0x7F, place + 1, data[place] & 0x80
            if not more:
                break
        for step in range(now // TICKS, (now + wait) // TICKS):
            roll[step, list(sounding)] = 1
        now += wait
        if data[place] == 0xFF:
            place += 3 + data[place + 2]
            continue
        status, key, _ = data[place : place + 3]
        (sounding.add if status == 0x90 else sounding.discard)(key - 21)
        place += 3
    assert not sounding
    return roll


def test_a_temperature_changes_which_keys_sound_and_not_how_many() -> None:
    logits = torch.randn(1, 88, generator=torch.Generator().manual_seed(1)) * 2 - 3
    plain = logits.sigmoid()
    torch.testing.assert_close(chances_of(logits, 1.0), plain, atol=1e-5, rtol=0)
    cold = chances_of(logits, 0.5)
    torch.testing.assert_close(cold.sum(), plain.sum(), atol=1e-3, rtol=0)
    assert cold.max() > plain.max()


def test_numbers_of_variable_length() -> None:
    assert [variable_length(n) for n in (0, 127, 128, 480)] == [b"\x00", b"\x7f", b"\x81\x00", b"\x83\x60"]
