"""Features: equal to librosa's, the same in any chunks and in any batch, and the same again from ONNX."""

import io
import math

import librosa
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.audio.features import KINDS, FeatureConfig, Features, hz_to_mel, mel_filters, mel_to_hz
from voiceseq.errors import ConfigError, InputError

CONFIGS = {
    "ours": FeatureConfig(kind="mel"),
    "whisper": FeatureConfig(kind="mel", window=400, fft=400, mels=80, low_hz=0, mel_scale="slaney", equal_area=True),
    "telephone": FeatureConfig(kind="mel", sample_rate=8000, window=200, hop=80, fft=256, mels=40, high_hz=3800),
    "odd": FeatureConfig(kind="mel", window=333, hop=333, fft=501, mels=20, mel_scale="slaney"),
    "wide": FeatureConfig(kind="mel", sample_rate=48000, window=1200, hop=480, fft=2048, mels=64, equal_area=True),
}


def sound(batch: int = 1, time: int = 8000, seed: int = 0) -> torch.Tensor:
    """A gliding tone in noise: loud and quiet bands."""
    t = torch.arange(time) / 16000
    noise = torch.randn(batch, time, generator=torch.Generator().manual_seed(seed))
    return 0.3 * torch.sin(2 * math.pi * (300 + 2000 * t) * t) + 0.01 * noise


def librosa_mel(samples: torch.Tensor, c: FeatureConfig) -> np.ndarray:
    """librosa sets the window into the middle of the fft: shift the samples so that its frames are ours."""
    left = (c.fft - c.window) // 2
    padded = np.pad(samples.numpy(), (left, c.fft - c.window - left))
    return librosa.feature.melspectrogram(
        y=padded, sr=c.sample_rate, n_fft=c.fft, win_length=c.window, hop_length=c.hop, center=False, power=2.0,
        n_mels=c.mels, fmin=c.low_hz, fmax=c.high_hz, htk=c.mel_scale == "htk", norm="slaney" if c.equal_area else None,
    ).T  # fmt: skip


def in_chunks(features: Features, samples: torch.Tensor, sizes: list[int]) -> tuple[torch.Tensor, tuple]:
    pieces, state, at, turn = [], None, 0, 0
    while at < samples.shape[1]:
        size = sizes[turn % len(sizes)]
        frames, state = features(samples[:, at : at + size], state)
        pieces.append(frames)
        at, turn = at + size, turn + 1
    return torch.cat(pieces, 1), state


@pytest.mark.parametrize("name", CONFIGS)
def test_filters_are_librosas(name):
    c = CONFIGS[name]
    wanted = librosa.filters.mel(
        sr=c.sample_rate, n_fft=c.fft, n_mels=c.mels, fmin=c.low_hz, fmax=c.high_hz, htk=c.mel_scale == "htk",
        norm="slaney" if c.equal_area else None, dtype=np.float64,
    )  # fmt: skip
    np.testing.assert_allclose(mel_filters(c).T, wanted, atol=1e-12 if c.mel_scale == "htk" else 1e-10)


@pytest.mark.parametrize("scale", ["htk", "slaney"])
def test_mel_and_hz_are_inverse_and_meet_at_1000(scale):
    hz = torch.linspace(0, 12_000, 500, dtype=torch.double)
    mel = hz_to_mel(hz, scale)
    np.testing.assert_allclose(mel, librosa.hz_to_mel(hz.numpy(), htk=scale == "htk"), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mel_to_hz(mel, scale), hz)


@pytest.mark.parametrize("name", CONFIGS)
def test_mel_is_librosas(name):
    samples = sound()
    got = Features(CONFIGS[name])(samples)[0][0].numpy()
    wanted = librosa_mel(samples[0], CONFIGS[name])
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-7 * wanted.max())


def test_real_speech_is_librosas(shared):
    from voiceseq.audio.files import read_clip

    samples = read_clip(shared / "data/speech/librispeech/dev-00.opus", 10.0, 5.0)
    for c in (CONFIGS["ours"], CONFIGS["whisper"]):
        wanted = librosa_mel(torch.from_numpy(samples), c)
        got = Features(c)(torch.from_numpy(samples)[None])[0][0].numpy()
        loud = wanted > 1e-7 * wanted.max()  # below that librosa's own 32 bits have no digits left
        np.testing.assert_allclose(got[loud], wanted[loud], rtol=1e-4)
        assert loud.mean() > 0.5


def test_log_mel_is_the_log_with_a_floor():
    samples = sound()
    samples[:, 3000:5000] = 0
    c = FeatureConfig(floor=1e-4)
    wanted = np.log(np.maximum(librosa_mel(samples[0], c), 1e-4))
    np.testing.assert_allclose(Features(c)(samples)[0][0], wanted, atol=1e-4)


