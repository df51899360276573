"""Search: the best, or a random, sequence under a weighted list of scorers.

The score of a sequence y is ``sum_k weight_k log p_k(y, end) / |y, end| ** alpha``: alpha 0 is the plain sum, 1 the
mean a token; the end symbol is counted. A hypothesis ends by choosing ``end``; at ``max_length`` tokens it is all that
can follow. Everything is a tensor operation over utterances and beams; an utterance that is done leaves the batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import NamedTuple

import torch
from torch import Tensor

from voiceseq.core.masks import check_sizes
from voiceseq.core.scorers import Scorer, State
from voiceseq.errors import InputError

LEAST_TEMPERATURE = 1e-6  # below it sampling is greedy, and a quotient may be no number
Scorers = Sequence[tuple[Scorer, float]]


@dataclass(frozen=True)
class Hypothesis:
    """A sequence that a search found, without its start and end symbols."""

    tokens: tuple[int, ...]
    score: float  # weighted and length-normalised
    log_probs: tuple[float, ...]  # the sum of each scorer, unweighted
    finished: bool  # False where max_length ended it
    each: tuple[float, ...] = field(default=(), compare=False)  # of each token, by the first scorer; from beam_search


class Weighted:
    """The weighted sum of the scorers, and their own log-probabilities."""

    def __init__(self, scorers: Scorers, batch: int) -> None:
        if not scorers:
            raise InputError("no scorers came; give a list of (scorer, weight), e.g. [(decoder, 1.0)]")
        if batch < 1:
            raise InputError(f"a batch of {batch} came; at least one utterance was wanted")
        if not all(math.isfinite(weight) for _, weight in scorers):
            raise InputError(f"the scorers have weights {[weight for _, weight in scorers]}; finite ones were wanted")
        self.scorers = scorers
        # the most that a token can add to a score: nothing bounds what a negative weight rewards
        self.gain = sum(weight * scorer.bound if weight >= 0 else math.inf for scorer, weight in scorers)

    def start(self, batch: int) -> list[State]:
        return [scorer.start(batch) for scorer, _ in self.scorers]

    def score(self, tokens: Tensor, states: list[State]) -> tuple[Tensor, list[Tensor], list[State]]:
        """``tokens (rows,)`` -> the sum ``(rows, vocabulary)``, its parts, the new states."""
        try:
            pairs = [scorer.score(tokens, state) for (scorer, _), state in zip(self.scorers, states, strict=True)]
        except IndexError as error:  # what an embedding says of a token that it does not have
            raise InputError(
                f"a scorer cannot read the tokens {int(tokens.min())} to {int(tokens.max())} ({error}); the start "
                "symbol, and what follows, must be of its vocabulary"
            ) from error
        parts = [log_probs for log_probs, _ in pairs]
        for part in parts:
            if part.dim() != 2 or part.shape != (len(tokens), parts[0].shape[1]) or not part.shape[1]:
                raise InputError(
                    f"scorers gave log-probabilities of shapes {[tuple(part.shape) for part in parts]}; "
                    f"({len(tokens)}, vocabulary) was wanted, one and the same vocabulary of 1 or more for all"
                )
        total = torch.zeros_like(parts[0])
        for part, (_, weight) in zip(parts, self.scorers, strict=True):
            if weight:  # 0 times -inf is not a number
                total = total + weight * part
        return total, parts, [state for _, state in pairs]

    def select(self, states: list[State], index: Tensor) -> list[State]:
        return [scorer.select(state, index) for (scorer, _), state in zip(self.scorers, states, strict=True)]


class _Beams(NamedTuple):
    """Hypotheses in equal number for each utterance, live ones or kept ones."""

    score: Tensor  # (batch, width) double; -inf is an empty place
    parts: Tensor  # (batch, width, scorers) double
    tokens: Tensor  # (batch, width, room for the longest)
    each: Tensor  # as many: the first scorer's log-probability of each token
    length: Tensor  # (batch, width), end included


def _beams(batch: int, width: int, scorers: int, room: int, score: float, device: torch.device) -> _Beams:
    return _Beams(
        torch.full((batch, width), score, dtype=torch.double, device=device),
        torch.zeros(batch, width, scorers, dtype=torch.double, device=device),
        torch.zeros(batch, width, room, dtype=torch.long, device=device),
        torch.zeros(batch, width, room, device=device),
        torch.zeros(batch, width, dtype=torch.long, device=device),
    )


@torch.no_grad()
def beam_search(
    scorers: Scorers,
    batch: int,
    start: int | Tensor,
    end: int,
    *,
    beam: int,
    max_length: int | Tensor,
    min_length: int = 0,
    alpha: float = 0.0,
    nbest: int = 1,
    patience: int | None = 1,
) -> list[list[Hypothesis]]:
    """The ``nbest`` best sequences of each of ``batch`` utterances, best first.

    ``start``: the start symbol, or one an utterance ``(batch,)``; ``max_length``: the most tokens, end not counted,
    one number or one an utterance. At each step the ``beam`` best continuations survive; those that end leave the beam
    and are kept. ``beam=1`` is greedy search. An utterance stops when no live hypothesis can beat the ``nbest`` kept
    ones within ``patience`` more tokens, each adding at most the scorers' ``bound`` (0 for log-probabilities). With
    alpha 0 and bounds of 0 that loses nothing; otherwise ``patience=None`` looks ahead to ``max_length``: slower, and
    loses nothing. Where no sequence is possible (all -inf) one unfinished empty hypothesis of score -inf is given.

    A beam wider than the vocabulary is no mistake: with room for all strings nothing is ever dropped and the best of
    all is found, which is how the search is proved.

    Raises InputError for a beam that is no whole number of 1 or more, a start or end symbol outside the vocabulary,
    NaN from a scorer, an empty vocabulary or disagreeing scorers.
    """
    model = Weighted(scorers, batch)
    limit = _check_limits(batch, beam, nbest, max_length, min_length, alpha, patience)
    tokens, states = _first_tokens(start, batch), model.start(batch)
    active, room = torch.arange(batch, device=tokens.device), int(limit.max()) + 1
    live = _beams(batch, 1, len(scorers), room, 0.0, tokens.device)
    kept = _beams(batch, nbest, len(scorers), room, -math.inf, tokens.device)
    for step in range(room):
        total, parts, states = model.score(tokens.flatten(), states)
        if not step:
            _check_start(tokens, total.shape[1])
        scores = _continuations(live.score, total, step, end, min_length, limit[active])
        top, index = scores.flatten(1).topk(min(beam, scores[0].numel()), 1)
        if not bool((top < math.inf).all()):  # topk puts NaN first
            raise InputError("a scorer gave NaN or +inf; log-probabilities were wanted: look at the model's weights")
        source, tokens = index // total.shape[1], index % total.shape[1]
        grown = _extend(live, source, tokens, parts, step)
        live = grown._replace(score=top.masked_fill(tokens == end, -math.inf))
        ended = grown._replace(score=(top / (step + 1) ** alpha).masked_fill(tokens != end, -math.inf))
        _keep(kept, active, ended)
        ahead = limit[active] - step if patience is None else (limit[active] - step).clamp(max=patience)
        hope = _bound(live.score.amax(1), model.gain, step + 1, ahead, alpha)
        going = ~((hope <= kept.score[active, -1]) | (live.score == -math.inf).all(1) | (limit[active] == step))
        if not bool(going.any()):
            break
        rows = torch.arange(len(active), device=active.device)[:, None] * scores.shape[1] + source
        states = model.select(states, rows[going].flatten())
        active, live, tokens = active[going], _Beams(*(one[going] for one in live)), tokens[going]
    return _hypotheses(kept, limit)


def check_beam(beam: int, nbest: int) -> None:
    """Raise when the width of a search, or the number of its results, is no whole number of at least 1."""
    if not all(isinstance(number, Integral) and number > 0 for number in (beam, nbest)):
        raise InputError(f"beam {beam} and nbest {nbest} came; both want to be whole numbers of 1 or more")


def _check_limits(
    batch: int,
    beam: int,
    nbest: int,
    max_length: int | Tensor,
    min_length: int,
    alpha: float,
    patience: int | None,
) -> Tensor:
    """The settings of a search; ``max_length`` as ``(batch,)``."""
    check_beam(beam, nbest)
    check_sizes(0, min_length=min_length, patience=0 if patience is None else patience)
    if not (0 <= alpha < math.inf):
        raise InputError(f"alpha {alpha} came; 0 (no length normalisation) or more was wanted, e.g. 0.7")
    limit = _whole("max_length", max_length)
    if limit.is_floating_point() or limit.dim() > 1 or (limit.dim() == 1 and len(limit) != batch):
        raise InputError(f"max_length of shape {tuple(limit.shape)} came; one whole number or ({batch},) was wanted")
    if int(limit.min()) < min_length:
        raise InputError(f"max_length {int(limit.min())} came with min_length {min_length}; it may not be less")
    return limit.expand(batch)


def _whole(name: str, value: int | Tensor) -> Tensor:
    if not isinstance(value, Integral | Tensor):
        raise InputError(f"{name} is {value!r}; a whole number was wanted, or a tensor with one an utterance")
    return torch.as_tensor(value)


def _first_tokens(start: int | Tensor, batch: int) -> Tensor:
    tokens = _whole("start", start)
    if tokens.is_floating_point() or tokens.dim() > 1 or (tokens.dim() == 1 and len(tokens) != batch):
        raise InputError(f"start of shape {tuple(tokens.shape)} came; one token or ({batch},) tokens were wanted")
    if int(tokens.min()) < 0:
        raise InputError(f"the start symbol {int(tokens.min())} came; 0 or more was wanted")
    return tokens.long().expand(batch)


def _check_start(start: Tensor, vocabulary: int) -> None:
    if int(start.max()) >= vocabulary:
        raise InputError(
            f"the start symbol {int(start.max())} came; one of the {vocabulary} tokens of the scorers was wanted"
        )


def _check_end(end: int, vocabulary: int) -> None:
    if not 0 <= end < vocabulary:
        raise InputError(f"the end symbol {end} came; one of the {vocabulary} tokens of the scorers was wanted")


def _continuations(score: Tensor, total: Tensor, step: int, end: int, min_length: int, limit: Tensor) -> Tensor:
    """``(batch, width, vocabulary)``: the score of each live hypothesis with each token that may follow it."""
    _check_end(end, total.shape[1])
    scores = score[..., None] + total.double().view(*score.shape, -1)
    scores.masked_fill_((score == -math.inf)[..., None], -math.inf)
    if step < min_length:
        scores[..., end] = -math.inf
    last = limit == step
    if bool(last.any()):
        closing = scores[last, :, end]
        scores[last] = -math.inf
        scores[last, :, end] = closing
    return scores


def _extend(live: _Beams, source: Tensor, tokens: Tensor, parts: list[Tensor], step: int) -> _Beams:
    """Each chosen ``tokens (batch, new width)`` continues the hypothesis ``source (batch, new width)``."""
    row = torch.arange(len(source), device=source.device)[:, None]
    chosen = torch.stack([part.view(*live.score.shape, -1)[row, source, tokens] for part in parts], -1)
    history, each = live.tokens[row, source], live.each[row, source]
    history[..., step], each[..., step] = tokens, chosen[..., 0]
    return _Beams(live.score, live.parts[row, source] + chosen, history, each, torch.full_like(tokens, step + 1))


def _keep(kept: _Beams, active: Tensor, ended: _Beams) -> None:
    """In place: the best of what was kept for the utterances ``active`` and of what ended now."""
    if not bool((ended.score > -math.inf).any()):
        return
    both = [torch.cat([old[active], new], 1) for old, new in zip(kept, ended, strict=True)]
    _, index = both[0].topk(kept.score.shape[1], 1)
    row = torch.arange(len(active), device=active.device)[:, None]
    for old, new in zip(kept, both, strict=True):
        old[active] = new[row, index]


def _bound(score: Tensor, gain: float, length: int, ahead: Tensor, alpha: float) -> Tensor:
    """The most that live hypotheses of ``score (batch,)`` can come to in ``ahead`` more tokens."""
    most = score + torch.where(ahead > 0, gain * ahead, 0.0)
    # a negative sum looks best over many tokens, a positive one over few
    return most / torch.where(most < 0, length + ahead, length + 1) ** alpha


def _hypotheses(kept: _Beams, limit: Tensor) -> list[list[Hypothesis]]:
    score, parts, tokens, each, length = (one.tolist() for one in kept)
    nothing = Hypothesis((), -math.inf, (-math.inf,) * kept.parts.shape[2], False)
    return [
        [
            Hypothesis(
                tuple(tokens[b][k][: length[b][k] - 1]),
                score[b][k],
                tuple(parts[b][k]),
                length[b][k] <= most,
                tuple(each[b][k][: length[b][k] - 1]),
            )
            for k in range(len(score[b]))
            if score[b][k] > -math.inf
        ]
        or [nothing]
        for b, most in enumerate(limit.tolist())
    ]


def greedy(
    scorers: Scorers, batch: int, start: int | Tensor, end: int, *, max_length: int | Tensor, min_length: int = 0
) -> list[Hypothesis]:
    """The most probable token at each step: a beam of one. One hypothesis an utterance."""
    found = beam_search(scorers, batch, start, end, beam=1, max_length=max_length, min_length=min_length)
    return [best[0] for best in found]


@torch.no_grad()
def score_sequence(
    scorers: Scorers, sequences: Sequence[Sequence[int]], start: int | Tensor, end: int | None, *, alpha: float = 0.0
) -> list[Hypothesis]:
    """Score given sequences, one an utterance, exactly as ``beam_search`` would: what error analysis compares.

    ``end=None``: the sequences are open, no end symbol is scored. Raises InputError for a token outside the vocabulary.
    """
    batch = len(sequences)
    model = Weighted(scorers, batch)
    closed = [[*sequence, *([] if end is None else [end])] for sequence in sequences]
    tokens, states = _first_tokens(start, batch), model.start(batch)
    sums = torch.zeros(batch, 1 + len(scorers), dtype=torch.double)
    for step in range(max(len(sequence) for sequence in closed)):
        total, parts, states = model.score(tokens, states)
        if not step:
            _check_start(tokens, total.shape[1])
        going = torch.tensor([step < len(sequence) for sequence in closed])
        tokens = torch.tensor([sequence[step] if step < len(sequence) else 0 for sequence in closed])
        if int(tokens.min()) < 0 or int(tokens.max()) >= total.shape[1]:
            raise InputError(f"a sequence holds tokens outside 0..{total.shape[1] - 1}: is it the model's vocabulary?")
        chosen = torch.stack([part.gather(1, tokens[:, None])[:, 0].double() for part in (total, *parts)], 1)
        sums += torch.where(going[:, None], chosen, 0.0)
    if bool(sums.isnan().any()):
        raise InputError("a scorer gave NaN; log-probabilities were wanted: look at the model's weights")
    return [
        Hypothesis(tuple(sequence), row[0] / max(1, len(tokens)) ** alpha, tuple(row[1:]), end is not None)
        for sequence, tokens, row in zip(sequences, closed, sums.tolist(), strict=True)
    ]


@torch.no_grad()
def sample(
    scorers: Scorers,
    batch: int,
    start: int | Tensor,
    end: int | None,
    *,
    max_length: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> list[Hypothesis]:
    """One random sequence an utterance, token by token from ``softmax(score / temperature)``.

    ``top_k``: among the k most probable tokens alone; ``top_p``: among the fewest most probable ones that hold a mass
    of p (of what top_k left). ``end=None``: no end symbol, always ``max_length`` tokens. Deterministic under a seeded
    ``generator``; the random stream is shared by the batch. The scores returned are the model's own, at temperature 1.
    """
    model = Weighted(scorers, batch)
    _check_sampling(temperature, top_k, top_p)
    limit = _check_limits(batch, 1, 1, max_length, 0, 0.0, None)
    tokens, states = _first_tokens(start, batch), model.start(batch)
    history: list[Tensor] = []
    sums = torch.zeros(batch, 1 + len(scorers), dtype=torch.double)
    ended = torch.zeros(batch, dtype=torch.bool)
    for step in range(int(limit.max()) + (end is not None)):
        total, parts, states = model.score(tokens, states)
        if not step:
            _check_start(tokens, total.shape[1])
        if end is not None:
            _check_end(end, total.shape[1])
        sharp = (total - total.amax(-1, keepdim=True)) / max(temperature, LEAST_TEMPERATURE)
        tokens = _draw(sharp, top_k, top_p, generator)
        if end is not None:
            tokens = torch.where(ended | (limit == step), end, tokens)
        chosen = torch.stack([part.gather(1, tokens[:, None])[:, 0].double() for part in (total, *parts)], 1)
        sums += torch.where(ended[:, None], 0.0, chosen)
        history.append(tokens)
        ended = ended | (tokens == end) if end is not None else ended
        if bool(ended.all()):
            break
    drawn = torch.stack(history, 1).tolist() if history else [[] for _ in range(batch)]
    return [_cut(row, end, max_length, values) for row, values in zip(drawn, sums.tolist(), strict=True)]


def _check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    if not 0 < temperature < math.inf:
        raise InputError(f"temperature {temperature} came; more than 0 was wanted (greedy() is the limit at 0)")
    if top_k is not None:
        check_sizes(top_k=top_k)
    if top_p is not None and not 0 < top_p <= 1:
        raise InputError(f"top_p {top_p} came; more than 0 and at most 1 was wanted")


def _draw(logits: Tensor, top_k: int | None, top_p: float | None, generator: torch.Generator | None) -> Tensor:
    """One token ``(rows,)`` of each row of ``logits (rows, vocabulary)``."""
    if not bool((logits.amax(1).abs() < math.inf).all()):
        raise InputError("a scorer gave NaN, +inf or -inf for all tokens; log-probabilities were wanted")
    logits, order = logits.sort(1, descending=True)
    if top_k is not None:
        logits = logits[:, :top_k]
    probs = logits.double().softmax(1)
    if top_p is not None:
        before = probs.cumsum(1) - probs
        probs = probs.masked_fill(before >= top_p, 0.0)
    return order.gather(1, torch.multinomial(probs, 1, generator=generator))[:, 0]


def _cut(tokens: list[int], end: int | None, max_length: int, sums: list[float]) -> Hypothesis:
    length = tokens.index(end) if end is not None else len(tokens)
    return Hypothesis(tuple(tokens[:length]), sums[0], tuple(sums[1:]), end is not None and length < max_length)
