"""Acoustic models: alone is padded, whole is chunks, teacher forcing is step by step; none looks where it may not."""

import dataclasses
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.audio.features import FeatureConfig
from voiceseq.core.recurrent import Recurrent
from voiceseq.errors import ConfigError, InputError
from voiceseq.models.acoustic import (
    DECODERS,
    ENCODERS,
    AcousticConfig,
    AcousticNetwork,
    running_level,
)
from voiceseq.models.encoders import PyramidEncoder, pairs
from voiceseq.models.whisper import WhisperConfig, WhisperNetwork
from voiceseq.models.whisper_stream import build_acoustic

FEATURES = FeatureConfig(window=80, hop=40, fft=128, mels=8, sample_rate=4000)
TINY = AcousticConfig(
    symbols=6,
    features=FEATURES,
    channels=6,
    kernel=3,
    size=8,
    layers=2,
    heads=2,
    feed_forward=2,
    conformer_kernel=3,
    chunk=4,
    left_chunks=2,
    decoder_size=8,
    dropout=0.1,
)

LATE = {"chunk": 8, "left_chunks": 3, "above": 2, "above_size": 5, "delay": 3}  # of Whisper on a stream
ABOVE = {"above": 2, "above_size": 5, "delay": 3}
STREAMS: list[tuple[str, dict[str, int]]] = [
    *(("causal", {}), ("causal", {"delay": 3}), ("chunked", {})),
    *(("convolution", {}), ("convolution", ABOVE)),
]


def network(encoder: str = "bilstm", decoder: str = "none", **more: object) -> AcousticNetwork:
    torch.manual_seed(1)
    config = dataclasses.replace(TINY, encoder=encoder, decoder=decoder, **more)
    return build_acoustic(config).double().eval()


