from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from voiceseq.core.ctc import TokenSpan, collapse, ctc_forward, ctc_greedy, ctc_loss, frames_needed
from voiceseq.errors import InputError


def random_log_probs(*shape, seed=0, dtype=torch.double):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).log_softmax(-1)


def brute_force(log_probs, target, blank):
    """log P of a target as the sum over all V^T frame strings that collapse to it."""
    frames, symbols = log_probs.shape
    paths = [path for path in product(range(symbols), repeat=frames) if collapse(path, blank) == target]
    if not paths:
        return torch.tensor(-torch.inf, dtype=log_probs.dtype)
    index = torch.tensor(paths)
    return log_probs[torch.arange(frames), index].sum(1).logsumexp(0)


def padded_batch(seed=0, dtype=torch.double):
    """Rows of different lengths: repeats, an empty target, a single frame; the padding holds rubbish."""
    log_probs = random_log_probs(5, 9, 5, seed=seed, dtype=dtype)
    targets = torch.full((5, 4), -100)
    rows = [[1, 2, 3], [2, 2, 2], [], [4], [1, 1, 2, 2]]
    for row, tokens in enumerate(rows):
        targets[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
    return log_probs, targets, torch.tensor([9, 6, 4, 1, 8]), torch.tensor([3, 3, 0, 1, 4])


def test_the_lectures_collapse_rule():
    assert "".join(collapse("ttt_h_eee___ ___q", "_")) == "the q"
    assert "".join(collapse("ttt_h_eee___ ___qqq__", "_")) == "the q"
    assert collapse([1, 1, 0, 1], 0) == [1, 1]
    assert collapse([0, 0], 0) == []
    assert collapse([], 0) == []


@given(st.lists(st.integers(0, 3)))
def test_collapse_against_the_definition(tokens):
    merged = [t for i, t in enumerate(tokens) if i == 0 or tokens[i - 1] != t]
    assert collapse(tokens, 0) == [t for t in merged if t != 0]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5), st.integers(2, 4), st.data())
def test_forward_is_the_sum_over_all_strings(frames, symbols, data):
    blank = data.draw(st.integers(0, symbols - 1))
    tokens = st.integers(0, symbols - 1).filter(lambda t: t != blank)
    target = data.draw(st.lists(tokens, max_size=frames + 1))
    log_probs = random_log_probs(frames, symbols, seed=data.draw(st.integers(0, 99)))
    ours = ctc_forward(log_probs[None], torch.tensor([target], dtype=torch.long).view(1, -1), blank=blank)[0]
    torch.testing.assert_close(ours, brute_force(log_probs, target, blank))


def test_probabilities_of_all_targets_add_up_to_one():
    log_probs = random_log_probs(4, 3)
    targets = [list(t) for size in range(5) for t in product([1, 2], repeat=size)]
    total = sum(ctc_forward(log_probs[None], torch.tensor([t], dtype=torch.long).view(1, -1)).exp() for t in targets)
    torch.testing.assert_close(total, torch.ones(1, dtype=torch.double))


def test_gradient_by_finite_differences():
    logits = torch.randn(5, 9, 5, dtype=torch.double, generator=torch.Generator().manual_seed(1), requires_grad=True)
    _, targets, input_lengths, target_lengths = padded_batch()

    def forward(logits):
        return ctc_forward(logits.log_softmax(-1), targets, input_lengths, target_lengths)

    assert torch.autograd.gradcheck(forward, (logits,))


@pytest.mark.parametrize("blank", [0, 4])
def test_loss_forward_and_torch_agree_in_value_and_gradient(blank):
    log_probs, targets, input_lengths, target_lengths = padded_batch()
    targets = targets if blank == 0 else targets - 1
    results = []
    for kind in ("ours", "readable", "torch"):
        logits = log_probs.clone().requires_grad_()
        scores = logits.log_softmax(-1)
        if kind == "ours":
            loss, skipped = ctc_loss(scores, targets, input_lengths, target_lengths, blank)
            assert skipped == 0
        elif kind == "readable":
            rows = -ctc_forward(scores, targets, input_lengths, target_lengths, blank)
            loss = (rows / target_lengths.clamp(min=1)).mean()
        else:
            loss = functional.ctc_loss(
                scores.transpose(0, 1), targets.clamp(min=0), input_lengths, target_lengths, blank
            )
        results.append((loss.detach(), torch.autograd.grad(loss, logits)[0]))
    for loss, gradient in results[1:]:
        torch.testing.assert_close(loss, results[0][0])
        torch.testing.assert_close(gradient, results[0][1])


