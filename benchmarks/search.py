"""How fast are the searches? CTC prefix beam search beside pyctcdecode and flashlight; attention beam search by batch.

    python benchmarks/search.py [--json]

The CTC cases run on simulated posteriors (1,000 frames, 32 symbols, beam 16) of held-out English text, `sharp` as a
good model gives them and `noisy`, one thread, ours and theirs by turns. The scores are log P_ctc by the exact forward
algorithm (+ weighted language model, </s> included) of each decoder's best string, so that both are measured alike.
"""

import argparse
import json
import math
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from pydoc_data import topics

import numpy as np
import torch
from torch import Tensor

from voiceseq.core.attention import ScaledDotAttention
from voiceseq.core.prefix import Fusion, prefix_beam_search, score_strings
from voiceseq.core.recurrent import Recurrent
from voiceseq.core.scorers import StepScorer
from voiceseq.core.search import beam_search
from voiceseq.core.shapes import TokenDecoder
from voiceseq.text.ngram import BEGIN, END, UNKNOWN, Grams, NgramModel, write_arpa

SYMBOLS = ["-", "|", *"abcdefghijklmnopqrstuvwxyz'.,:"]  # blank, word separator, and the rest: 32
BEAM, FRAMES, WEIGHT, REPEATS, CLIPS = 16, 1000, 0.5, 15, 3


def english() -> str:
    """The help texts of Python itself: English that every machine has."""
    text = re.sub(r"[^a-z'.,: ]+", " ", " ".join(topics.topics.values()).lower())
    return re.sub(" +", "|", text).strip("|")


def posteriors(text: str, noise: float, seed: int) -> Tensor:
    """``(1, FRAMES, 32)``: peaks of one or two frames among blanks, under noise."""
    generator = torch.Generator().manual_seed(seed)
    path: list[int] = []
    for symbol in text:
        rest, held = torch.randint(2, 6, (1,), generator=generator), torch.randint(1, 3, (1,), generator=generator)
        path += [0] * int(rest) + [SYMBOLS.index(symbol)] * int(held)
    logits = noise * torch.randn(1, FRAMES, len(SYMBOLS), generator=generator)
    logits[0, torch.arange(FRAMES), torch.tensor(path[:FRAMES])] += 8.0
    return logits.log_softmax(-1)


def ngram(sequences: list[list[str]], words: list[str], order: int, discount: float = 0.5) -> NgramModel:
    """Absolute discounting, back-off form; only to have a model of real size here."""
    names = [BEGIN, END, UNKNOWN, *words]
    index = {name: i for i, name in enumerate(names)}
    counts: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(order)]
    for sequence in sequences:
        ids = [0, *(index.get(word, 2) for word in sequence), 1]
        for n in range(1, order + 1):
            counts[n - 1].update(tuple(ids[i : i + n]) for i in range(len(ids) - n + 1) if i + n > 1)
    probs: list[dict[tuple[int, ...], float]] = []
    followers: list[dict[tuple[int, ...], tuple[int, int]]] = []  # context -> tokens, types
    for level in counts:
        totals: dict[tuple[int, ...], tuple[int, int]] = {}
        for gram, count in level.items():
            tokens, types = totals.get(gram[:-1], (0, 0))
            totals[gram[:-1]] = tokens + count, types + 1
        followers.append(totals)
    total = sum(counts[0].values()) + len(names)
    probs.append({(i,): (counts[0][(i,)] + 1) / total for i in range(len(names))})
    for n in range(2, order + 1):
        lower = probs[-1]
        level = {}
        for gram, count in counts[n - 1].items():
            tokens, types = followers[n - 1][gram[:-1]]
            level[gram] = (count - discount) / tokens + discount * types / tokens * lower[gram[1:]]
        probs.append(level)
    orders = []
    for n, level in enumerate(probs, start=1):
        backoff = [followers[n][g] if n < order and g in followers[n] else (1, 0) for g in level]
        weights = [discount * types / tokens if types else 1.0 for tokens, types in backoff]
        orders.append(Grams(np.array(list(level), np.int32), np.log(list(level.values())), np.log(weights)))
    return NgramModel(names, orders)


