"""The detector's graph against the network in torch and the mathematics behind it."""

import dataclasses

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from voiceseq.audio.features import FeatureConfig
from voiceseq.bundles.writing import plain
from voiceseq.export.graph import Graph
from voiceseq.export.onnx import write_graph
from voiceseq.export.stream import fourier
from voiceseq.inference.detector import Decision, Detector
from voiceseq.inference.lean import LogMel
from voiceseq.inference.onnx import OnnxNetwork
from voiceseq.models.backbone import BackboneConfig
from voiceseq.models.trigger import HeadConfig, TriggerConfig, TriggerNetwork

FEATURES = FeatureConfig(mels=10)
BACKBONE = BackboneConfig(symbols=7, features=FEATURES, channels=9, cell="gru", size=12, layers=2, bottleneck=8)
# Repeated phones, one phone alone, and words with different numbers of spellings.
SPELT = (((1, 2, 2, 3), (4,)), ((5, 1, 6, 1, 2),))
HEAD = HeadConfig(size=8)
CONFIGS = {
    "backbone": TriggerConfig(("a", "b"), BACKBONE, HEAD),
    "opinion": TriggerConfig(("a", "b"), BACKBONE, HEAD, spellings=SPELT),
    "phones": TriggerConfig(("a", "b"), BACKBONE, HeadConfig(kind="phones"), spellings=SPELT),
    "convolutions": TriggerConfig(
        ("a", "b"), dataclasses.replace(BACKBONE, cell="convolution", layers=4, cycle=3), HEAD, spellings=SPELT
    ),
    "one convolution": TriggerConfig(("a",), dataclasses.replace(BACKBONE, cell="convolution", layers=1), HEAD),
    "plain": TriggerConfig(("a",), None, dataclasses.replace(HEAD, layers=2), FEATURES, channels=11),
    "stride 1": TriggerConfig(("a",), dataclasses.replace(BACKBONE, stride=1, layers=1), HEAD),
    "stride 2": TriggerConfig(("a",), dataclasses.replace(BACKBONE, stride=2, kernel=4), HEAD),
    "stride as kernel": TriggerConfig(("a",), dataclasses.replace(BACKBONE, stride=3, kernel=3), HEAD),
    "odd window": TriggerConfig(
        ("a",), dataclasses.replace(BACKBONE, features=FeatureConfig(window=301, hop=100, fft=400, mels=10)), HEAD
    ),
    "window of one hop": TriggerConfig(
        ("a",), dataclasses.replace(BACKBONE, features=FeatureConfig(window=160, hop=160, fft=256, mels=10)), HEAD
    ),
}


def made(name: str) -> TriggerNetwork:
    torch.manual_seed(0)
    return TriggerNetwork(CONFIGS[name]).eval()


def detector_of(network: TriggerNetwork) -> Detector:
    return Detector.from_network(network, dict.fromkeys(network.words, Decision(0.5, 2, 1, 1.0)))


@pytest.fixture(scope="module", params=list(CONFIGS))
def both(request) -> tuple[TriggerNetwork, OnnxNetwork]:
    network = made(request.param)
    return network, OnnxNetwork(write_graph(detector_of(network)))


