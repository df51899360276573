"""Recognisers as graphs against the networks in torch: every encoder, any cut, the real command, no voiceseq."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from echo import VOCABULARY
from places import ROOT
from small_speech import small_bundle, small_network

import voiceseq
from voiceseq.audio.features import FeatureConfig
from voiceseq.audio.files import read_audio
from voiceseq.cli.main import main
from voiceseq.errors import BundleError, InputError
from voiceseq.export import speech
from voiceseq.export.acoustic import speech_graph
from voiceseq.export.onnx import sealed
from voiceseq.export.speech import compare, export_speech
from voiceseq.inference.onnx_speech import OnnxSpeech, spell
from voiceseq.models.whisper import WhisperConfig, WhisperNetwork

WHOLE = {
    "bilstm": {"encoder": "bilstm"},
    "bigru": {"encoder": "bilstm", "cell": "gru", "layers": 1},
    "birnn": {"encoder": "bilstm", "cell": "rnn_tanh"},
    "relu": {"encoder": "bilstm", "cell": "rnn_relu", "layers": 1},
    "pyramid": {"encoder": "pyramid", "layers": 3},
    "transformer": {"encoder": "transformer"},
    "conformer": {"encoder": "conformer"},
    "convolutions": {"encoder": "convolution", "above": 1, "above_size": 5},
}
STREAMS = {
    "causal": {"encoder": "causal"},
    "causal gru": {"encoder": "causal", "cell": "gru", "stride": 2},
    "late": {"encoder": "causal", "delay": 3},
    "convolution": {"encoder": "convolution", "layers": 3},
    "convolution, late": {"encoder": "convolution", "above": 2, "above_size": 5, "delay": 3},
    "late gru": {"encoder": "causal", "cell": "gru", "delay": 200},
    "chunked": {"encoder": "chunked", "chunk": 4, "left_chunks": 2},
    "without a past": {"encoder": "chunked", "chunk": 3, "left_chunks": 0, "layers": 1},
}


def noise(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    loudness = np.exp(rng.normal(0, 2, count // 1600 + 1)).repeat(1600)[:count]  # quiet and loud parts
    return (0.05 * loudness * rng.standard_normal(count)).clip(-1, 1).astype(np.float32)


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    """Log-probabilities, compared as what they stand for: far below zero they differ more and mean the same."""
    np.testing.assert_allclose(np.exp(found), np.exp(wanted), atol=1e-4)


def opened(network, **facts: object) -> OnnxSpeech:
    made = speech_graph(network, False)
    sizes = {"sample_rate": 16_000, "frame_s": 0.03, "shortest": 400, "longest": 160_000}
    known = {"kind": "recogniser", "format": 1, "sha256": "0" * 64, "vocabulary": {}, "start": made.start}
    return OnnxSpeech(sealed(made.graph, "recogniser", known | sizes | facts))


def by_torch(network, samples: np.ndarray) -> np.ndarray:
    sound = torch.from_numpy(samples)[None]
    with torch.inference_mode():
        if not network.encoder.causal:
            return network(sound).logits.log_softmax(-1)[0].numpy()
        logits, state = network.advance(sound)
        rest = network.flush(state)
        return (logits if rest is None else torch.cat((logits, rest), 1)).log_softmax(-1)[0].numpy()


@pytest.mark.parametrize("name", WHOLE)
def test_whole_utterances(name: str) -> None:
    network = small_network(**WHOLE[name])
    graph = opened(network)
    for count in (400, 560, 1200, 9999, 30_000):
        samples = noise(count)
        same(graph.log_probs(samples), by_torch(network, samples))
    with torch.inference_mode():
        frames = network(torch.from_numpy(samples)[None]).frames[0].numpy()
    np.testing.assert_allclose(graph.frames(samples), frames, atol=1e-4)
    with pytest.raises(InputError, match="400 to 160,000 was wanted"):
        graph.log_probs(samples[:399])
    with pytest.raises(InputError, match="whole utterances"):
        graph.stream()


@pytest.mark.parametrize("name", STREAMS)
def test_any_cut_of_a_stream(name: str) -> None:
    network = small_network(**STREAMS[name])
    graph = opened(network)
    samples = noise(12_000)
    wanted = by_torch(network, samples)
    rng = np.random.default_rng(1)
    for cuts in ([], [1, 2, 3, 399, 400, 5000], sorted(rng.integers(0, 12_000, 12)), list(range(0, 3000, 40))):
        stream = graph.stream()
        parts = [stream.feed(piece) for piece in np.split(samples, cuts)]
        same(np.concatenate((*parts, stream.finish())), wanted)
    stream.reset()
    assert stream.feed(samples[:0]).shape == (0, len(VOCABULARY))
    same(np.concatenate((stream.feed(samples), stream.finish())), wanted)
    poisoned = samples.copy()
    poisoned[100] = np.nan
    assert np.isfinite(graph.log_probs(poisoned)).all()


def whisper(tail_s: float | None, characters: int = len(VOCABULARY)) -> WhisperNetwork:
    torch.manual_seed(0)
    settings = {"size": 8, "heads": 2, "encoder_layers": 2, "decoder_layers": 1, "audio_positions": 100, "mels": 12}
    return WhisperNetwork(WhisperConfig(symbols=20, characters=characters, tail_s=tail_s, **settings)).eval()


@pytest.mark.parametrize("tail_s", [0.3, None])
def test_the_ear_of_whisper(tail_s: float | None) -> None:
    network = whisper(tail_s)
    graph = opened(network, shortest=320, longest=32_000)
    for count in (320, 5000, 31_000, 32_000):
        samples = noise(count)
        with torch.inference_mode():
            frames, _ = network.listen(torch.from_numpy(samples)[None])
            wanted = network.ctc(frames).log_softmax(-1)[0].numpy()
        same(graph.log_probs(samples), wanted)
        np.testing.assert_allclose(graph.frames(samples), frames[0].numpy(), atol=1e-4)


def test_layers_above_whisper() -> None:
    settings = {"encoder": "whisper", "size": 8, "heads": 2, "above": 2, "above_size": 5}
    network = small_network(**settings)
    graph = opened(network, shortest=320, longest=480_000)
    for count in (320, 5000, 31_000, 31_160):  # odd and even numbers of frames
        samples = noise(count)
        same(graph.log_probs(samples), by_torch(network, samples))
    with torch.inference_mode():
        frames = network(torch.from_numpy(samples)[None]).frames[0].numpy()
    np.testing.assert_allclose(graph.frames(samples), frames, atol=1e-4)


@pytest.mark.parametrize("tail_s", [0.3, None])
def test_every_constant_is_used(tail_s: float | None) -> None:
    """onnxruntime warns of one that is not, at every start of a program that embeds the graph."""
    graph = speech_graph(whisper(tail_s), False).graph
    used = {name for node in graph.nodes for name in node.input}
    assert {one.name for one in graph.tensors} <= used


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")
    small_bundle(folder / "whole", encoder="bilstm")
    small_bundle(folder / "stream", encoder="chunked", chunk=4)
    return folder


@pytest.mark.parametrize("kind", ["whole", "stream"])
def test_the_command_and_the_file(bundles, tmp_path, capsys, kind: str) -> None:
    target = tmp_path / "x.onnx"
    assert main(["bundle", "export", str(bundles / kind), str(target), "--format", "onnx", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["difference"] <= 1e-4
    assert said["wer"] == said["torch_wer"]
    assert said["hears"] == ("a stream" if kind == "stream" else "whole utterances")
    graph = voiceseq.load(target)
    assert graph.facts["name"] == "small"
    assert graph.facts["licence"] == "Apache-2.0"
    assert graph.facts["vocabulary"]["symbols"] == list(VOCABULARY.symbols)
    recogniser = voiceseq.load(bundles / kind).recogniser
    assert graph.frame_s == pytest.approx(recogniser.frame_s)
    audio = read_audio(ROOT / "data/clips/computer.flac", sample_rate=16_000)
    # without voiceseq, from the same sound in 16 bits
    pcm = (audio.samples * 32768).clip(-32768, 32767).astype("<i2")
    ours = graph.text(graph.log_probs(pcm.astype(np.float32) / 32768))
    assert len(ours) > 20
    command = [sys.executable, str(ROOT / "apps/standalone/transcribe.py"), str(target)]
    alone = subprocess.run(command, input=pcm.tobytes(), capture_output=True, check=True)
    assert alone.stdout.decode().strip() == ours
    if kind == "whole":
        from voiceseq.inference.speech import Decoding

        assert recogniser.recognise([pcm.astype(np.float32) / 32768], Decoding("greedy"))[0][0].text == ours


def test_eight_bits(bundles, tmp_path, capsys) -> None:
    rows = [json.loads(line) for line in (ROOT / "data/clips/manifest.jsonl").read_text().splitlines()]
    row = rows[0] | {"audio": str(ROOT / "data/clips" / rows[0]["audio"])}
    (tmp_path / "m.jsonl").write_text(json.dumps(row) + "\n")
    given = ["bundle", "export", str(bundles / "whole"), str(tmp_path / "x.onnx"), "--quantize", "int8"]
    assert main([*given, "--manifest", str(tmp_path / "m.jsonl")]) == 0
    err = capsys.readouterr().err
    assert "weights in int8" in err
    assert "compared with torch on 1 clips" in err
    assert "% by torch" in err


def test_a_graph_that_hears_otherwise_is_not_written(bundles, tmp_path, monkeypatch) -> None:
    other = small_bundle(tmp_path / "other", seed=2, encoder="bilstm")
    write = speech._Hearing.write
    wrong = speech._Hearing(speech.load_bundle(other))
    monkeypatch.setattr(speech._Hearing, "write", lambda self, quantize: write(wrong, quantize))
    with pytest.raises(BundleError, match="the graph differs from torch by"):
        export_speech(bundles / "whole", tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()


def test_eight_bits_may_cost_little(bundles) -> None:
    """A graph that is deaf (its blank always wins) where torch hears what is written."""
    heard = speech._Hearing(speech.load_bundle(bundles / "whole"))
    samples = noise(16_000)
    graph = OnnxSpeech(heard.write("int8"))
    text = graph.text(heard.torch_says(samples))
    compare(graph, heard, [("a", text, samples)], "int8")
    with torch.no_grad():
        heard.network.output.bias[VOCABULARY.special("blank")] += 100.0
    deaf = OnnxSpeech(heard.write("int8"))
    with torch.no_grad():
        heard.network.output.bias[VOCABULARY.special("blank")] -= 100.0
    with pytest.raises(BundleError, match="word error rate is 100"):
        compare(deaf, heard, [("a", text, samples)], "int8")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"cell": "gru_simple"}, "the cell SimpleGRU"),
        ({"cell": "lstm_peephole"}, "the cell PeepholeLSTM"),
        ({"features": FeatureConfig(mels=10, kind="pcen")}, "the kind of features is 'pcen'"),
        ({"stride": 6}, "the stride of the convolutions is 6"),
    ],
)
def test_what_cannot_be_exported_is_named(tmp_path, change, part: str) -> None:
    path = small_bundle(tmp_path / "b", **change)
    with pytest.raises(BundleError, match=f"cannot become ONNX: {part}"):
        export_speech(path, tmp_path / "b.onnx")


def test_a_whisper_without_letters_gives_its_frames() -> None:
    network = whisper(0.3, characters=0)
    graph = opened(network, shortest=320, longest=32_000)
    del graph.facts["vocabulary"]
    with pytest.raises(InputError, match="no CTC head"):
        graph.log_probs(noise(5000))
    with torch.inference_mode():
        wanted, _ = network.listen(torch.from_numpy(noise(5000))[None])
    np.testing.assert_allclose(graph.frames(noise(5000)), wanted[0].numpy(), atol=1e-4)


def test_spelling() -> None:
    words = {"level": "subword", "symbols": ["<blank>", "▁the", "▁c", "ab"], "silent": [0]}
    assert spell([1, 0, 2, 3], words) == "the cab"
    assert spell([1, 2], {"level": "word", "symbols": ["<b>", "one", "two"], "silent": [0]}) == "one two"
    assert spell([1, 2, 1], {"level": "character", "symbols": ["<b>", "a", " "], "silent": [0]}) == "a a"
