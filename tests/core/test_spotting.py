import io
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from voiceseq.core.ctc import NEVER, collapse, ctc_forward
from voiceseq.core.spotting import PhraseSpotter
from voiceseq.errors import InputError

SYMBOLS = 5
SPELLINGS = [[1], [1, 2], [2, 2], [1, 2, 1], [3, 3, 4], [4, 1, 2, 2]]
ALONE = [[spelling] for spelling in SPELLINGS]


def sounds(batch: int, time: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(batch, time, SYMBOLS, generator=generator, dtype=torch.double)).log_softmax(-1)


def by_listing(log_probs: Tensor, spelling: list[int], t: int) -> float:
    """Every string of every window that ends at t, begins and ends with a phone, and collapses to the spelling."""
    total = 0.0
    for start in range(t + 1):
        for path in itertools.product(range(SYMBOLS), repeat=t + 1 - start):
            if path[0] and path[-1] and collapse(path, 0) == spelling:
                total += float(log_probs[range(start, t + 1), path].sum().exp())
    return float(np.log(total)) / len(spelling) if total else -np.inf


def by_windows(log_probs: Tensor, spelling: list[int], t: int) -> float:
    """The same from the CTC probability of every window, less what begins or ends with a blank."""

    def likelihood(start: int, end: int) -> float:
        if start > end:
            return 0.0
        return float(ctc_forward(log_probs[None, start : end + 1], torch.tensor([spelling])).exp())

    blank = log_probs[:, 0].exp().tolist()
    total = sum(
        likelihood(s, t)
        - blank[s] * likelihood(s + 1, t)
        - blank[t] * likelihood(s, t - 1)
        + blank[s] * blank[t] * likelihood(s + 1, t - 1)
        for s in range(t + 1)
    )
    return float(np.log(total)) / len(spelling) if total > 1e-12 else -np.inf


def rid_of_never(scores: Tensor) -> np.ndarray:
    return np.where(scores.numpy() < NEVER / 100, -np.inf, scores.numpy())


def test_it_adds_up_every_path() -> None:
    log_probs = sounds(1, 5)
    found = rid_of_never(PhraseSpotter(ALONE)(log_probs)[0][0])
    wanted = [[by_listing(log_probs[0], spelling, t) for spelling in SPELLINGS] for t in range(5)]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert np.isfinite(found).sum() > 15


def test_it_is_the_ctc_probability_of_every_window() -> None:
    log_probs = sounds(1, 9, seed=2)
    found = rid_of_never(PhraseSpotter(ALONE)(log_probs)[0][0])
    wanted = [[by_windows(log_probs[0], spelling, t) for spelling in SPELLINGS] for t in range(9)]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_of_several_spellings_the_best_counts() -> None:
    log_probs = sounds(2, 12)
    alone = PhraseSpotter(ALONE)(log_probs)[0]
    together = PhraseSpotter([SPELLINGS[:2], SPELLINGS[2:3], SPELLINGS[3:]])(log_probs)[0]
    wanted = torch.stack([alone[..., :2].amax(-1), alone[..., 2], alone[..., 3:].amax(-1)], -1)
    assert torch.equal(together, wanted)


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(1, 29), max_size=6, unique=True), loops=st.booleans())
def test_any_cut_gives_the_same(cuts: list[int], loops: bool) -> None:
    spotter, log_probs = PhraseSpotter(ALONE), sounds(2, 30).requires_grad_(not loops)
    state, parts = None, []
    for piece in torch.tensor_split(log_probs, sorted(cuts), 1):
        part, state = spotter(piece, state)
        parts.append(part)
    whole, last = spotter(log_probs)
    assert torch.equal(torch.cat(parts, 1), whole)
    assert state is not None
    final = 2 * torch.tensor([len(one) for one in SPELLINGS]) - 2  # what lies behind a spelling's end is nobody's
    index = final[None, :, None].expand(2, -1, 1)
    assert torch.equal(state[0].gather(2, index), last[0].gather(2, index))