def test_long_input_in_single_precision():
    log_probs = random_log_probs(1, 400, 20, dtype=torch.float)
    targets = torch.randint(1, 20, (1, 60), generator=torch.Generator().manual_seed(0))
    expected = functional.ctc_loss(
        log_probs.double().transpose(0, 1), targets, torch.tensor([400]), torch.tensor([60]), reduction="none"
    )
    torch.testing.assert_close(-ctc_forward(log_probs, targets).double(), expected, rtol=1e-5, atol=0)


def test_half_precision_is_computed_in_single():
    log_probs = random_log_probs(2, 50, 8, dtype=torch.float).bfloat16()
    targets = torch.tensor([[1, 2, 3], [4, 4, 5]])
    expected = ctc_loss(log_probs.float(), targets).loss
    torch.testing.assert_close(ctc_loss(log_probs, targets).loss, expected)
    torch.testing.assert_close(-(ctc_forward(log_probs, targets) / 3).mean(), expected)


def test_padded_is_alone():
    log_probs, targets, input_lengths, target_lengths = padded_batch()
    together = ctc_forward(log_probs, targets, input_lengths, target_lengths)
    losses = []
    for row, (frames, tokens) in enumerate(zip(input_lengths.tolist(), target_lengths.tolist(), strict=True)):
        alone = (log_probs[row : row + 1, :frames], targets[row : row + 1, :tokens])
        torch.testing.assert_close(ctc_forward(*alone)[0], together[row])
        losses.append(ctc_loss(*alone).loss)
    loss = ctc_loss(log_probs, targets, input_lengths, target_lengths).loss
    torch.testing.assert_close(loss, torch.stack(losses).mean())


def test_padding_gets_no_gradient():
    log_probs, targets, input_lengths, target_lengths = padded_batch()
    log_probs.requires_grad_()
    for loss in (
        ctc_loss(log_probs, targets, input_lengths, target_lengths).loss,
        ctc_forward(log_probs, targets, input_lengths, target_lengths).sum(),
    ):
        (gradient,) = torch.autograd.grad(loss, log_probs)
        for row, frames in enumerate(input_lengths.tolist()):
            assert not gradient[row, frames:].any()
            assert gradient[row, :frames].any()


def test_empty_target_is_all_blanks():
    log_probs = random_log_probs(2, 6, 4)
    empty = torch.zeros(2, 0, dtype=torch.long)
    expected = log_probs[:, :, 0].sum(1)
    torch.testing.assert_close(ctc_forward(log_probs, empty), expected)
    torch.testing.assert_close(ctc_loss(log_probs, empty).loss, -expected.mean())


def test_frames_needed_counts_repeats():
    targets = torch.tensor([[1, 1, 1, 2], [1, 2, 1, 2], [3, 3, 3, 3], [5, 5, 9, 9]])
    assert frames_needed(targets, torch.tensor([4, 4, 0, 1])).tolist() == [6, 4, 0, 1]


def impossible_batch():
    """Rows 0 and 2 fit exactly; row 1 lacks one frame for its repeat, row 3 has more tokens than frames."""
    log_probs = random_log_probs(4, 6, 5)
    targets = torch.tensor([[1, 2, 2, 0], [1, 1, 3, 0], [1, 2, 3, 4], [1, 2, 3, 4]])
    return log_probs, targets, torch.tensor([4, 3, 4, 2]), torch.tensor([3, 3, 4, 4])


def test_impossible_targets_are_an_error_that_names_rows_and_lengths():
    with pytest.raises(InputError) as error:
        ctc_loss(*impossible_batch())
    message = str(error.value)
    assert "2 of 4" in message
    assert "row 1: 3 tokens need 4 frames, has 3" in message
    assert "row 3: 4 tokens need 4 frames, has 2" in message
    assert "row 0" not in message
    assert "row 2" not in message


def test_impossible_targets_skipped_are_counted_and_not_in_the_mean():
    log_probs, targets, input_lengths, target_lengths = impossible_batch()
    log_probs.requires_grad_()
    loss, skipped = ctc_loss(log_probs, targets, input_lengths, target_lengths, impossible="skip")
    kept = torch.tensor([0, 2])
    expected = ctc_loss(log_probs[kept], targets[kept], input_lengths[kept], target_lengths[kept])
    assert skipped == 2
    assert expected.skipped == 0
    torch.testing.assert_close(loss, expected.loss)
    (gradient,) = torch.autograd.grad(loss, log_probs)
    assert [bool(row.any()) for row in gradient] == [True, False, True, False]
    readable = ctc_forward(log_probs, targets, input_lengths, target_lengths)
    assert torch.isinf(readable).tolist() == [False, True, False, True]


