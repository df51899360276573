"""Where somebody speaks: the network against an independent one, streams against the whole, and real sounds."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT

from voiceseq.audio import vad
from voiceseq.audio.files import read_audio, read_clip
from voiceseq.audio.vad import CONTEXT, FRAME, SpeechActivity, speech_network, speech_probabilities
from voiceseq.errors import InputError, MissingDependencyError

RATE = 16_000


@pytest.fixture(scope="module")
def speech(shared) -> np.ndarray:
    rows = [json.loads(line) for line in (shared / "data/speech/librispeech/manifest-dev.jsonl").open()]
    row = min(rows, key=lambda row: row["duration"])
    return read_clip(shared / "data/speech" / row["audio"], row["offset"], row["duration"], RATE)


def reference(samples: np.ndarray) -> np.ndarray:
    """The same network frame by frame, in numpy, from the file of weights."""
    from safetensors.numpy import load_file

    folder = Path(importlib.util.find_spec("silero_vad").origin).parent
    weights = {name: value.astype(np.float64) for name, value in load_file(folder / "data" / vad.WEIGHTS).items()}

    def convolve(x, name, stride, padding):
        kernel = weights[f"{name}.weight"]
        x = np.pad(x, ((0, 0), (padding, padding)))
        places = range(0, x.shape[1] - kernel.shape[2] + 1, stride)
        y = np.stack([np.einsum("oik,ik->o", kernel, x[:, at : at + kernel.shape[2]]) for at in places], 1)
        return y + weights.get(f"{name}.bias", np.zeros(len(y)))[:, None]

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    hidden = cell = np.zeros(128)
    padded = np.concatenate((np.zeros(CONTEXT), samples, np.zeros(-len(samples) % FRAME)))
    found = []
    for at in range(0, len(padded) - CONTEXT, FRAME):
        frame = padded[at : at + CONTEXT + FRAME]
        frame = np.concatenate((frame, frame[-2 : -2 - CONTEXT : -1]))  # reflected
        both = convolve(frame[None], "stft_conv", 128, 0)
        x = np.hypot(both[:129], both[129:])
        for name, stride in (("conv1", 1), ("conv2", 2), ("conv3", 2), ("conv4", 1)):
            x = np.maximum(0, convolve(x, name, stride, 1))
        gates = weights["lstm_cell.weight_ih"] @ x[:, 0] + weights["lstm_cell.weight_hh"] @ hidden
        i, f, g, o = np.split(gates + weights["lstm_cell.bias_ih"] + weights["lstm_cell.bias_hh"], 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        found.append(weights["final_conv.weight"][0, :, 0] @ np.maximum(0, hidden) + weights["final_conv.bias"][0])
    return sigmoid(np.array(found))


def test_the_network_is_the_one_of_the_package(speech):
    samples = speech[: 2 * RATE + 100]
    assert np.abs(speech_probabilities(samples) - reference(samples)).max() < 1e-4


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 9000), max_size=8))
def test_any_cut_gives_the_same(cuts):
    samples = np.random.default_rng(1).normal(0, 0.1, 20_000).astype(np.float32)
    stream, found, at = SpeechActivity(), [], 0
    for size in [*cuts, len(samples)]:
        found.append(stream.feed(samples[at : at + size]))
        at += size
    found.append(stream.finish())
    assert np.allclose(np.concatenate(found), speech_probabilities(samples), atol=1e-5)


def test_more_than_one_block_of_frames(monkeypatch):
    samples = np.random.default_rng(2).normal(0, 0.1, 30_000).astype(np.float32)
    whole = speech_probabilities(samples)
    monkeypatch.setattr(vad, "BLOCK", 7)
    assert np.allclose(whole, speech_probabilities(samples), atol=1e-5)
    assert len(whole) == -(-len(samples) // FRAME)


def test_speech_is_speech_at_any_level(speech):
    for gain_db in (-20, 0, 20):
        loud = np.clip(speech * 10 ** (gain_db / 20), -1, 1).astype(np.float32)
        assert (speech_probabilities(loud) > 0.5).mean() > 0.6
    assert (speech_probabilities(speech + np.float32(0.3)) > 0.5).mean() > 0.6  # an offset


@pytest.mark.parametrize("kind", ["silence", "offset", "hum", "hiss", "clicks", "clipped noise"])
def test_what_is_no_speech(kind):
    noise = np.random.default_rng(3).normal(size=5 * RATE)
    time = np.arange(5 * RATE) / RATE
    samples = {
        "silence": 0 * time,
        "offset": 0 * time + 0.5,
        "hum": 0.3 * np.sign(np.sin(2 * np.pi * 50 * time)),
        "hiss": 0.1 * noise,
        "clicks": (np.arange(5 * RATE) % 4000 == 0) * 1.0,
        "clipped noise": np.clip(20 * noise, -1, 1),
    }[kind]
    assert speech_probabilities(samples.astype(np.float32)).max() < 0.4


def test_the_clip_without_words_and_the_one_with():
    assert (speech_probabilities(read_audio(ROOT / "data/clips/two-words.flac", sample_rate=RATE).samples) > 0.5).any()


def test_a_sample_nothing_and_nan():
    assert speech_probabilities(np.zeros(0, np.float32)).shape == (0,)
    assert speech_probabilities(np.zeros(1, np.float32)).shape == (1,)
    broken = np.full(RATE, np.nan, np.float32)
    assert np.array_equal(speech_probabilities(broken), speech_probabilities(np.zeros(RATE, np.float32)))
    with pytest.raises(InputError, match=r"\(2, 100\)"):
        SpeechActivity().feed(np.zeros((2, 100), np.float32))


def test_without_the_package(monkeypatch):
    speech_network.cache_clear()
    monkeypatch.setattr(vad.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install silero-vad"):
        SpeechActivity()
    monkeypatch.undo()
    speech_network.cache_clear()


def test_torch_keeps_its_threads():
    speech_network.cache_clear()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        speech_network()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
