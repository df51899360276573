"""The detector's network: one answer, whatever the cut into chunks and the company in the batch."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.errors import ConfigError, InputError
from voiceseq.models.backbone import BackboneConfig
from voiceseq.models.trigger import PIECE, HeadConfig, TriggerConfig, TriggerNetwork, blurred

BACKBONE = BackboneConfig(symbols=5, channels=8, size=12, layers=2, bottleneck=6)
HEADS = ("gru", "convolution", "transformer")  # those that learn
FRONTS = {"backbone": BACKBONE, "plain": None}


def make(kind: str, front: str, layers: int = 2) -> TriggerNetwork:
    torch.manual_seed(1)
    config = TriggerConfig(("one", "two"), FRONTS[front], HeadConfig(kind, size=8, layers=layers), channels=8)
    network = TriggerNetwork(config).double().eval()
    for parameter in network.parameters():  # norms and biases too: what starts as 0 or 1 hides mistakes
        torch.nn.init.normal_(parameter, std=0.4)
    return network


def sound(batch: int, samples: int) -> torch.Tensor:
    return 0.1 * torch.randn(batch, samples, dtype=torch.double, generator=torch.Generator().manual_seed(2))


def stream(network: TriggerNetwork, pieces: Any) -> torch.Tensor:
    state, scores = None, []
    for piece in pieces:
        logits, state = network(piece, state)
        scores.append(logits)
    return torch.cat(scores, 1)


everywhere = pytest.mark.parametrize(("kind", "front"), [(kind, front) for kind in HEADS for front in FRONTS])


@everywhere
@pytest.mark.parametrize("chunk", [1, 160, 777, 5000])
def test_any_cut_gives_the_same_scores(kind: str, front: str, chunk: int) -> None:
    network, samples = make(kind, front), sound(2, 400 if chunk == 1 else 21_000)
    whole, _ = network(samples)
    assert whole.shape == (2, 1 if chunk == 1 else 43, 2)  # every 480 samples, the first after 400
    torch.testing.assert_close(stream(network, samples.split(chunk, 1)), whole)


@given(cuts=st.lists(st.integers(0, 12_000), max_size=8), place=st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_uneven_and_empty_chunks(cuts: list[int], place: int) -> None:
    kind, front = [(kind, front) for kind in HEADS for front in FRONTS][place]
    network, samples = make(kind, front, layers=1), sound(1, 12_000)
    edges = [0, *sorted(cuts), 12_000]
    pieces = [samples[:, first:last] for first, last in pairwise(edges)]
    torch.testing.assert_close(stream(network, pieces), network(samples)[0])


@everywhere
def test_a_clip_is_heard_the_same_alone_and_in_company(kind: str, front: str) -> None:
    network, samples = make(kind, front), sound(3, 9000)
    lengths = torch.tensor([9000, 4321, 2000])
    together, _ = network(samples, lengths=lengths)
    for row, length in enumerate(lengths):
        alone, _ = network(samples[row : row + 1, :length])
        torch.testing.assert_close(together[row, : alone.shape[1]], alone[0])
        assert bool((together[row, alone.shape[1] :] == 0).all())


@everywhere
def test_training_on_whole_clips_is_what_the_stream_says(kind: str, front: str) -> None:
    """Longer than what a transformer sees and than the pieces it works in."""
    network = make(kind, front)
    frames = torch.randn(1, PIECE + 90, network.front.size, dtype=torch.double)
    whole, _ = network.head(frames, None, torch.tensor([frames.shape[1]]))
    torch.testing.assert_close(network.head(frames)[0], whole)


@everywhere
def test_the_past_is_all_in_the_state(kind: str, front: str) -> None:
    """No state is a new stream, exactly; and the network keeps nothing for itself."""
    network, samples = make(kind, front), sound(1, 8000)
    first, state = network(samples)
    other, _ = network(sound(1, 16_000)[:, 8000:], state)
    assert torch.equal(network(samples)[0], first)
    alone = network(sound(1, 16_000)[:, 8000:])[0]
    assert not torch.allclose(other[:, : alone.shape[1]], alone)


@everywhere
def test_no_score_knows_the_future(kind: str, front: str) -> None:
    network, samples = make(kind, front), sound(1, 8000)
    frame = network.first_after(5000 / 16_000)
    changed = torch.cat((samples[:, :5000], -samples[:, 5000:]), 1)
    before, after = network(samples)[0], network(changed)[0]
    assert torch.equal(before[:, :frame], after[:, :frame])
    assert not torch.allclose(before[:, frame], after[:, frame])  # the first that has heard sample 5000 and more


def test_which_frame_has_heard_what() -> None:
    network = make("gru", "plain")
    assert network.frame_s == pytest.approx(0.03)
    for samples in range(1, 3000, 7):
        heard = [n for n in range(20) if n * 480 + 400 >= samples]
        assert network.first_after(samples / 16_000) == heard[0]


@pytest.mark.parametrize(("kind", "most"), [("gru", 60_000), ("convolution", 100_000), ("transformer", 150_000)])
def test_heads_are_small(kind: str, most: int) -> None:
    config = TriggerConfig(("word",), head=HeadConfig(kind, layers=4 if kind == "convolution" else 2))
    assert 20_000 < sum(weight.numel() for weight in TriggerNetwork(config).head.parameters()) < most


def test_in_training_no_number_of_a_frame_is_to_be_trusted() -> None:
    """Each is off by chance; a share is missing, in each row others, from its first frame to its last."""
    torch.manual_seed(3)
    heard = blurred(torch.full((200, 9, 50), 0.5), noise=0.1, lost=0.2)
    gone = heard == 0
    assert (gone.all(1) == gone.any(1)).all()
    assert gone.double().mean() == pytest.approx(0.2, abs=0.02)
    assert (gone.any(1).sum(0) > 0).all()
    assert heard[~gone].mean() == pytest.approx(0.5, abs=0.01)
    assert heard[~gone].std() == pytest.approx(0.1, abs=0.01)


def test_the_phones_hear_what_the_head_in_training_does_not() -> None:
    """Their opinion is that of the frames themselves."""
    network = make_spelt("gru")
    frames = torch.randn(3, 40, BACKBONE.bottleneck, dtype=torch.double)
    for parameter in network.head.output.parameters():
        torch.nn.init.zeros_(parameter)
    told, _ = network.head.eval()(frames)
    torch.testing.assert_close(network.head.train()(frames)[0], told)
    assert (told != 0).any()


def test_bad_settings_and_input_are_refused() -> None:
    with pytest.raises(ConfigError, match="gru, convolution, transformer"):
        TriggerNetwork(TriggerConfig(("word",), head=HeadConfig("lstm")))
    with pytest.raises(ConfigError, match="at least one"):
        TriggerNetwork(TriggerConfig())
    with pytest.raises(InputError, match="NaN"):
        make("gru", "plain")(torch.full((1, 4000), torch.nan, dtype=torch.double))
    with pytest.raises(InputError, match="at least 1 frame"):
        make("gru", "plain")(sound(2, 4000), lengths=torch.tensor([4000, 100]))


# --- the phones' opinion ---------------------------------------------------------------------------------------------

SPELLINGS = (((1, 2, 3), (1, 4)), ((2, 2),))
spelt = pytest.mark.parametrize("kind", ["gru", "phones"])


def make_spelt(kind: str) -> TriggerNetwork:
    torch.manual_seed(1)
    network = TriggerNetwork(TriggerConfig(("one", "two"), BACKBONE, HeadConfig(kind, size=8), spellings=SPELLINGS))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    network.load_backbone(network.front.backbone)
    return network.double().eval()


@spelt
@pytest.mark.parametrize("chunk", [160, 777, 5000])
def test_any_cut_gives_the_same_opinion(kind: str, chunk: int) -> None:
    network, samples = make_spelt(kind), sound(2, 21_000)
    torch.testing.assert_close(stream(network, samples.split(chunk, 1)), network(samples)[0])


@spelt
def test_a_padded_opinion_is_the_one_alone(kind: str) -> None:
    network, samples = make_spelt(kind), sound(2, 21_000)
    both, _ = network(samples, lengths=torch.tensor([21_000, 9_000]))
    alone, _ = network(samples[1:, :9_000])
    torch.testing.assert_close(both[1:, : alone.shape[1]], alone)
    assert not both[1, alone.shape[1] :].any()


def test_the_opinion_is_the_best_of_the_last_frames() -> None:
    network, samples = make_spelt("phones"), sound(1, 21_000)
    head = network.head
    frames, _, _ = network.front(samples)
    scores, _ = head.opinion.spotter(head.opinion.phones(frames).log_softmax(-1))
    logits, _ = network(samples)
    for t in range(frames.shape[1]):
        best = scores[:, max(0, t - 6) : t + 1].clamp(min=-8).amax(1)
        torch.testing.assert_close(logits[:, t], 4.0 * (best - head.level))


@spelt
def test_lower_moves_one_word_alone(kind: str) -> None:
    network, samples = make_spelt(kind), sound(1, 9_000)
    before, _ = network(samples)
    network.head.lower(1, 1.5)
    torch.testing.assert_close(before - network(samples)[0], torch.tensor([0.0, 1.5]).double().expand_as(before))


@spelt
def test_the_lean_network_has_the_same_opinion(kind: str) -> None:
    from voiceseq.inference.detector import Detector
    from voiceseq.inference.events import Decision

    network, samples = make_spelt(kind).float(), sound(1, 21_000).float()
    detector = Detector.from_network(network, {"one": Decision(), "two": Decision()})
    assert type(detector.networks[0]).__name__ == "LeanNetwork"
    with torch.inference_mode():
        wanted = network(samples)[0][0]
    state = detector.networks[0].start()
    found = [detector.networks[0].advance(part.numpy(), state) for part in samples[0].split(1111)]
    torch.testing.assert_close(torch.cat([torch.from_numpy(part) for part in found]), wanted, atol=1e-4, rtol=1e-4)


def test_spellings_want_a_word_each_and_a_backbone() -> None:
    for config in (
        TriggerConfig(("one",), BACKBONE, HeadConfig("phones")),
        TriggerConfig(("one",), BACKBONE, spellings=SPELLINGS),
        TriggerConfig(("one", "two"), None, spellings=SPELLINGS),
    ):
        with pytest.raises(ConfigError, match="spellings"):
            TriggerNetwork(config)


@spelt
def test_a_bundle_brings_it_back(kind: str, tmp_path: Path) -> None:
    network = make_spelt(kind).float()
    path = save_bundle(tmp_path / "word", kind="trigger", config=network.config, weights=network.state_dict())
    again = load_bundle(path).network(TriggerNetwork, TriggerConfig).eval()
    samples = sound(1, 9_000).float()
    torch.testing.assert_close(again(samples)[0], network(samples)[0])
