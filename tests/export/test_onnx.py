"""The file: what is refused, what is checked before it is written, what is found out when it is opened."""

import dataclasses
import hashlib
import json

import numpy as np
import pytest
import torch
from places import ROOT

import voiceseq
from voiceseq.audio.features import FeatureConfig
from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.cli.main import main
from voiceseq.errors import BundleError, ConfigError, InputError
from voiceseq.export import onnx as exporting
from voiceseq.export.graph import Graph
from voiceseq.export.onnx import compare, export_onnx, in_chunks, same_events, shipped_clips, write_graph
from voiceseq.inference.detector import Detector, Event
from voiceseq.inference.onnx import OnnxNetwork
from voiceseq.models.backbone import BackboneConfig
from voiceseq.models.trigger import HeadConfig, TriggerConfig, TriggerNetwork

CLIPS = sorted((ROOT / "data" / "clips").glob("*.flac"))
SMALL = TriggerConfig(
    ("a",), BackboneConfig(5, FeatureConfig(mels=8), channels=6, size=8, layers=1), HeadConfig(size=6)
)


def bundle_of(config: TriggerConfig, path, seed: int = 0):
    torch.manual_seed(seed)
    network = TriggerNetwork(config)
    decision = {"threshold": 0.5, "smoothing": 1, "patience": 1, "refractory_s": 1.0}
    decoding = dict.fromkeys(config.words, decision)
    return save_bundle(path, kind="trigger", config=config, weights=network.state_dict(), decoding=decoding)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The shipped words by the real command."""
    folder = tmp_path_factory.mktemp("exported")
    for words in (["six.onnx"], ["small.onnx", "--quantize", "int8"]):
        assert main(["bundle", "export", "six-words", str(folder / words[0]), "--format", "onnx", *words[1:]]) == 0
    return folder


@pytest.mark.parametrize("name", ["six.onnx", "small.onnx"])
@pytest.mark.parametrize("clip", CLIPS, ids=lambda path: path.stem)
def test_the_same_events_from_the_file_as_from_the_bundle(exported, name: str, clip) -> None:
    from voiceseq.audio.files import read_audio

    audio = read_audio(clip)
    wanted = voiceseq.load("six-words").detect(audio.samples, audio.sample_rate)
    detector = voiceseq.load(exported / name)
    stream, found = detector.stream(audio.sample_rate), []
    for first in range(0, len(audio.samples), 960):
        found += stream.feed(audio.samples[first : first + 960])
    found += stream.finish()
    assert same_events(found, wanted)
    if name == "six.onnx":
        assert [(event.word, event.time) for event in found] == [(event.word, event.time) for event in wanted]


def test_one_clip_is_heard_at_all(exported) -> None:
    """What is compared above is more than silence."""
    detector = voiceseq.load(exported / "six.onnx")
    assert sum(len(detector.detect(samples)) for _, samples in shipped_clips(16_000)) > 0


def test_the_command_tells_what_it_found(exported, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bundle", "export", "computer", "--format", "onnx", "--and", "alexa", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["path"] == "computer.onnx"
    assert said["words"] == ["computer", "alexa"]
    assert 0 < said["difference"] <= 1e-4
    assert said["clips"] == len(CLIPS)
    assert said["bytes"] == (tmp_path / "computer.onnx").stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == ["computer.onnx"]


def test_the_file_is_enough(exported) -> None:
    bundle, detector = voiceseq.load("six-words"), voiceseq.load(str(exported / "six.onnx"))
    assert detector.words == bundle.words
    assert detector.decisions == bundle.decisions
    assert (detector.sample_rate, detector.window, detector.hop) == (bundle.sample_rate, bundle.window, bundle.hop)
    facts = detector.networks[0].facts
    assert facts["version"] == voiceseq.__version__
    assert (facts["name"], facts["weights"]) == ("six-words", "float32")
    assert facts["licence"]


def test_eight_bits_are_a_third_of_the_size(exported) -> None:
    sizes = [(exported / name).stat().st_size for name in ("small.onnx", "six.onnx")]
    assert sizes[0] < 0.4 * sizes[1]


def test_files_and_bundles_listen_together(exported, tmp_path) -> None:
    path = bundle_of(SMALL, tmp_path / "a")
    both = voiceseq.load([exported / "six.onnx", path])
    assert both.words == (*voiceseq.load("six-words").words, "a")
    assert both.scores(np.zeros(16_000, np.float32))[1].shape[1] == 7
    with pytest.raises(InputError, match="twice"):
        voiceseq.load([exported / "six.onnx", exported / "small.onnx"])


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"head": HeadConfig(kind="transformer", size=8)}, "the head is 'transformer'"),
        ({"head": HeadConfig(kind="convolution", size=8)}, "the head is 'convolution'"),
        ({"backbone": dataclasses.replace(SMALL.backbone, cell="lstm")}, "the cell of the backbone is 'lstm'"),
        ({"backbone": None, "features": FeatureConfig(mels=8, kind="pcen")}, "the kind of features is 'pcen'"),
    ],
)
def test_what_cannot_be_exported_is_named(tmp_path, change, part: str) -> None:
    path = bundle_of(dataclasses.replace(SMALL, **change), tmp_path / "b")
    with pytest.raises(BundleError, match=part):
        export_onnx([path], tmp_path / "b.onnx")
    assert not (tmp_path / "b.onnx").exists()


def test_other_kinds_and_options_are_refused(tmp_path, capsys) -> None:
    with pytest.raises(BundleError, match="'backbone'; of all kinds"):
        export_onnx(["backbone"], tmp_path / "x.onnx")
    with pytest.raises(ConfigError, match="choose from int8"):
        export_onnx(["alexa"], tmp_path / "x.onnx", "int4")
    with pytest.raises(BundleError, match="different backbones"):
        export_onnx(["alexa", bundle_of(SMALL, tmp_path / "a")], tmp_path / "x.onnx")
    assert main(["bundle", "export", "alexa"]) == 2
    assert main(["bundle", "export", "alexa", str(tmp_path / "x.zip"), "--quantize", "int8"]) == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_a_graph_that_differs_is_not_written(tmp_path, monkeypatch) -> None:
    path = bundle_of(SMALL, tmp_path / "a")
    other = Detector.of([bundle_of(SMALL, tmp_path / "other", seed=1)])
    monkeypatch.setattr(exporting, "write_graph", lambda *_: write_graph(other))
    with pytest.raises(BundleError, match="differs from torch by"):
        export_onnx([path], tmp_path / "a.onnx")
    assert not list(tmp_path.glob("*.onnx"))


def test_quantised_weights_must_hear_the_same(tmp_path) -> None:
    bundle = load_bundle("six-words")
    deaf = Detector.of([bundle])
    for head in deaf.networks[0].heads:
        head.output[1][:] = -50.0
    with pytest.raises(BundleError, match="hears nothing in"):
        compare(write_graph(deaf, "int8"), [bundle], Detector.of([load_bundle("six-words")]), "int8")


def test_events_are_the_same_within_a_tenth_of_a_second() -> None:
    one = [Event("a", 1.0, 0.9), Event("b", 2.0, 0.9)]
    assert same_events(one, [Event("a", 1.06, 0.5), Event("b", 1.94, 0.5)])
    assert not same_events(one, [Event("a", 1.2, 0.9), Event("b", 2.0, 0.9)])
    assert not same_events(one, one[:1])
    assert not same_events(one, one[::-1])


def test_chunks_are_all_of_the_sound(exported) -> None:
    graph = OnnxNetwork((exported / "six.onnx").read_bytes())
    samples = next(iter(shipped_clips(16_000)))[1]
    whole = graph.advance(samples, graph.start())
    np.testing.assert_allclose(np.concatenate(list(in_chunks(graph, samples))), whole, atol=1e-4)


def test_what_is_not_ours_is_refused(exported, tmp_path, monkeypatch) -> None:
    data = (exported / "small.onnx").read_bytes()
    path = tmp_path / "x.onnx"
    with pytest.raises(BundleError, match="No such file"):
        voiceseq.load(path)
    graph = Graph()
    graph.output("y", graph.input("samples", (None,)), (None,))
    foreign = graph.model("foreign", {"kind": '"trigger"'}).SerializeToString()
    monkeypatch.setattr(exporting, "FORMAT", 9)
    newer = write_graph(Detector.of([bundle_of(SMALL, tmp_path / "a")]))
    for changed, message in [
        (b"", "is not voiceseq's"),
        (b"no graph at all", "is not voiceseq's"),
        (data[: len(data) // 2], "is not voiceseq's"),
        (data[:-1], "was changed"),
        (sealed(b"no graph at all"), "cannot be opened"),
        (foreign, "is not voiceseq's"),
        (newer, "is of format 9"),
        (flipped(data, data.index(b'"refractory_s": 1.2') + 16), "was changed"),
    ]:
        path.write_bytes(changed)
        with pytest.raises(BundleError, match=message):
            voiceseq.load(path)


def test_a_flipped_byte_never_goes_unnoticed(exported, tmp_path) -> None:
    data = (exported / "small.onnx").read_bytes()
    for place in np.random.default_rng(0).integers(0, len(data), 8):
        (tmp_path / "x.onnx").write_bytes(flipped(data, int(place)))
        with pytest.raises(BundleError):
            voiceseq.load(tmp_path / "x.onnx")


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def sealed(data: bytes) -> bytes:
    data += b'sha256\x12\x42"' + b"0" * 64 + b'"'
    return data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode())
