"""The inner loops of CTC prefix beam search, compiled by numba; imported by `voiceseq.core.prefix` at its first use.

A prefix is a node of a tree: its parent, its last symbol, and what the fusion has added to it so far. A frame moves a
beam of nodes to the next one; everything is in log space.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from voiceseq.core.scorers import Floats, Ints

Flags = NDArray[np.bool_]
Records = Any  # arrays of NODE or PLACE
compiled: Any = njit(cache=True, nogil=True)
inlined: Any = njit(cache=True, nogil=True, inline="always")


class FusionArrays(NamedTuple):
    """What depends on the prefix alone: n-gram (see `NgramTable`), spelling trie, phrases (see `Phrases`), weights."""

    active: bool  # False: nothing is fused
    ngram: bool
    first: Ints
    word: Ints
    log_prob: Floats
    target: Ints
    backoff: Floats
    shorter: Ints
    begin: int
    end: int
    unknown: int
    token_word: Ints  # (vocabulary,): the word of each token, where tokens are words
    spell_first: Ints  # (nodes + 1,): the trie's arcs, as in the n-gram table
    spell_token: Ints
    spell_target: Ints
    spell_word: Ints  # (nodes,): the word spelt here, or -1
    ahead: Floats  # (nodes + 1,): what is added to a word before it is complete; the last one for unknown words
    separator: int  # -1: tokens are words
    follow: Ints
    award: Floats
    credit: Floats
    final: Floats
    origin: int
    weight: float
    penalty: float
    bonus: float
    boost: float


# All prefixes met so far, node 0 the empty one. `child`: the newest child, -1 for none; `sibling`: the next older child
# of the same parent; `slot`: the place in the beam, -1 when not there; `extra`: what is added to its log P.
NODE = np.dtype(
    [(name, np.int64) for name in ("parent", "symbol", "child", "sibling", "context", "spelt", "phrase", "slot")]
    + [("extra", np.float64)]
)
# A live prefix. `source`: the place in the last frame's beam of the prefix itself (`token` is -1), or of its parent
# (`token` was added); `blank`, `symbol`: log P of the paths that end in a blank, and in its last symbol; `key`: equal
# for prefixes whose future is the same, by their last symbol and all that the fusion remembers of them.
PLACE = np.dtype(
    [(name, np.int64) for name in ("node", "source", "token", "key")]
    + [(name, np.float64) for name in ("blank", "symbol", "score")]
)
NODES, LIVE, WORST, SPILT = 0, 1, 2, 3  # counters: nodes in use, places filled, the worst once all are; spilt ones


@inlined
def _logaddexp(a: float, b: float) -> float:
    if a < b:
        a, b = b, a
    if b == -math.inf:
        return a
    return a + math.log1p(math.exp(b - a))


@compiled
def _arc(first: Ints, label: Ints, state: int, wanted: int) -> int:
    """The arc of ``state`` that carries the label, or -1."""
    low, high = first[state], first[state + 1]
    end = high
    while low < high:
        middle = (low + high) // 2
        if label[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < end and label[low] == wanted else -1


@inlined
def _read_word(f: FusionArrays, context: int, word: int) -> tuple[float, int]:
    """The weighted n-gram score and the bonus of a word, and the context after it."""
    if not f.ngram:
        return f.bonus, context
    total = f.penalty if word == f.unknown else 0.0
    while True:
        arc = word if context == 0 else _arc(f.first, f.word, context, word)
        if arc >= 0:
            return f.weight * (total + f.log_prob[arc]) + f.bonus, f.target[arc]
        total += f.backoff[context]
        context = f.shorter[context]


@inlined
def _close_word(f: FusionArrays, context: int, spelt: int) -> tuple[float, int]:
    """A word is complete: its own score in place of what was added ahead."""
    word = f.spell_word[spelt] if spelt > 0 else -1
    gain, context = _read_word(f, context, word if word >= 0 else f.unknown)
    return gain - f.ahead[spelt], context


@inlined
def _grow(f: FusionArrays, context: int, spelt: int, phrase: int, token: int) -> tuple[float, int, int, int]:
    """What a token adds to a prefix, and the prefix's state after it. ``spelt``: trie node, 0 root, -1 outside."""
    gain = 0.0
    if f.separator < 0:
        gain, context = _read_word(f, context, f.token_word[token])
    elif token == f.separator:
        if spelt != 0:
            gain, context = _close_word(f, context, spelt)
        spelt = 0
    elif spelt >= 0:
        gain = -f.ahead[spelt]
        arc = _arc(f.spell_first, f.spell_token, spelt, token)
        spelt = f.spell_target[arc] if arc >= 0 else -1
        gain += f.ahead[spelt]
    after = f.follow[phrase, token]
    return gain + f.boost * (f.award[after] + f.credit[after] - f.credit[phrase]), context, spelt, after


