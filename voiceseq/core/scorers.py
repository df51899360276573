"""Scorers: everything that has an opinion on the next token, behind one contract.

All that search knows of a model is::

    state = scorer.start(batch)                       # one row an utterance
    log_probs, state = scorer.score(tokens, state)    # tokens (rows,) -> log_probs (rows, vocabulary)
    state = scorer.select(state, index)               # row i of the new state is row index[i] of the old one

``tokens`` holds the last token of each hypothesis, the start symbol at first. A state is None, a tensor whose leading
dimension is rows, or a tuple of such states. A weighted list of scorers is a decoding: attention decoders, language
models, CTC prefixes, hotwords, length and coverage all add up in the same beam.

``scorer.bound`` is the most that one token can add (0 for log-probabilities); search uses it to know when to stop.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from voiceseq.core.masks import check_lengths, lengths_mask
from voiceseq.errors import InputError

State = Any  # None, a tensor (rows, ...), or a (named) tuple of states
Step = Callable[..., tuple[Tensor, State]]  # (tokens, state) or (tokens, state, memory)
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def select_rows(state: State, index: Tensor) -> State:
    """Row i of every tensor of the nest becomes its row ``index[i]``; ``index (rows,)`` long."""
    return _map_rows(lambda tensors: tensors[0].index_select(0, index), state)


def join_rows(states: Sequence[State]) -> State:
    """The rows of several states of equal structure, one after the other."""
    return _map_rows(torch.cat, *states)


def _map_rows(function: Callable[[list[Tensor]], Tensor], *states: State) -> State:
    first = states[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return function(list(states))
    if isinstance(first, tuple):
        parts = [_map_rows(function, *part) for part in zip(*states, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    raise InputError(f"a scorer's state holds a {type(first).__name__}; tensors in nested tuples were wanted")


class Scorer(Protocol):
    """The contract; inherit from it to get ``select`` and ``bound``."""

    bound: float = 0.0

    def start(self, batch: int) -> State:
        """The state of ``batch`` rows before the start symbol."""
        ...

    def score(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read ``tokens (rows,)``; give ``log_probs (rows, vocabulary)`` of the next ones, and the new state."""
        ...

    def select(self, state: State, index: Tensor) -> State:
        """Reorder, repeat or drop rows."""
        return select_rows(state, index)


def check_rows(state: State, batch: int) -> None:
    """Raise when a tensor of a start state has another number of rows than there are utterances."""
    if isinstance(state, Tensor) and (state.dim() == 0 or state.shape[0] != batch):
        raise InputError(f"a start state has shape {tuple(state.shape)}; a batch of {batch} wants ({batch}, ...)")
    if isinstance(state, tuple):
        for part in state:
            check_rows(part, batch)