def test_digital_silence_gives_the_floor():
    silence = torch.zeros(1, 4000)
    frames = Features(FeatureConfig(floor=1e-5))(silence)[0]
    torch.testing.assert_close(frames, torch.full_like(frames, math.log(1e-5)))
    assert Features(FeatureConfig(kind="pcen"))(silence)[0].eq(0).all()
    after = Features(FeatureConfig(kind="pcen"))(torch.cat((silence, sound()), 1))[0]
    assert after.isfinite().all()


def test_pcen_is_librosas():
    samples, c = sound(time=32000), FeatureConfig(kind="pcen", gain=0.9, bias=1.5, power=0.6, smoothing=0.04)
    mel = librosa_mel(samples[0], c)
    wanted = librosa.pcen(
        mel, sr=c.sample_rate, hop_length=c.hop, gain=c.gain, bias=c.bias, power=c.power, b=c.smoothing, eps=c.floor,
        axis=0, zi=(1 - c.smoothing) * mel[:1].astype(np.float64),
    )  # fmt: skip
    np.testing.assert_allclose(Features(c)(samples)[0][0], wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [[1], [7], [160], [400], [16000], [1, 0, 0, 1000, 399]])
def test_any_chunks_give_the_whole(kind, sizes):
    samples = sound(2, 700 if sizes == [1] else 33_000)
    features = Features(FeatureConfig(kind=kind))
    whole, state = features(samples)
    got, last = in_chunks(features, samples, sizes)
    torch.testing.assert_close(got, whole, rtol=1e-5, atol=1e-5)
    for a, b in zip(last, state, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert whole.shape[1] == features.config.frames(samples.shape[1])


def test_the_unchecked_road_is_the_same():
    features, samples = Features(), sound()
    first, state = features.advance(samples[:, :1000], None)
    second, _ = features.advance(samples[:, 1000:], state)
    torch.testing.assert_close(torch.cat((first, second), 1), features(samples)[0])


@settings(max_examples=40, deadline=None)
@given(
    window=st.integers(2, 40),
    hop=st.integers(1, 40),
    time=st.integers(0, 300),
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=5).filter(any),
    kind=st.sampled_from(KINDS),
)
def test_chunks_and_counts_for_every_window(window, hop, time, sizes, kind):
    c = FeatureConfig(window=window, hop=min(hop, window), fft=64, mels=4, kind=kind)
    features, samples = Features(c), sound(1, time)
    whole, _ = features(samples)
    starts = [t for t in range(0, max(time, 1), c.hop) if t + window <= time]
    assert whole.shape == (1, len(starts), 4)
    assert features.output_lengths(torch.tensor([time])).tolist() == [len(starts)]
    if time:
        torch.testing.assert_close(in_chunks(features, samples, sizes)[0], whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_padded_rows_are_the_rows_alone(kind):
    features, samples = Features(FeatureConfig(kind=kind)), sound(5, 6000)
    lengths = torch.tensor([6000, 1, 399, 400, 4321])
    frames, _ = features(samples, lengths=lengths)
    counts = features.output_lengths(lengths)
    assert counts.tolist() == [36, 0, 0, 1, 25]
    for row, (length, count) in enumerate(zip(lengths.tolist(), counts.tolist(), strict=True)):
        alone, _ = features(samples[row : row + 1, :length])
        torch.testing.assert_close(frames[row, :count], alone[0], rtol=1e-5, atol=1e-5)
        assert frames[row, count:].eq(0).all()


def test_lengths_count_from_the_state_on():
    features, samples = Features(), sound(2, 3000)
    _, state = features(samples[:, :1000])
    lengths = torch.tensor([2000, 900])
    frames, _ = features(samples[:, 1000:], state, lengths)
    counts = features.output_lengths(lengths, state)
    whole, _ = features(samples)
    first = features.config.frames(1000)
    assert counts.tolist() == [features.config.frames(3000) - first, features.config.frames(1900) - first]
    torch.testing.assert_close(frames[1, : counts[1]], whole[1, first : first + counts[1]])
    assert frames[1, counts[1] :].eq(0).all()


def test_many_rows_and_long_ones_cross_the_blocks():
    """More frames than are worked on at a time, in either direction."""
    c = FeatureConfig(window=16, hop=16, fft=16, mels=2, kind="mel", low_hz=0)
    for samples in (sound(1, 16 * 2500), sound(1500, 64)):
        windows = samples.unflatten(1, (-1, 16)).double() * torch.hann_window(16, dtype=torch.double)
        wanted = torch.fft.rfft(windows).abs().square() @ mel_filters(c)
        torch.testing.assert_close(Features(c)(samples)[0].double(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_does_not_touch_it(kind):
    features, samples = Features(FeatureConfig(kind=kind)), sound()
    wanted, _ = features(samples)
    with torch.autocast("cpu", torch.bfloat16):
        assert (torch.zeros(1, 1) @ torch.zeros(1, 1)).dtype == torch.bfloat16
        got, _ = features(samples)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    half, _ = features(samples.bfloat16())
    assert half.dtype == torch.float32


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_the_samples(kind):
    c = FeatureConfig(window=16, hop=8, fft=16, mels=2, kind=kind, low_hz=0)
    features = Features(c).double()
    samples = sound(2, 40).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: features(x)[0], samples, rtol=1e-3)


def test_nothing_is_left_in_a_state_dict():
    assert not Features().state_dict()
    assert not list(Features().parameters())


class Exported(torch.nn.Module):
    """The streaming call with its state as plain inputs."""

    def __init__(self, features: Features) -> None:
        super().__init__()
        self.features = features

    def forward(self, samples, *state):
        frames, state = self.features(samples, state)
        return (frames, *state)


@pytest.mark.parametrize("kind", KINDS)
def test_onnx_streams_the_same_frames(kind):
    onnxruntime = pytest.importorskip("onnxruntime")
    features, samples = Features(FeatureConfig(kind=kind)).eval(), sound(1, 16000)
    whole, _ = features(samples)
    state = (torch.zeros(1, 0), torch.full((1, 64), -1.0))[: 2 if kind == "pcen" else 1]
    names = [f"state{i}" for i in range(len(state))]
    outputs = ["frames", *(f"next{i}" for i in range(len(state)))]
    axes = {"samples": {1: "time"}, "state0": {1: "kept"}, "next0": {1: "kept_next"}, "frames": {1: "frame"}}
    buffer = io.BytesIO()
    torch.onnx.export(
        Exported(features), (samples[:, :1280], *state), buffer, dynamo=False, opset_version=17,
        input_names=["samples", *names], output_names=outputs, dynamic_axes=axes,
    )  # fmt: skip
    session = onnxruntime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])
    held, pieces, at = [s.numpy() for s in state], [], 0
    for size in (1280, 1280, 400, 999, 160, 161, 11_720):  # one state plus chunk always holds a window
        chunk = samples[:, at : at + size].numpy()
        frames, *held = session.run(None, {"samples": chunk, **dict(zip(names, held, strict=True))})
        pieces.append(frames)
        at += size
    assert at == 16000
    np.testing.assert_allclose(np.concatenate(pieces, 1), whole, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hop": 401}, "hop is 401, at most window"),
        ({"fft": 256}, "fft is 256, at least window"),
        ({"mels": 0}, "mels is 0"),
        ({"high_hz": 9000}, "half the sample rate"),
        ({"low_hz": 8000}, "between 0 and half"),
        ({"kind": "mfcc"}, "mel, log_mel, pcen"),
        ({"mel_scale": "bark"}, "htk, slaney"),
        ({"floor": 0}, "floor is 0"),
        ({"smoothing": 0}, "smoothing is 0"),
        ({"power": 0}, "power 0"),
    ],
)
def test_wrong_settings_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        FeatureConfig(**settings)