@compiled
def _close(f: FusionArrays, context: int, spelt: int, phrase: int) -> float:
    """What the end of the utterance adds: the last word, the end symbol, the phrases."""
    gain = 0.0
    if f.separator >= 0 and spelt != 0:
        gain, context = _close_word(f, context, spelt)
    if f.ngram:
        gain += _read_word(f, context, f.end)[0] - f.bonus
    return gain + f.boost * f.final[phrase]


@compiled
def fuse(f: FusionArrays, tokens: Ints) -> float:
    """All that the fusion adds to one whole string."""
    context, spelt, phrase, total = f.begin, 0, f.origin, 0.0
    for token in tokens:
        gain, context, spelt, phrase = _grow(f, context, spelt, phrase, token)
        total += gain
    return total + _close(f, context, spelt, phrase)


def plant(f: FusionArrays, room: int, beam: int) -> tuple[Records, Records, Records, Ints]:
    """A tree of the empty prefix alone, the beam that holds it, the beam to fill next, and the counters."""
    tree, old, new = np.empty(room, NODE), np.zeros(beam, PLACE), np.zeros(beam, PLACE)
    tree[0] = (-1, -1, -1, -1, f.begin, 0, f.origin, 0, 0.0)
    old[0] = (0, 0, -1, 0, 0.0, -math.inf, 0.0)
    return tree, old, new, np.array([1, 1, 0, 0])


@inlined
def _key(context: int, spelt: int, phrase: int, symbol: int) -> int:
    """One number for four; should two sets of four ever meet in it, a place of the beam is used less well."""
    return ((context * 1_000_003 + spelt) * 1_000_003 + phrase) * 1_000_003 + symbol


@inlined
def _worst(places: Records, count: int) -> int:
    worst = 0
    for j in range(1, count):
        if places[j].score < places[worst].score:
            worst = j
    return worst


@inlined
def _spill(spill: Records, count: Ints, candidate: Any) -> None:
    """Remember the best of those that had to step back behind a prefix of the same future."""
    if count[SPILT] < len(spill):
        spill[count[SPILT]] = candidate
        count[SPILT] += 1
    else:
        worst = _worst(spill, len(spill))
        if candidate.score > spill[worst].score:
            spill[worst] = candidate


@inlined
def _offer(new: Records, spill: Records, count: Ints, alike: int, candidate: Any) -> float:
    """Take a candidate in, for the worst one where the beam is full. Returns the score to beat from now on.

    The best ``alike`` prefixes of each future come first, the others get the places that are left over: of two with
    the same future the worse one can hardly win any more, and would keep out one that can.
    """
    live, rivals, place = count[LIVE], 0, -1
    if alike < len(new):
        for j in range(live):
            if new[j].key == candidate.key:
                rivals += 1
                if place < 0 or new[j].score < new[place].score:
                    place = j
    if rivals >= alike:
        better = candidate.score > new[place].score
        if live < len(new):
            _spill(spill, count, new[place] if better else candidate)
        if better:
            new[place] = candidate
    elif live < len(new):
        new[live] = candidate
        live += 1
        count[LIVE] = live
    else:
        new[count[WORST]] = candidate
    if live < len(new):
        return -math.inf
    count[WORST] = _worst(new, live)
    return new[count[WORST]].score