def test_padded_as_alone() -> None:
    spotter, log_probs = PhraseSpotter(ALONE), sounds(3, 20)
    lengths = torch.tensor([20, 7, 12])
    scores, (alpha,) = spotter(log_probs, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        alone, (state,) = spotter(log_probs[row : row + 1, :length])
        torch.testing.assert_close(scores[row, :length], alone[0])
        torch.testing.assert_close(alpha[row], state[0])
        assert not scores[row, length:].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loops_and_equations_agree(dtype: torch.dtype) -> None:
    log_probs = sounds(2, 300).to(dtype)
    log_probs[:, 100:110, 2] = -torch.inf  # a probability of zero, and of one
    spotter = PhraseSpotter(ALONE)
    fast = spotter(log_probs)[0]
    slow = spotter(log_probs.clone().requires_grad_())[0].detach()
    assert fast.dtype == slow.dtype == dtype
    np.testing.assert_allclose(rid_of_never(fast), rid_of_never(slow), rtol=1e-4, atol=1e-5)


def test_gradients_are_right() -> None:
    raw = torch.randn(1, 6, SYMBOLS, dtype=torch.double, requires_grad=True)
    spotter = PhraseSpotter([[[1, 2]], [[3]]])
    assert torch.autograd.gradcheck(lambda x: spotter(x.log_softmax(-1))[0][:, 2:], (raw,))


def test_an_endless_stream_stays_finite() -> None:
    spotter, state = PhraseSpotter(ALONE), None
    for step in range(40):
        scores, state = spotter(sounds(1, 500, seed=step).float(), state)
    assert torch.isfinite(scores).all()
    fresh = spotter(sounds(1, 500, seed=39).float())[0]
    torch.testing.assert_close(scores[:, -50:], fresh[:, -50:])  # what was long ago is forgotten


def test_a_phrase_that_is_said_stands_out() -> None:
    said = [0, 0, 4, 0, 1, 1, 0, 2, 0, 2, 0, 0, 3]
    log_probs = torch.full((1, len(said), SYMBOLS), 0.01).log()
    log_probs[0, range(len(said)), said] = np.log(0.96)
    scores = PhraseSpotter([[[4, 1, 2, 2]], [[1, 2, 1]], [[3, 3, 4]]])(log_probs)[0][0]
    assert int(scores[:, 0].argmax()) == 9
    assert scores[9, 0] > -0.2
    assert scores[:, 1:].max() < -0.9


class Exported(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spotter = PhraseSpotter([SPELLINGS[:2], SPELLINGS[2:]])

    def forward(self, log_probs: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        return self.spotter.advance(log_probs, alpha, torch.full((1,), log_probs.shape[1]))


@pytest.mark.filterwarnings("ignore")
def test_it_can_be_exported() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    module, buffer = Exported(), io.BytesIO()
    alpha = torch.full((1, *module.spotter.labels.shape), NEVER)
    torch.onnx.export(module, (sounds(1, 3).float(), alpha), buffer, dynamo=False, opset_version=17)
    session = onnxruntime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    log_probs, state, parts = sounds(1, 12, seed=4).float(), alpha.numpy(), []
    for piece in log_probs.split(3, 1):
        part, state = session.run(None, dict(zip(names, (piece.numpy(), state), strict=True)))
        parts.append(part)
    wanted = module.spotter(log_probs)[0]
    np.testing.assert_allclose(
        rid_of_never(torch.from_numpy(np.concatenate(parts, 1))), rid_of_never(wanted), rtol=1e-4
    )


@pytest.mark.parametrize("phrases", [[], [[]], [[[]]], [[[1, 0]]], [[[1]], []], [[[-1]]]])
def test_phrases_that_cannot_be(phrases: list[list[list[int]]]) -> None:
    with pytest.raises(InputError, match="wanted"):
        PhraseSpotter(phrases)


def test_input_that_cannot_be() -> None:
    spotter, good = PhraseSpotter([[[1, 4]]]), sounds(1, 3)
    state = spotter(good)[1]
    nan = good.clone()
    nan[0, 0, 0] = torch.nan
    for wrong in (good[0], good[..., :4], good[:, :0], nan, good + 5):
        with pytest.raises(InputError):
            spotter(wrong)
    for log_probs, other in ((good.float(), state), (sounds(2, 3), state), (good, (state[0][..., :1],))):
        with pytest.raises(InputError, match="the state"):
            spotter(log_probs, other)