def sound(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    return 0.1 * torch.randn(len(lengths), max(lengths)).double(), torch.tensor(lengths)


@pytest.mark.parametrize(
    ("encoder", "more"),
    [
        *((encoder, {}) for encoder in ENCODERS),
        ("causal", {"delay": 3}),
        ("convolution", {"above": 2, "above_size": 5}),
        ("convolution", ABOVE),
        ("whisper", {"above": 2, "above_size": 5}),
        ("whisper-chunked", LATE),
    ],
)
def test_alone_and_padded_are_the_same_and_lengths_are_announced(encoder: str, more: dict[str, int]) -> None:
    model, (samples, lengths) = network(encoder, **more), sound(2900, 1500, 81)
    together = model(samples, lengths)
    assert together.lengths.tolist() == model.frames_of(lengths).tolist()
    for row, length in enumerate(lengths.tolist()):
        alone = model(samples[row : row + 1, :length])
        count = int(together.lengths[row])
        assert alone.logits.shape == (1, count, 6)
        assert torch.allclose(alone.logits[0], together.logits[row, :count], atol=1e-9)
        assert torch.allclose(alone.frames[0], together.frames[row, :count], atol=1e-9)


@pytest.mark.parametrize(("encoder", "more"), [*STREAMS, ("causal", {"delay": 100})])
@settings(max_examples=8, deadline=None)
@given(cuts=st.lists(st.integers(0, 3000), max_size=6))
def test_a_stream_gives_what_the_whole_gives(encoder: str, more: dict[str, int], cuts: list[int]) -> None:
    model, (samples, _) = network(encoder, **more), sound(3000)
    edges = [0, *sorted(cuts), 3000]
    state, found = None, []
    for start, end in pairwise(edges):
        logits, state = model.advance(samples[:, start:end], state)
        found.append(logits)
    rest = model.flush(state)
    found += [] if rest is None else [rest]
    assert torch.allclose(torch.cat(found, 1), model(samples).logits, atol=1e-9)


@pytest.mark.parametrize(("encoder", "more"), STREAMS)
def test_what_streams_looks_ahead_no_further_than_it_says(encoder: str, more: dict[str, int]) -> None:
    model, (samples, _) = network(encoder, **more), sound(3000)
    changed = samples.clone()
    changed[:, 2000:] = 0.3
    before, after = model(samples).logits, model(changed).logits
    frame = TINY.stride * FEATURES.hop
    known = (2000 - FEATURES.window) // frame + 1  # frames whose window ends before the change
    known -= model.encoder.lookahead
    assert torch.equal(before[:, :known], after[:, :known])
    assert not torch.allclose(
        before[:, known + model.encoder.lookahead + 1 :], after[:, known + model.encoder.lookahead + 1 :]
    )


@pytest.mark.parametrize("encoder", ["bilstm", "pyramid", "transformer", "conformer", "whisper"])
def test_what_needs_the_whole_looks_ahead_and_does_not_stream(encoder: str) -> None:
    model, (samples, _) = network(encoder), sound(3000)
    changed = samples.clone()
    changed[:, 2500:] *= -2
    assert not torch.allclose(model(samples).logits[:, 0], model(changed).logits[:, 0])
    with pytest.raises(InputError, match="needs the whole"):
        model.advance(samples)


def test_loudness_does_not_matter() -> None:
    model, (samples, lengths) = network(), sound(2000)
    assert torch.allclose(model(samples, lengths).logits, model(8 * samples, lengths).logits, atol=1e-8)


def test_the_running_level_is_the_mean_of_prior_and_past() -> None:
    frames = torch.randn(2, 30, 3).double()
    found, _ = running_level(frames, None)
    for t in range(30):
        mean = (100 * torch.full((2, 3), -6.0).double() + frames[:, : t + 1].sum(1)) / (100 + t + 1)
        assert torch.allclose(found[:, t], (frames[:, t] - mean) / 3)


@pytest.mark.parametrize("decoder", ["recurrent", "transformer"])
def test_teacher_forcing_is_what_the_search_sees(decoder: str) -> None:
    model, (samples, lengths) = network("bilstm", decoder), sound(2900, 1500)
    output = model(samples, lengths)
    assert model.decoder is not None
    tokens = torch.tensor([[1, 4, 2, 5], [1, 3, 3, 2]])
    logits = model.decoder(tokens, output.frames, output.lengths)
    state, memory = model.decoder.start(output.frames, output.lengths)
    for place in range(4):
        log_probs, state = model.decoder.step(tokens[:, place], state, memory)
        assert torch.allclose(log_probs, logits[:, place].log_softmax(-1), atol=1e-8)
    alone = model.decoder(tokens[1:], output.frames[1:, : output.lengths[1]], output.lengths[1:])
    assert torch.allclose(alone, logits[1:], atol=1e-8)


def test_the_pyramid_reads_pairs() -> None:
    frames = torch.arange(12.0).reshape(1, 3, 4)
    assert pairs(frames)[0].tolist() == [[*range(8)], [8, 9, 10, 11, 0, 0, 0, 0]]
    encoder = PyramidEncoder(4, 3, "gru", 3, 0.0).eval()
    assert [type(layer) for layer in encoder.layers] == [Recurrent] * 3
    out, lengths = encoder(torch.randn(2, 9, 4), torch.tensor([9, 4]))
    assert out.shape == (2, 3, 6)
    assert lengths.tolist() == [3, 1]
    assert encoder.factor == 4


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_every_parameter_learns(encoder: str, decoder: str) -> None:
    model, (samples, lengths) = network(encoder, decoder), sound(1500, 900)
    model.train()
    output = model(samples, lengths)
    loss = output.logits.log_softmax(-1)[..., 1].mean()
    if model.decoder is not None:
        loss = loss + model.decoder(torch.tensor([[1, 2, 3], [1, 4, 5]]), output.frames, output.lengths).square().mean()
    loss.backward()
    idle = [name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert [name for name in idle if not name.endswith(("key.bias", "relative.weight"))] == []


@pytest.mark.parametrize("samples", [16_000, 16_160, 15_900])
def test_layers_above_whisper_have_a_frame_for_two_of_its_own(samples: int) -> None:
    below, above = network("whisper"), network("whisper", above=1, above_size=5)
    count = int(below.frames_of(torch.tensor([samples])))
    output = above(sound(samples)[0])
    assert output.lengths.tolist() == [(count + 1) // 2]
    assert output.frames.shape[2] == 10
    assert above.frame_s == 2 * below.frame_s
    above.train()(sound(samples)[0]).logits[..., 1].sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in above.above.parameters())


@pytest.mark.parametrize("more", [{"chunk": 7}, {**LATE, "above": 0, "delay": 0}, LATE])
@settings(max_examples=8, deadline=None)
@given(cuts=st.lists(st.integers(0, 30_000), max_size=6))
def test_whisper_on_a_stream_gives_what_the_whole_gives(more: dict[str, int], cuts: list[int]) -> None:
    model, (samples, _) = network("whisper-chunked", **more), sound(30_000, 30_000)
    state, found = None, []
    for start, end in pairwise([0, *sorted(cuts), 30_000]):
        logits, state = model.advance(samples[:, start:end], state)
        found.append(logits)
    assert torch.allclose(torch.cat([*found, model.flush(state)], 1), model(samples).logits, atol=1e-9)


def test_whisper_on_a_stream_looks_no_further_than_its_chunk_and_its_delay() -> None:
    model, (samples, _) = network("whisper-chunked", **LATE), sound(30_000)
    changed = samples.clone()
    changed[:, 20_000:] = 0.3  # 1.25 s: frames of 40 ms in chunks of 160 ms, answered 120 ms late
    before, after = model(samples).logits, model(changed).logits
    sure = 7 * LATE["chunk"] // 2 - LATE["delay"]  # the convolutions look into chunk 8, which begins at 1.28 s
    assert torch.allclose(before[:, :sure], after[:, :sure], atol=1e-9)
    assert not torch.allclose(before[:, sure + 1 + LATE["delay"]], after[:, sure + 1 + LATE["delay"]])
    ready, _ = model.advance(samples[:, : 8 * 2560 + 1000])
    assert ready.shape[1] == 8 * LATE["chunk"] // 2 - LATE["delay"]


def test_a_stream_outlives_the_table_of_positions() -> None:
    model, state = network("whisper-chunked", **LATE), None
    for _ in range(32):
        logits, state = model.advance(sound(16_000)[0], state)
    assert logits.isfinite().all()
    assert state[5] > len(model.positions)
    assert model.flush(state).isfinite().all()


def test_settings_that_cannot_be_are_all_named() -> None:
    with pytest.raises(ConfigError, match="chunk is 7 under layers that read frames in pairs"):
        AcousticConfig(symbols=5, encoder="whisper-chunked", chunk=7, above=1)
    with pytest.raises(ConfigError, match="delay is 1 with the encoder 'whisper-chunked'"):
        AcousticConfig(symbols=5, encoder="whisper-chunked", delay=1)
    with pytest.raises(ConfigError, match="above is 1 with the encoder 'bilstm'"):
        AcousticConfig(symbols=5, above=1)
    with pytest.raises(ConfigError, match=r"stride is 0.*layers is 101.*encoder is 'lstm'.*bilstm, pyramid.*dropout"):
        AcousticConfig(symbols=5, stride=0, layers=101, encoder="lstm", dropout=1.0)
    with pytest.raises(ConfigError, match="blank, end and one more"):
        AcousticNetwork(AcousticConfig(symbols=2))
    with pytest.raises(ConfigError, match="blank, end and one more"):
        build_acoustic(AcousticConfig(symbols=2, encoder="whisper"))


def test_a_recording_without_a_frame_is_refused() -> None:
    with pytest.raises(InputError, match="79 samples"):
        network()(*sound(500, 79))


def test_whispers_encoder_hears_what_whisper_hears() -> None:
    """Its tensors have the same names, so that a run may start from them."""
    torch.manual_seed(4)
    whisper = WhisperNetwork(WhisperConfig(symbols=9, tail_s=0.3, size=8, heads=2, encoder_layers=2, decoder_layers=1))
    model = network("whisper", "transformer")
    own = model.state_dict()
    taken = {name: value for name, value in whisper.double().state_dict().items() if name in own}
    left = model.load_state_dict({name: value for name, value in taken.items() if "decoder" not in name}, strict=False)
    assert {name.split(".")[0] for name in left.missing_keys} == {"output", "decoder"}
    samples, lengths = sound(9000, 5000)
    frames, counts = whisper.eval().listen(samples, lengths)
    output = model(samples, lengths)
    assert torch.equal(output.frames, frames)
    assert torch.equal(output.lengths, counts)