@compiled
def _refill(new: Records, spill: Records, count: Ints) -> None:
    """Places that are left over go to the best of those that stepped back."""
    while count[LIVE] < len(new) and count[SPILT] > 0:
        best = 0
        if count[LIVE] + count[SPILT] > len(new):
            for j in range(1, count[SPILT]):
                if spill[j].score > spill[best].score:
                    best = j
        new[count[LIVE]] = spill[best]
        count[LIVE] += 1
        count[SPILT] -= 1
        spill[best] = spill[count[SPILT]]


@inlined
def _stay(
    x: Floats,
    blank: int,
    tree: Records,
    old: Records,
    new: Records,
    spill: Records,
    live: int,
    count: Ints,
    total: Floats,
    taken: Flags,
    alike: int,
    candidate: Any,
) -> float:
    """The live prefixes after a blank, their last symbol once more, or that symbol as a new one after their parent."""
    worst = -math.inf
    for i in range(live):
        node = old[i].node
        last, parent = tree[node].symbol, tree[node].parent
        blank_ended, symbol_ended = total[i] + x[blank], -math.inf
        if node > 0:
            symbol_ended = old[i].symbol + x[last]
            p = tree[parent].slot
            if p >= 0:
                before = old[p].blank if tree[parent].symbol == last else total[p]
                symbol_ended = _logaddexp(symbol_ended, before + x[last])
                taken[p, last] = True
        score = _logaddexp(blank_ended, symbol_ended) + tree[node].extra
        if score > worst:
            candidate.source, candidate.token = i, -1
            candidate.key = _key(tree[node].context, tree[node].spelt, tree[node].phrase, last)
            candidate.blank, candidate.symbol, candidate.score = blank_ended, symbol_ended, score
            worst = _offer(new, spill, count, alike, candidate)
    return worst


@inlined
def _extend(
    f: FusionArrays,
    x: Floats,
    order: Ints,
    blank: int,
    tree: Records,
    old: Records,
    new: Records,
    spill: Records,
    live: int,
    count: Ints,
    total: Floats,
    taken: Flags,
    rows: Floats,
    most: float,
    worst: float,
    alike: int,
    candidate: Any,
) -> None:
    """The live prefixes with one more symbol, likeliest first: what fusion adds is at most ``most``.

    The separator is tried before all others: what a whole word is worth has no such bound.
    """
    for i in range(live):
        node, both, blank_ended = tree[old[i].node], total[i], old[i].blank
        for k in range(-1, len(order)):
            c = f.separator if k < 0 else order[k]
            if k >= 0 and both + x[c] + node.extra + most <= worst:
                break
            if c < 0 or c == blank or taken[i, c] or (k >= 0 and c == f.separator):
                continue
            gain, context, spelt, phrase = 0.0, node.context, node.spelt, node.phrase
            if f.active:
                gain, context, spelt, phrase = _grow(f, context, spelt, phrase, c)
            if len(rows):
                gain += rows[i, c]
            symbol_ended = (blank_ended if c == node.symbol else both) + x[c]
            score = symbol_ended + node.extra + gain
            if score > worst:
                candidate.source, candidate.token, candidate.key = i, c, _key(context, spelt, phrase, c)
                candidate.blank, candidate.symbol, candidate.score = -math.inf, symbol_ended, score
                worst = _offer(new, spill, count, alike, candidate)


@inlined
def _child(f: FusionArrays, tree: Records, count: Ints, parent: int, token: int, more: float) -> int:
    """The node of this prefix; the same one where it was met before, or other prefixes would lose their parent."""
    index = tree[parent].child
    while index >= 0 and tree[index].symbol != token:
        index = tree[index].sibling
    if index >= 0:
        return index
    index = count[NODES]
    count[NODES] += 1
    old, new = tree[parent], tree[index]
    gain, context, spelt, phrase = _grow(f, old.context, old.spelt, old.phrase, token)
    new.parent, new.symbol, new.child, new.sibling, new.slot = parent, token, -1, old.child, -1
    new.context, new.spelt, new.phrase, new.extra = context, spelt, phrase, old.extra + gain + more
    old.child = index
    return index