def test_all_rows_skipped():
    log_probs = random_log_probs(2, 1, 3).requires_grad_()
    loss, skipped = ctc_loss(log_probs, torch.tensor([[1, 2], [1, 1]]), impossible="skip")
    assert (float(loss.detach()), skipped) == (0.0, 2)
    loss.backward()
    assert not log_probs.grad.any()


def test_greedy_collapses_with_spans_and_scores():
    path = [1, 1, 0, 1, 2, 2, 0, 0]
    probs = torch.full((2, 8, 3), 0.1, dtype=torch.double)
    probs[:, range(8), path] = 0.8
    probs[:, 1, 1], probs[:, 1, 0] = 0.6, 0.3
    log_probs = probs.log()
    first, second = ctc_greedy(log_probs, torch.tensor([8, 5]))
    assert first.tokens == [1, 1, 2]
    assert [tuple(span)[:3] for span in first.spans] == [(1, 0, 2), (1, 3, 4), (2, 4, 6)]
    assert [span.confidence for span in first.spans] == pytest.approx([0.7, 0.8, 0.8])
    assert first.score == pytest.approx(float(probs.amax(-1).log()[0].sum()))
    assert second.tokens == [1, 1, 2]
    assert second.spans[-1] == TokenSpan(2, 4, 5, pytest.approx(0.8))


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(0, 3))
def test_greedy_is_the_best_string_whether_alone_or_padded(seed, blank):
    log_probs = random_log_probs(3, 12, 4, seed=seed)
    lengths = torch.tensor([12, 1, 7])
    for row, result in enumerate(ctc_greedy(log_probs, lengths, blank)):
        alone = log_probs[row, : lengths[row]]
        assert result.tokens == collapse(alone.argmax(-1).tolist(), blank)
        assert result.score == pytest.approx(float(alone.amax(-1).sum()))
        assert ctc_greedy(alone[None], blank=blank) == [result]
        for span in result.spans:
            assert set(alone[span.start : span.end].argmax(-1).tolist()) == {span.token}
            assert span.confidence == pytest.approx(float(alone[span.start : span.end, span.token].exp().mean()))


def test_greedy_takes_probabilities_of_zero():
    log_probs = functional.one_hot(torch.tensor([[1, 0, 2]]), 3).float().log()
    assert ctc_greedy(log_probs)[0].spans == [TokenSpan(1, 0, 1, 1.0), TokenSpan(2, 2, 3, 1.0)]


GOOD = random_log_probs(2, 5, 4)
TARGETS = torch.tensor([[1, 2], [3, 1]])


@pytest.mark.parametrize("function", [ctc_loss, ctc_forward])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((GOOD[0], TARGETS), "shape"),
        ((GOOD[:, :0], TARGETS), "at least one"),
        ((GOOD.long(), TARGETS), "dtype"),
        ((GOOD * torch.nan, TARGETS), "NaN; .*diverged: lower the learning rate or clip"),
        ((GOOD - torch.inf, TARGETS), "infinite"),
        ((GOOD + 3, TARGETS), "log_softmax"),
        ((GOOD, TARGETS[:1]), "targets has shape"),
        ((GOOD, TARGETS.float()), "targets has shape"),
        ((GOOD, TARGETS[0]), "targets has shape"),
        ((GOOD, TARGETS + 1), "row 1 holds 4"),
        ((GOOD, TARGETS - 1), "except the blank 0"),
        ((GOOD, TARGETS - 2), "row 0 holds -1"),
        ((GOOD, TARGETS, torch.tensor([5, 0])), "at least 1 frame"),
        ((GOOD, TARGETS, torch.tensor([5, 6])), "only 5 frames"),
        ((GOOD, TARGETS, torch.tensor([5])), "lengths has shape"),
        ((GOOD, TARGETS, None, torch.tensor([2, 3])), r"target_lengths\[1\] is 3"),
        ((GOOD, TARGETS, None, torch.tensor([-1, 2])), r"target_lengths\[0\] is -1"),
        ((GOOD, TARGETS, None, torch.tensor([2])), "target_lengths has shape"),
        ((GOOD, TARGETS, None, torch.tensor([2.0, 2.0])), "target_lengths has shape"),
        ((GOOD, TARGETS, None, None, 4), "blank is 4"),
    ],
)
def test_bad_input(function, arguments, message):
    with pytest.raises(InputError, match=message):
        function(*arguments)


def test_unknown_policy():
    with pytest.raises(InputError, match="'error' or 'skip'"):
        ctc_loss(GOOD, TARGETS, impossible="zero")