class StepScorer(Scorer):
    """A decoder's or language model's ``step(tokens (rows,), state) -> (log_probs, state)`` as a scorer.

    ``start_state``: the nest of tensors with one row an utterance, or a function of the batch size where the start is
    the same for all. ``memory``: a nest that all hypotheses of an utterance share and that never changes, as the
    encoder's frames and their mask; ``step(tokens, state, memory)`` gets it with one row an *utterance*; the rows come
    utterance by utterance in equal number: ``tokens.view(utterances, -1)`` groups them, and attention reads the frames
    with several queries an utterance. Memory may be kept in the state instead; then it is copied for each hypothesis.
    """

    def __init__(
        self, step: Step, start_state: State | Callable[[int], State] = None, memory: State | None = None
    ) -> None:
        self.step = step
        self.start_state = start_state
        self.memory = memory

    def start(self, batch: int) -> State:
        """Raises InputError when the given state or memory has another number of rows."""
        state = self.start_state(batch) if callable(self.start_state) else self.start_state
        check_rows(state, batch)
        check_rows(self.memory, batch)
        return state if self.memory is None else (state, self.memory, torch.arange(batch))

    def score(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        if self.memory is None:
            return self.step(tokens, state)
        inner, memory, utterance = state
        log_probs, inner = self.step(tokens, inner, memory)
        return log_probs, (inner, memory, utterance)

    def select(self, state: State, index: Tensor) -> State:
        if self.memory is None:
            return select_rows(state, index)
        inner, memory, utterance = state
        before, utterance = utterance, utterance[index]
        left = utterance.unique_consecutive()
        if len(left) != len(before.unique_consecutive()):
            memory = select_rows(self.memory, left)
        return select_rows(inner, index), memory, utterance


class CoverageScorer(Scorer):
    """A decoder plus the coverage penalty of Wu et al. (2016), paid at the end symbol.

    ``penalty = beta * sum_i log(min(sum_j attention_ij, 1))`` over the source frames i and the steps j: nothing is
    paid when each frame was attended to at least once in all. ``attention(state)`` picks the weights
    ``(rows, time)`` of the last step out of the decoder's state; ``lengths (batch,)`` are those of the source.
    """

    def __init__(
        self, scorer: Scorer, attention: Callable[[State], Tensor], lengths: Tensor, size: int, end: int, beta: float
    ) -> None:
        if beta < 0:
            raise InputError(f"the coverage penalty has beta {beta}; give 0 or more")
        self.scorer, self.attention, self.end, self.beta = scorer, attention, end, beta
        self.valid = lengths_mask(check_lengths(lengths, len(lengths), size), size)

    def start(self, batch: int) -> State:
        check_rows(self.valid, batch)
        return self.scorer.start(batch), torch.zeros(self.valid.shape, device=self.valid.device), self.valid

    def score(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        inner, coverage, valid = state
        log_probs, inner = self.scorer.score(tokens, inner)
        coverage = coverage + self.attention(inner)
        # a frame that nobody looked at at all costs log(1e-6), and not infinity
        missing = coverage.clamp(1e-6, 1.0).log().masked_fill(~valid, 0.0).sum(1)
        log_probs = log_probs.clone()
        log_probs[:, self.end] += self.beta * missing.to(log_probs.dtype)
        return log_probs, (inner, coverage, valid)

    def select(self, state: State, index: Tensor) -> State:
        inner, coverage, valid = state
        return self.scorer.select(inner, index), coverage[index], valid[index]


class TokenBonus(Scorer):
    """A fixed ``bonus (vocabulary,)`` for each token: length reward, word insertion bonus, a ban (-inf)."""

    def __init__(self, bonus: Tensor) -> None:
        if bonus.dim() != 1 or not bonus.numel() or bool(bonus.isnan().any()):
            raise InputError(f"a bonus of shape {tuple(bonus.shape)} came; (vocabulary,) without NaN was wanted")
        self.bonus = bonus
        self.bound = max(0.0, float(bonus.max()))

    def start(self, batch: int) -> State:
        return None

    def score(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.bonus.expand(len(tokens), -1), None


def length_bonus(vocabulary: int, end: int) -> TokenBonus:
    """1 a token, 0 for the end."""
    bonus = torch.ones(vocabulary)
    bonus[end] = 0.0
    return TokenBonus(bonus)


def word_bonus(vocabulary: int, end: int, separator: int) -> TokenBonus:
    """1 for each word that a separator or the end closes."""
    bonus = torch.zeros(vocabulary)
    bonus[[separator, end]] = 1.0
    return TokenBonus(bonus)


class Phrases(NamedTuple):
    """An automaton (Aho and Corasick) over phrases: dense, ``nodes x vocabulary``, so meant for hundreds of them."""

    follow: Ints  # (nodes, vocabulary): the longest suffix that begins some phrase
    award: Floats  # (nodes,): tokens of all the phrases that are complete on arrival here
    credit: Floats  # (nodes,): tokens of the unfinished phrase, given in advance and taken back on leaving
    final: Floats  # (nodes,): what the end of the sequence adds: the closing phrase's award less the open credit
    start: int

    @property
    def bound(self) -> float:
        """The most tokens that one step can add."""
        return float(max((self.award + self.credit)[self.follow].max(1) - self.credit))


def phrase_automaton(phrases: Sequence[Sequence[int]], vocabulary: int, separator: int | None = None) -> Phrases:
    """Phrases as token ids; with a ``separator`` they match whole words alone (sequence ends count as separators).

    Each occurrence of each phrase is worth its number of tokens in the end. Raises InputError for an empty phrase or
    a token outside the vocabulary.
    """
    for phrase in phrases:
        if not len(phrase) or min(phrase) < 0 or max(phrase) >= vocabulary:
            raise InputError(f"the phrase {list(phrase)} came; one or more tokens in 0..{vocabulary - 1} were wanted")
    edge = [] if separator is None else [separator]
    children: list[dict[int, int]] = [{}]
    own, credit = [0.0], [0.0]
    for phrase in dict.fromkeys(tuple(phrase) for phrase in phrases):
        node = 0
        for depth, token in enumerate([*edge, *phrase, *edge], start=1 - len(edge)):
            if token not in children[node]:
                children[node][token] = len(children)
                children.append({})
                own.append(0.0)
                credit.append(float(max(depth, 0)))
            node = children[node][token]
        own[node] = float(len(phrase))
    return _with_suffixes(children, np.array(own), np.array(credit), vocabulary, separator)


def _with_suffixes(
    children: list[dict[int, int]], own: Floats, credit: Floats, vocabulary: int, separator: int | None
) -> Phrases:
    follow = np.zeros((len(children), vocabulary), dtype=np.int64)
    award, suffix = own.copy(), [0] * len(children)
    queue = [0]
    for node in queue:  # breadth first: a node's suffix is ready before the node
        if node:
            follow[node] = follow[suffix[node]]
            award[node] += award[suffix[node]]
            if not children[node]:
                credit[node] = credit[suffix[node]]
        for token, child in children[node].items():
            suffix[child] = int(follow[node, token])
            follow[node, token] = child
            queue.append(child)
    if separator is None:
        return Phrases(follow, award, credit, -credit, 0)
    return Phrases(follow, award, credit, award[follow[:, separator]] - credit, int(follow[0, separator]))


class PhraseBooster(Scorer):
    """Hotwords: each token of a phrase adds ``boost``; what an unfinished phrase was given is taken back.

    Nothing is excluded: a sequence without the phrases scores 0 in all. A boost of 1 to 5 nats a token is usual.
    """

    def __init__(
        self,
        phrases: Sequence[Sequence[int]],
        vocabulary: int,
        end: int,
        boost: float = 1.0,
        separator: int | None = None,
    ) -> None:
        automaton = phrase_automaton(phrases, vocabulary, separator)
        self.follow = torch.from_numpy(automaton.follow)
        self.worth = boost * torch.from_numpy(automaton.award + automaton.credit).float()
        self.credit = boost * torch.from_numpy(automaton.credit).float()
        self.final = boost * torch.from_numpy(automaton.final).float()
        self.first, self.end, self.bound = automaton.start, end, max(0.0, boost * automaton.bound)

    def start(self, batch: int) -> State:
        return None

    def score(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        node = torch.full_like(tokens, self.first) if state is None else self.follow[state, tokens]
        gain = self.worth[self.follow[node]] - self.credit[node, None]
        gain[:, self.end] = self.final[node]
        return gain, node


class NgramTable(NamedTuple):
    """A back-off n-gram model as an automaton: contexts are states, words are arcs; log-probabilities are natural.

    The arcs of state s are ``first[s] .. first[s + 1]``, sorted by word; state 0 is the empty context and has an arc
    for every word, in order. A word without an arc costs ``backoff[s]`` and is looked up in ``shorter[s]``.
    """

    first: Ints  # (states + 1,)
    word: Ints  # (arcs,)
    log_prob: Floats  # (arcs,)
    target: Ints  # (arcs,) the state after the word
    backoff: Floats  # (states,)
    shorter: Ints  # (states,)
    begin: int  # the state after <s>
    end: int  # the word </s>
    unknown: int  # the word <unk>


class NgramScorer(Scorer):
    """An n-gram model over the tokens of the search: ``words (vocabulary,)`` gives each token's word in the table.

    Tokens that the model does not know point at ``table.unknown``, the end symbol at ``table.end``.
    """

    def __init__(self, table: NgramTable, words: Tensor) -> None:
        count = int(table.first[1])
        if words.dim() != 1 or not words.numel() or int(words.min()) < 0 or int(words.max()) >= count:
            raise InputError(f"words of shape {tuple(words.shape)} came; (vocabulary,) in 0..{count - 1} was wanted")
        self.words, self.count, self.begin = words.long(), count, table.begin
        self.first, self.word, self.log_prob, self.target, self.backoff, self.shorter = (
            torch.from_numpy(array) for array in table[:6]
        )
        owner = torch.repeat_interleave(torch.arange(len(self.backoff)), self.first.diff())
        self.key = owner * count + self.word  # ascending: arcs are sorted by state and word

    def start(self, batch: int) -> State:
        return None

    def score(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        context = torch.full_like(tokens, self.begin) if state is None else self.advance(state, self.words[tokens])
        return self._all_words(context)[:, self.words].float(), context

    def advance(self, context: Tensor, word: Tensor) -> Tensor:
        """``context (rows,)``, ``word (rows,)`` -> the contexts after these words."""
        while True:
            arc = torch.searchsorted(self.key, context * self.count + word).clamp(max=len(self.key) - 1)
            found = self.key[arc] == context * self.count + word
            if bool(found.all()):
                return self.target[arc]
            context = torch.where(found, context, self.shorter[context])

    def _all_words(self, context: Tensor) -> Tensor:
        """``(rows, words)``, from the shortest context up: p(w | s) is the arc's, or backoff(s) p(w | shorter(s))."""
        chain = [context]
        while bool(chain[-1].any()):
            chain.append(self.shorter[chain[-1]])
        log_probs = self.log_prob[: self.count].repeat(len(context), 1)
        for states in reversed(chain[:-1]):
            log_probs += torch.where(states > 0, self.backoff[states], 0.0)[:, None]
            row, arc = self._arcs(states)
            log_probs[row, self.word[arc]] = self.log_prob[arc]
        return log_probs

    def _arcs(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """The rows and the numbers of all the arcs that leave these states, the empty context left out."""
        first = self.first[states]
        count = torch.where(states > 0, self.first[states + 1] - first, 0)
        row = torch.repeat_interleave(torch.arange(len(states)), count)
        offset = torch.arange(len(row)) - (count.cumsum(0) - count)[row]
        return row, first[row] + offset
