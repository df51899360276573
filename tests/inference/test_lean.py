"""The lean network against torch's, and against itself in other pieces."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.audio.features import FeatureConfig
from voiceseq.audio.features import mel_filters as torch_filters
from voiceseq.bundles.writing import plain
from voiceseq.errors import BundleError
from voiceseq.inference import kernels, lean
from voiceseq.inference.detector import probabilities
from voiceseq.inference.lean import LeanNetwork, mel_filters, supports
from voiceseq.models import backbone
from voiceseq.models.backbone import BackboneConfig
from voiceseq.models.trigger import HeadConfig, TriggerConfig, TriggerNetwork

BACKBONE = BackboneConfig(
    symbols=5, features=FeatureConfig(mels=13), channels=9, cell="gru", size=14, layers=2, bottleneck=7
)
TINY = TriggerConfig(words=("one", "two"), backbone=BACKBONE, head=HeadConfig(size=6, layers=2))
PLAIN = TriggerConfig(words=("one",), backbone=None, head=HeadConfig(size=10), channels=11)
OTHERS = {
    "tiny": TINY,
    "convolutions": dataclasses.replace(
        TINY, backbone=dataclasses.replace(BACKBONE, cell="convolution", layers=3, cycle=2)
    ),
    "plain": PLAIN,
    "real": TriggerConfig(words=("one",)),
    "slaney": dataclasses.replace(
        PLAIN,
        features=FeatureConfig(
            mels=20, mel_scale="slaney", equal_area=True, low_hz=50.0, high_hz=7000.0, window=320, floor=1e-4
        ),
    ),
}


def network(config: TriggerConfig, seed: int = 1) -> TriggerNetwork:
    torch.manual_seed(seed)
    made = TriggerNetwork(config).eval()
    for parameter in made.parameters():  # norms and biases away from their start, gates that open and close
        torch.nn.init.normal_(parameter, 0.1, 0.4)
    return made


def arrays(made: TriggerNetwork) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in made.state_dict().items()}


def lean_of(made: TriggerNetwork) -> LeanNetwork:
    return LeanNetwork.of(plain(made.config, "config"), arrays(made))


def sound(seconds: float, seed: int = 1) -> np.ndarray:
    """Noise that swells and dies down to digital silence."""
    generator = np.random.default_rng(seed)
    count = round(16_000 * seconds)
    swell = np.abs(np.sin(np.arange(count) / 3000)) ** 3
    return (generator.standard_normal(count) * np.where(swell < 0.01, 0, swell) * 0.3).astype(np.float32)


def pieces(lean: LeanNetwork, samples: np.ndarray, cuts: list[int]) -> np.ndarray:
    state = lean.start()
    return np.concatenate([lean.advance(piece, state) for piece in np.split(samples, cuts)])


@pytest.mark.parametrize("name", OTHERS)
def test_it_says_what_torch_says(name: str) -> None:
    made = network(OTHERS[name])
    samples = sound(3.0)
    with torch.no_grad():
        wanted = made(torch.from_numpy(samples)[None])[0][0].numpy()
    lean = lean_of(made)
    found = lean.advance(samples, lean.start())
    assert wanted.std() > 0.01
    assert lean.words == made.words
    assert lean.hop == round(made.frame_s * 16_000)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, 12_000), max_size=12), config=st.sampled_from([TINY, PLAIN]))
def test_any_cut_gives_the_same_bits(cuts: list[int], config: TriggerConfig) -> None:
    lean, samples = lean_of(network(config)), sound(0.75)
    np.testing.assert_array_equal(pieces(lean, samples, sorted(cuts)), pieces(lean, samples, []))


@pytest.mark.parametrize("chunk", [1, 7, 160, 480, 1280, 1600, 5000])
def test_even_chunks_give_the_same_bits(chunk: int) -> None:
    lean = lean_of(network(OTHERS["real"]))
    samples = sound(0.5 if chunk < 100 else 2.0)
    cuts = list(range(chunk, len(samples), chunk))
    np.testing.assert_array_equal(pieces(lean, samples, cuts), pieces(lean, samples, []))


def test_heads_together_say_what_they_say_alone() -> None:
    first, second, third = network(TINY), network(dataclasses.replace(TINY, words=("three",)), 2), network(TINY, 3)
    second.front.load_state_dict(first.front.state_dict())
    third = TriggerNetwork(dataclasses.replace(TINY, words=("four",), head=HeadConfig(size=10, layers=1))).eval()
    third.front.load_state_dict(first.front.state_dict())
    alone = [lean_of(one) for one in (first, second, third)]
    assert len({one.front.fingerprint for one in alone}) == 1
    together = alone[0].join(alone[1]).join(alone[2])
    assert together.words == ("one", "two", "three", "four")
    assert len(together.batches) == 2  # two shapes of heads
    samples = sound(1.0)
    expected = np.concatenate([one.advance(samples, one.start()) for one in alone], 1)
    np.testing.assert_array_equal(together.advance(samples, together.start()), expected)


def test_other_fronts_have_other_fingerprints() -> None:
    made = network(TINY)
    before = lean_of(made).front.fingerprint
    assert before == lean_of(network(TINY)).front.fingerprint
    with torch.no_grad():
        made.front.backbone.first.convolution.bias[0] += 1e-6
    assert lean_of(made).front.fingerprint != before
    louder = dataclasses.replace(BACKBONE, features=FeatureConfig(mels=13, floor=1e-5))
    assert lean_of(network(dataclasses.replace(TINY, backbone=louder))).front.fingerprint != before


def test_two_streams_do_not_mix() -> None:
    lean = lean_of(network(TINY))
    one, other = lean.start(), lean.start()
    a, b = sound(0.5, 1), sound(0.5, 2)
    mixed = [
        (lean.advance(x, one), lean.advance(y, other)) for x, y in zip(np.split(a, 5), np.split(b, 5), strict=True)
    ]
    np.testing.assert_array_equal(np.concatenate([x for x, _ in mixed]), lean.advance(a, lean.start()))
    np.testing.assert_array_equal(np.concatenate([y for _, y in mixed]), lean.advance(b, lean.start()))


def test_what_torch_alone_can_do() -> None:
    def settings_of(config: TriggerConfig) -> dict[str, object]:
        made: dict[str, object] = plain(config, "config")
        return made

    assert supports(settings_of(TINY))
    assert supports(settings_of(PLAIN))
    assert not supports(settings_of(dataclasses.replace(TINY, head=HeadConfig(kind="transformer"))))
    assert not supports(settings_of(dataclasses.replace(TINY, backbone=dataclasses.replace(BACKBONE, cell="lstm"))))
    assert not supports(settings_of(dataclasses.replace(PLAIN, features=FeatureConfig(mels=40, kind="pcen"))))
    assert not supports(settings_of(dataclasses.replace(TINY, backbone=dataclasses.replace(BACKBONE, stride=6))))


def test_constants_are_those_of_the_networks() -> None:
    assert (lean.LEVEL, lean.SPREAD) == (backbone.LEVEL, backbone.SPREAD)
    for config in (FeatureConfig(), FeatureConfig(mel_scale="slaney", equal_area=True, high_hz=3900.0, mels=20)):
        np.testing.assert_allclose(mel_filters(plain(config, "f")), torch_filters(config).T.numpy(), atol=1e-12)


def test_tanh_is_good_to_the_last_bits() -> None:
    x = np.linspace(-30, 30, 100_001, dtype=np.float32)
    found = x.copy()
    kernels.squash(found)
    np.testing.assert_allclose(found, np.tanh(x.astype(float)), atol=3e-7)
    small = np.float32(10.0) ** -np.arange(1, 30, dtype=np.float32)
    found = small.copy()
    kernels.squash(found)
    np.testing.assert_allclose(found, np.tanh(small.astype(float)), rtol=1e-6)


def test_probabilities_are_told_apart_near_one() -> None:
    logits = np.array([[-800.0, -40.0, 0.0, 17.0, 20.0, 30.0, 800.0]], np.float32)
    found = probabilities(logits)
    np.testing.assert_allclose(found, torch.from_numpy(logits).double().sigmoid(), rtol=1e-12)
    assert (np.diff(found) > 0).all()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("head.output.bias", np.zeros(3), "shape"),
        ("head.output.bias", np.array([0.0, np.nan]), "NaN"),
        ("head.output.bias", None, "missing"),
        ("extra.weight", np.zeros(1), "extra"),
    ],
)
def test_weights_of_another_network(key: str, value: np.ndarray | None, message: str) -> None:
    made = network(TINY)
    stored = arrays(made) | {key: value}
    if value is None:
        del stored[key]
    with pytest.raises(BundleError, match=message):
        LeanNetwork.of(plain(made.config, "config"), stored, "x.zip")


@pytest.mark.parametrize(
    "change",
    [
        {"backbone": 3},
        {"head": {"kind": "gru"}},
        {"words": None},
        {"head": {"kind": "gru", "size": "6", "layers": 2}},
    ],
)
def test_configs_that_cannot_be(change: dict[str, object]) -> None:
    made = network(TINY)
    with pytest.raises(BundleError, match=r"x\.zip"):
        LeanNetwork.of(plain(made.config, "config") | change, arrays(made), "x.zip")


@pytest.mark.parametrize("change", [{"hop": 0}, {"window": 1000}, {"mels": 0}, {"fft": 100}, {"mels": 400}])
def test_features_that_would_lead_the_kernels_astray(change: dict[str, int]) -> None:
    made = network(PLAIN)
    config = plain(made.config, "config")
    config["features"] |= change
    with pytest.raises(BundleError):
        LeanNetwork.of(config, arrays(made), "x.zip")