def by_torch(network: TriggerNetwork, samples: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return network(torch.from_numpy(samples)[None])[0][0].numpy()


def in_pieces(graph: OnnxNetwork, samples: np.ndarray, cuts: list[int]) -> np.ndarray:
    state = graph.start()
    return np.concatenate([graph.advance(piece, state) for piece in np.split(samples, cuts)])


def noise(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    loudness = np.exp(rng.normal(0, 2, count // 1600 + 1)).repeat(1600)[:count]  # quiet and loud parts
    return (0.05 * loudness * rng.standard_normal(count)).clip(-1, 1).astype(np.float32)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 8000), max_size=12), st.integers(0, 9))
def test_any_cut_gives_what_torch_gives(both, cuts: list[int], seed: int) -> None:
    network, graph = both
    samples = noise(8000, seed)
    found = in_pieces(graph, samples, sorted(cuts))
    np.testing.assert_allclose(found, by_torch(network, samples), atol=1e-4)


def test_a_sample_at_a_time(both) -> None:
    network, graph = both
    samples = noise(2000)
    np.testing.assert_allclose(in_pieces(graph, samples, list(range(2000))), by_torch(network, samples), atol=1e-4)


def test_nothing_gives_nothing_and_changes_nothing(both) -> None:
    _, graph = both
    state = graph.start()
    graph.advance(noise(3000), state)
    before = {name: value.copy() for name, value in state.items()}
    assert graph.advance(np.zeros(0, np.float32), state).shape == (0, len(graph.words))
    assert state.keys() == before.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(state[name], value)


def test_clock_and_words_are_the_networks(both) -> None:
    network, graph = both
    features = (network.config.backbone or network.config).features
    assert graph.words == network.words
    assert (graph.sample_rate, graph.window) == (features.sample_rate, features.window)
    assert graph.hop == round(network.frame_s * features.sample_rate)


def test_every_graph_is_valid_onnx() -> None:
    for name in CONFIGS:
        model = onnx.load_from_string(write_graph(detector_of(made(name))))
        onnx.checker.check_model(model, full_check=True)
        assert {opset.domain for opset in model.opset_import} == {""}, "an operator of one runtime alone"


def test_silence_for_minutes_leaves_forward_sums_alone() -> None:
    """Products of probabilities neither vanish nor grow: after a long time the words' scores are torch's."""
    network = made("opinion")
    graph = OnnxNetwork(write_graph(detector_of(network)))
    samples = np.concatenate((np.zeros(16_000 * 60, np.float32), noise(16_000)))
    cuts = list(range(16_000, len(samples), 16_000))
    np.testing.assert_allclose(in_pieces(graph, samples, cuts), by_torch(network, samples), atol=1e-4)


def test_heads_of_several_networks_share_a_backbone() -> None:
    first, second = made("opinion"), TriggerNetwork(dataclasses.replace(CONFIGS["backbone"], words=("c",))).eval()
    second.front.load_state_dict(first.front.state_dict())
    joined = Detector.of([detector_of(first), detector_of(second)])
    graph = OnnxNetwork(write_graph(joined))
    samples = noise(6000)
    wanted = np.concatenate((by_torch(first, samples), by_torch(second, samples)), 1)
    assert graph.words == ("a", "b", "c")
    np.testing.assert_allclose(in_pieces(graph, samples, [100, 3000]), wanted, atol=1e-4)


@pytest.mark.parametrize(("window", "fft"), [(400, 512), (301, 400), (16, 16), (7, 32)])
def test_waves_and_filters_give_the_power_in_bands(window: int, fft: int) -> None:
    config = plain(FeatureConfig(window=window, hop=window, fft=fft, mels=2, low_hz=0.0), "features")
    graph = Graph()
    waves, filters = fourier(graph, LogMel(config))
    graph.output("waves", waves, (window, len(filters)))
    frames = np.random.default_rng(0).standard_normal((5, window))
    spectrum = np.fft.rfft(frames * torch.hann_window(window, dtype=torch.double).numpy(), fft)
    wanted = np.abs(spectrum) ** 2 @ LogMel(config).filters.T
    np.testing.assert_allclose((frames @ run(graph.model("waves", {}))) ** 2 @ filters, wanted, rtol=1e-4, atol=1e-5)


def test_eight_bits_are_the_nearest_of_255_steps() -> None:
    values = np.random.default_rng(0).standard_normal((6, 4)) * np.array([1e-3, 1, 1e3, 0])
    graph = Graph(quantize=True)
    graph.output("y", graph.matrix(values, 0), values.shape)
    found = run(graph.model("one", {}))
    step = np.abs(values).max(0) / 127
    assert (np.abs(found - values) <= step / 2 * (1 + 1e-5)).all()
    (stored,) = (one for one in graph.tensors if one.data_type == onnx.TensorProto.INT8)
    assert np.abs(numpy_helper.to_array(stored).astype(int)).max() == 127


def test_quantised_detector_is_smaller_and_near() -> None:
    network = made("opinion")
    whole, small = (write_graph(detector_of(network), kind) for kind in (None, "int8"))
    samples = noise(16_000)
    difference = in_pieces(OnnxNetwork(small), samples, [5000]) - by_torch(network, samples)
    assert len(small) < len(whole)
    assert 1e-4 < np.abs(difference).max() < 0.3


def run(model: onnx.ModelProto) -> np.ndarray:
    import onnxruntime

    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {})[0]