def by_turns(ours: Callable[[], object], theirs: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median seconds of each, measured A, B, A, B, ..."""
    spent: tuple[list[float], list[float]] = ([], [])
    for run in range(repeats + 1):
        for function, times in zip((ours, theirs), spent, strict=True):
            begin = time.perf_counter()
            function()
            if run:  # the first one warms up
                times.append(time.perf_counter() - begin)
    return float(np.median(spent[0])), float(np.median(spent[1]))


def compare(case: str, target: float, clips: list[Tensor], ours, theirs, score, repeats: int = REPEATS) -> dict:
    """One row: total time over the clips, mean score of the best strings."""
    ours_s = reference_s = ours_score = reference_score = 0.0
    for clip in clips:
        seconds = by_turns(lambda clip=clip: ours(clip), lambda clip=clip: theirs(clip), repeats)
        ours_s, reference_s = ours_s + seconds[0] / len(clips), reference_s + seconds[1] / len(clips)
        ours_score += score(clip, [ours(clip)]) / len(clips)
        reference_score += score(clip, theirs(clip)) / len(clips)
    ratio = ours_s / reference_s
    return {
        "case": case,
        "ours_s": ours_s,
        "reference_s": reference_s,
        "ratio": ratio,
        "target": target,
        "ours_score": ours_score,
        "reference_score": reference_score,
        "met": ratio <= target and ours_score >= reference_score - 1e-6,
    }


def skipped(case: str, error: ImportError) -> dict:
    return {"case": case, "skipped": f"the peer is not installed: {error}"}


def best_score(clip: Tensor, strings: list[list[int]], fusion: Fusion | None) -> float:
    return max(score_strings(clip, None, [string], fusion=fusion)[0].score for string in strings)


def ctc_without_lm(name: str, clips: list[Tensor]) -> dict:
    case = f"CTC {name}, no LM, beside pyctcdecode"
    try:
        from pyctcdecode import build_ctcdecoder
    except ImportError as error:
        return skipped(case, error)
    decoder = build_ctcdecoder(["", " ", *SYMBOLS[2:]])

    def theirs(clip: Tensor) -> list[list[int]]:
        text = decoder.decode_beams(clip[0].numpy(), beam_width=BEAM)[0][0]
        return [[SYMBOLS.index(c) for c in text.replace(" ", "|")]]

    ours = lambda clip: prefix_beam_search(clip, beam=BEAM)[0][0].tokens  # noqa: E731
    return compare(case, 1.0, clips, ours, theirs, lambda clip, strings: best_score(clip, strings, None), repeats=5)


def ctc_with_token_lm(name: str, clips: list[Tensor], model: NgramModel, arpa: Path) -> dict:
    case = f"CTC {name}, character {model.order}-gram, beside flashlight"
    try:
        from flashlight.lib.text import decoder as flashlight
        from flashlight.lib.text.dictionary import Dictionary
    except ImportError as error:
        return skipped(case, error)
    # what torchaudio.models.decoder.ctc_decoder(lexicon=None, lm=arpa) builds, without its wrapper; its LM is in log10
    weight, ctc = WEIGHT * math.log(10), flashlight.CriterionType.CTC
    options = flashlight.LexiconFreeDecoderOptions(BEAM, len(SYMBOLS), 50.0, weight, 0.0, True, ctc)
    language_model = flashlight.KenLM(str(arpa), Dictionary(SYMBOLS))
    decoder = flashlight.LexiconFreeDecoder(options, language_model, SYMBOLS.index("|"), SYMBOLS.index("-"), [])

    def theirs(clip: Tensor) -> list[list[int]]:
        path = decoder.decode(clip.data_ptr(), clip.shape[1], clip.shape[2])[0].tokens[1:-1]  # less its own silences
        return [[symbol for symbol, _ in groupby(path) if symbol > 0]]

    fusion = Fusion(len(SYMBOLS), model.table, model.spellings(SYMBOLS), weight=WEIGHT)
    ours = lambda clip: prefix_beam_search(clip, beam=BEAM, fusion=fusion)[0][0].tokens  # noqa: E731
    return compare(case, 2.0, clips, ours, theirs, lambda clip, strings: best_score(clip, strings, fusion))


def ctc_with_word_lm(name: str, clips: list[Tensor], model: NgramModel, arpa: Path) -> dict:
    case = f"CTC {name}, word {model.order}-gram, beside pyctcdecode with kenlm"
    try:
        import kenlm  # noqa: F401
        from pyctcdecode import build_ctcdecoder
    except ImportError as error:
        return skipped(case, error)
    labels = ["", " ", *SYMBOLS[2:]]
    words = [word for word in model.words if word not in (BEGIN, END, UNKNOWN)]
    decoder = build_ctcdecoder(labels, str(arpa), words, alpha=WEIGHT, beta=1.5, unk_score_offset=-10.0)
    fusion = Fusion(
        len(SYMBOLS), model.table, model.spellings(SYMBOLS), separator=1, weight=WEIGHT, unknown=-10.0, bonus=1.5
    )

    def theirs(clip: Tensor) -> list[list[int]]:
        text = decoder.decode_beams(clip[0].numpy(), beam_width=BEAM)[0][0]
        return [[SYMBOLS.index(c) for c in text.replace(" ", "|")]]

    ours = lambda clip: prefix_beam_search(clip, beam=BEAM, fusion=fusion)[0][0].tokens  # noqa: E731
    return compare(case, 1.0, clips, ours, theirs, lambda clip, strings: best_score(clip, strings, fusion), repeats=5)


@torch.no_grad()
def attention_by_batch(
    vocabulary: int, size: int, threads: int, batch: int = 16, steps: int = 40, repeats: int = 7
) -> dict:
    """Throughput of one batch of 16 utterances beside the same 16 one after the other."""
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    network = Recurrent(2 * size, size, cell="gru", layers=2)
    decoder = TokenDecoder(vocabulary, network, size, ScaledDotAttention(size)).eval()
    memory = torch.randn(batch, 100, size)

    def search(frames: Tensor) -> list[float]:
        scorer = StepScorer(decoder.decode_step, *decoder.start(frames[:, -1], frames))
        found = beam_search([(scorer, 1.0)], len(frames), 1, 0, beam=5, max_length=steps, min_length=steps)
        return [best[0].score for best in found]

    alone = lambda: [search(memory[b : b + 1])[0] for b in range(batch)]  # noqa: E731
    together_s, alone_s = by_turns(lambda: search(memory), alone, repeats)
    speedup = alone_s / together_s
    difference = float(np.abs(np.array(search(memory)) - np.array(alone())).max())
    return {
        "case": f"attention beam search (2 x GRU {size}, {vocabulary} tokens, 100 frames, beam 5): "
        f"throughput at batch {batch} over batch 1, {threads} thread{'s' * (threads > 1)}",
        "ours_s": together_s,
        "reference_s": alone_s,
        "ratio": speedup,
        "target": 6.0,
        "score_difference": difference,
        "met": speedup >= 6.0 and difference < 1e-3,
    }


def measure() -> dict:
    """All rows; about a minute."""
    torch.set_num_threads(1)
    text = english()
    train, test = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    sentences = [sentence for sentence in train.split(".|") if sentence]
    characters = ngram([list(sentence) for sentence in sentences], SYMBOLS[1:], 4)
    words = Counter(word for sentence in sentences for word in sentence.split("|") if word)
    word_model = ngram([[w for w in s.split("|") if w] for s in sentences], [w for w, _ in words.most_common(5000)], 3)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_arpa(characters, Path(folder) / "characters.arpa")
        write_arpa(word_model, Path(folder) / "words.arpa")
        for name, noise in (("sharp", 1.0), ("noisy", 2.5)):
            clips = [posteriors(test[400 * i : 400 * i + 400], noise, i) for i in range(CLIPS)]
            rows.append(ctc_without_lm(name, clips))
            rows.append(ctc_with_token_lm(name, clips, characters, Path(folder) / "characters.arpa"))
            rows.append(ctc_with_word_lm(name, clips, word_model, Path(folder) / "words.arpa"))
    cores = len(os.sched_getaffinity(0))
    for threads in sorted({1, cores}):
        rows += [attention_by_batch(500, 256, threads), attention_by_batch(64, 128, threads)]
    torch.set_num_threads(1)
    notes = (
        "The ratio of the attention rows is throughput: more is better. With 256 units a batch of 16 makes the matrix "
        "products five to six times as long as a batch of 1 does (this processor is at its peak there), which bounds "
        "the ratio; with 128 units the overhead that batching saves is the larger part."
    )
    return {"benchmark": "search", "rows": rows, "notes": notes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    as_json = parser.parse_args().json
    result = measure()
    if as_json:
        print(json.dumps(result))
        return
    for row in result["rows"]:
        if "skipped" in row:
            print(f"{row['case']}: {row['skipped']}")
            continue
        scores = (
            f"score {row['ours_score']:.3f} beside {row['reference_score']:.3f}"
            if "ours_score" in row
            else f"largest score difference {row['score_difference']:.1e}"
        )
        times = f"{1e3 * row['ours_s']:8.1f} ms beside {1e3 * row['reference_s']:8.1f} ms"
        print(
            f"{row['case']}\n  {times}, ratio {row['ratio']:.2f} (target {row['target']:g}), {scores}, met {row['met']}"
        )


if __name__ == "__main__":
    main()