@inlined
def _settle(
    f: FusionArrays, tree: Records, old: Records, new: Records, live: int, count: Ints, taken: Flags, rows: Floats
) -> None:
    """Give the survivors their nodes and places."""
    for i in range(live):
        node = tree[old[i].node]
        if node.parent >= 0 and tree[node.parent].slot >= 0:
            taken[tree[node.parent].slot, node.symbol] = False
    for i in range(live):
        tree[old[i].node].slot = -1
    for j in range(count[LIVE]):
        source, token = new[j].source, new[j].token
        index = old[source].node
        if token >= 0:
            index = _child(f, tree, count, index, token, rows[source, token] if len(rows) else 0.0)
        new[j].node = index
        tree[index].slot = j


@compiled
def advance(
    f: FusionArrays,
    frames: Floats,
    order: Ints,
    blank: int,
    tree: Records,
    old: Records,
    new: Records,
    count: Ints,
    rows: Floats,
    most: float,
    alike: int,
) -> tuple[Records, Records]:
    """Move the beam ``old`` over ``frames (time, vocabulary)``; ``order``: each frame's symbols, likeliest first.

    ``rows (beam, vocabulary)``: what scorers outside add to each live prefix, or no rows. Returns the beam, and the
    other one for the next call. ``alike``: see `_offer`.
    """
    spill, candidate = np.zeros(len(old), PLACE), np.zeros(1, PLACE)
    total = np.zeros(len(old))
    taken = np.zeros((len(old), frames.shape[1]), np.bool_)
    for t in range(len(frames)):
        live, count[LIVE], count[SPILT] = count[LIVE], 0, 0
        for i in range(live):
            total[i] = _logaddexp(old[i].blank, old[i].symbol)
        x, c = frames[t], candidate[0]
        worst = _stay(x, blank, tree, old, new, spill, live, count, total, taken, alike, c)
        _extend(f, x, order[t], blank, tree, old, new, spill, live, count, total, taken, rows, most, worst, alike, c)
        _refill(new, spill, count)
        _settle(f, tree, old, new, live, count, taken, rows)
        old, new = new, old
    return old, new


@compiled
def finish(f: FusionArrays, tree: Records, beam: Records) -> Floats:
    """The live prefixes' scores as whole strings."""
    scores = np.empty(len(beam))
    for i in range(len(beam)):
        node = tree[beam[i].node]
        scores[i] = beam[i].score + _close(f, node.context, node.spelt, node.phrase)
    return scores


@compiled
def spell_out(tree: Records, node: int) -> Ints:
    """The symbols of a prefix."""
    length, walk = 0, node
    while walk > 0:
        length, walk = length + 1, tree[walk].parent
    tokens = np.empty(length, np.int64)
    while node > 0:
        length -= 1
        tokens[length] = tree[node].symbol
        node = tree[node].parent
    return tokens


@compiled
def likelihood(probs: Floats, tokens: Ints, blank: int) -> float:
    """``log P(tokens)`` under ``probs (time, vocabulary)``: the forward algorithm, scaled to 1 at each frame."""
    size = 2 * len(tokens) + 1  # blank, token, blank, token, ... blank
    forward, scale = np.zeros(size), 0.0
    forward[0] = 1.0
    for t in range(len(probs)):
        norm, low, high = 0.0, max(0, size - 2 * (len(probs) - t)), min(size, 2 * t + 2)  # what path can pass here
        for s in range(high - 1, low - 1, -1):  # downwards: the smaller ones are still those of the last frame
            token = blank if s % 2 == 0 else tokens[s // 2]
            value = forward[s]
            if s >= 1:
                value += forward[s - 1]
            if s >= 3 and s % 2 and token != tokens[s // 2 - 1]:
                value += forward[s - 2]
            value *= probs[t, token]
            forward[s] = value if value > 1e-200 else 0.0
            norm += forward[s]
        if norm == 0.0:
            return -math.inf
        for s in range(low, high):
            forward[s] /= norm
        scale += math.log(norm)
    last = forward[size - 1] + (forward[size - 2] if size > 1 else 0.0)
    return scale + math.log(last) if last > 0.0 else -math.inf