def test_all_mistakes_in_one_message():
    with pytest.raises(ConfigError, match=r"hop is 500.*kind is 'x'"):
        FeatureConfig(hop=500, kind="x")


def test_bands_without_a_bin_are_refused():
    with pytest.raises(ConfigError, match=r"of 128 mel bands .* fft of 512: take fewer mels"):
        Features(FeatureConfig(mels=128))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_samples_are_refused(bad):
    samples = sound()
    samples[0, 17] = bad
    with pytest.raises(InputError, match="samples holds 1 NaN or infinite"):
        Features()(samples)


def test_wrong_samples_are_refused():
    features = Features()
    with pytest.raises(InputError, match=r"\(batch, time\) was wanted"):
        features(torch.zeros(400))
    with pytest.raises(InputError, match="/ 32768"):
        features(torch.zeros(1, 400, dtype=torch.int16))
    with pytest.raises(InputError, match=r"lengths\[0\] is 500"):
        features(torch.zeros(1, 400), lengths=torch.tensor([500]))
    with pytest.raises(InputError, match="what the last call returned"):
        features(torch.zeros(1, 400), (torch.zeros(2, 10),))
    with pytest.raises(InputError, match="what the last call returned"):
        Features(FeatureConfig(kind="pcen"))(torch.zeros(1, 400), (torch.zeros(1, 10),))
    frames, state = features(torch.zeros(1, 0))
    assert frames.shape == (1, 0, 64)
    assert state[0].shape == (1, 0)
