"""The CRF against brute force: every sequence of tags, one by one."""

from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from voiceseq.core.crf import CRF
from voiceseq.errors import InputError


def random_crf(tags: int, seed: int = 0, **blocked: object) -> CRF:
    torch.manual_seed(seed)
    crf = CRF(tags, **blocked).double()  # type: ignore[arg-type]
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


def plain_score(crf: CRF, emissions: Tensor, tags: tuple[int, ...]) -> float:
    """The equation of the module, word for word."""
    total = float((crf.start[tags[0]] + crf.end[tags[-1]]).detach())
    total += sum(float(emissions[t, tag]) for t, tag in enumerate(tags))
    return total + sum(float(crf.transitions[a, b].detach()) for a, b in pairwise(tags))


def all_scores(crf: CRF, emissions: Tensor) -> dict[tuple[int, ...], float]:
    time, tags = emissions.shape
    return {path: plain_score(crf, emissions, path) for path in product(range(tags), repeat=time)}


@settings(max_examples=25, deadline=None)
@given(tags=st.integers(1, 4), lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3), seed=st.integers(0, 999))
def test_everything_is_what_brute_force_says(tags: int, lengths: list[int], seed: int) -> None:
    crf = random_crf(tags, seed)
    emissions = torch.randn(len(lengths), 4, tags, dtype=torch.double)
    given_tags = torch.randint(tags, (len(lengths), 4))
    sizes = torch.tensor(lengths)
    normalisers, scores = crf.log_partition(emissions, sizes), crf.score(emissions, given_tags, sizes)
    marginals, paths, lost = crf.marginals(emissions, sizes), crf.decode(emissions, sizes), 0.0
    for row, length in enumerate(lengths):
        every = all_scores(crf, emissions[row, :length])
        normaliser = torch.tensor(list(every.values())).double().logsumexp(0)
        torch.testing.assert_close(normalisers[row], normaliser, rtol=1e-5, atol=1e-6)
        wanted = every[tuple(given_tags[row, :length].tolist())]
        assert float(scores[row]) == pytest.approx(wanted)
        lost += float(normalisers[row]) - wanted
        assert tuple(paths[row].tags) == max(every, key=every.__getitem__)
        assert paths[row].score == pytest.approx(max(every.values()))
        for t, k in product(range(length), range(tags)):
            share = sum(torch.tensor(s - float(normaliser)).exp() for path, s in every.items() if path[t] == k)
            assert float(marginals[row, t, k]) == pytest.approx(float(share), abs=1e-5)
        assert not marginals[row, length:].any()
    assert float(crf(emissions, given_tags, sizes).detach()) == pytest.approx(lost / sum(lengths))


def test_gradients_are_those_of_finite_differences() -> None:
    crf = random_crf(3)
    emissions = torch.randn(2, 4, 3, dtype=torch.double, requires_grad=True)
    tags, lengths = torch.randint(3, (2, 4)), torch.tensor([4, 2])
    assert torch.autograd.gradcheck(lambda e, *_: crf(e, tags, lengths), (emissions, *crf.parameters()))


def test_padding_changes_nothing_whatever_stands_in_it() -> None:
    crf = random_crf(3)
    emissions = torch.randn(2, 5, 3, dtype=torch.double)
    tags, lengths = torch.randint(3, (2, 5)), torch.tensor([5, 3])
    loss = crf(emissions, tags, lengths)
    tags[1, 3:], emissions[1, 3:] = 99, 1e6
    torch.testing.assert_close(crf(emissions, tags, lengths), loss)
    alone = crf(emissions[:1], tags[:1]) * 5 + crf(emissions[1:, :3], tags[1:, :3]) * 3
    torch.testing.assert_close(loss * 8, alone)
    assert crf.decode(emissions, lengths)[1].tags == crf.decode(emissions[1:, :3])[0].tags


def test_what_is_blocked_is_never_decoded_and_has_no_share() -> None:
    crf = random_crf(3, blocked=[(0, 2), (2, 2)], blocked_starts=[2])
    emissions = torch.zeros(1, 3, 3, dtype=torch.double)
    emissions[:, :2, 2] = 50.0  # all for the tag that can only follow tag 1
    assert crf.decode(emissions)[0].tags[:2] == [1, 2]
    marginals = crf.marginals(emissions)[0]
    assert float(marginals[0, 2]) == 0
    assert float(marginals[1, 2]) == pytest.approx(1)
    wrong = crf(emissions, torch.tensor([[2, 2, 2]]))
    assert 1e3 < float(wrong) < 1e5
    copy = random_crf(3, seed=1)
    copy.load_state_dict(crf.state_dict())  # a bundle keeps what is blocked
    assert copy.decode(emissions) == crf.decode(emissions)


def test_a_crf_without_transitions_is_a_softmax_at_each_place() -> None:
    crf = CRF(4)
    emissions = torch.randn(2, 6, 4)
    tags = torch.randint(4, (2, 6))
    wanted = torch.nn.functional.cross_entropy(emissions.flatten(0, 1), tags.flatten())
    torch.testing.assert_close(crf(emissions, tags), wanted)
    torch.testing.assert_close(crf.marginals(emissions), emissions.softmax(-1))
    assert [path.tags for path in crf.decode(emissions)] == emissions.argmax(-1).tolist()


def test_long_sequences_do_not_overflow() -> None:
    crf = CRF(3)
    emissions = 100 * torch.randn(1, 5000, 3)
    assert crf.log_partition(emissions).isfinite().all()
    assert len(crf.decode(emissions)[0].tags) == 5000


def test_wrong_input_is_named() -> None:
    crf = CRF(3)
    emissions = torch.zeros(2, 4, 3)
    tags = torch.zeros(2, 4, dtype=torch.long)
    with pytest.raises(InputError, match=r"\(batch, time, 3\) was wanted"):
        crf.decode(torch.zeros(2, 4, 5))
    with pytest.raises(InputError, match="tags holds 3"):
        crf(emissions, tags + 3)
    with pytest.raises(InputError, match="tags has shape"):
        crf(emissions, tags[:, :2])
    with pytest.raises(InputError, match="NaN"):
        crf.decode(emissions * torch.nan)
    with pytest.raises(InputError, match=r"lengths\[1\] is 0"):
        crf.decode(emissions, torch.tensor([4, 0]))
    with pytest.raises(InputError, match="tags is 0"):
        CRF(0)
    with pytest.raises(InputError, match="tag 3 is to be blocked"):
        CRF(3, blocked=[(0, 3)])
