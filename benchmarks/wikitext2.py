"""WikiText-2, test perplexity: ``python benchmarks/wikitext2.py [BUNDLE]`` (else the shipped one) writes RESULTS.md.

The network alone, then mixed with the project's own 5-gram (modified Kneser-Ney, one stream), then with a continuous
cache of the network's recent states too. All read the same 245,569 test words once, from left to right. The shares of
the mixture, the cache's window and its sharpness are chosen on the validation text. The text is read in 8 rows, each of
which starts without a past.
"""

import math
import sys
import time
from collections.abc import Iterator

import torch
from ngram import stream
from results import table, write_section
from torch import Tensor

import voiceseq
from voiceseq.core.cache import cache_probs, mix, mixture_weights
from voiceseq.inference.language import LanguageModel
from voiceseq.text.kneser_ney import train_ngram

TARGET, ROWS, PIECE = 110.0, 8, 128
SHARPNESS, WINDOWS = (0.02, 0.05, 0.1, 0.2), (500, 2000, 4000)
CHOOSE = 6000  # places of each row of the validation text that sharpness and window are chosen on


def rows_of(model: LanguageModel, part: str) -> tuple[Tensor, Tensor]:
    """``(ROWS, time)`` inputs and targets; what does not fill a row is one more target of a row that is cut short."""
    words = stream(part)[0]
    symbols = torch.tensor(
        [
            model.spelling.line_end,
            *(model.vocabulary.encode(word)[0] if word != "<eos>" else model.spelling.line_end for word in words),
        ]
    )
    targets = len(symbols) - 1
    length = math.ceil(targets / ROWS)
    index = (torch.arange(ROWS)[:, None] * length + torch.arange(length)).clamp(max=targets - 1)
    return symbols[index], symbols[index + 1]


@torch.no_grad()
def read(model: LanguageModel, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities ``(ROWS, time)`` and states ``(ROWS, time, size)``."""

    def pieces() -> Iterator[tuple[Tensor, Tensor]]:
        state = None
        for begin in range(0, inputs.shape[1], PIECE):
            frames, state = model.network.frames(inputs[:, begin : begin + PIECE], state)
            log_probs = model.network.output(frames).log_softmax(-1)
            yield log_probs.gather(2, targets[:, begin : begin + PIECE, None])[..., 0], frames

    log_probs, states = zip(*pieces(), strict=True)
    return torch.cat(log_probs, 1), torch.cat(states, 1)


def flat(values: Tensor, count: int) -> Tensor:
    """Each target of the text once, in order."""
    return values.flatten()[:count]


def measure(name: str) -> list[dict]:
    model = voiceseq.load(name)
    begin = time.process_time()
    ngram = train_ngram(stream("train"), 5, boundaries=False)
    found: dict[str, dict[str, Tensor]] = {}
    read_parts: dict[str, tuple[Tensor, Tensor]] = {}
    heard: dict[str, Tensor] = {}
    for part in ("valid", "test"):
        (inputs, targets), words = rows_of(model, part), stream(part)
        log_probs, states = read(model, inputs, targets)
        own = torch.from_numpy(ngram.log_probs(words, False))
        found[part] = {"network": flat(log_probs, len(own)).double(), "5-gram": own}
        read_parts[part], heard[part] = (states, targets), log_probs

    def cached(part: str, window: int, sharpness: float) -> Tensor:
        states, targets = read_parts[part]
        return flat(cache_probs(states, targets, window, sharpness), len(found[part]["5-gram"])).double().log()

    def together(part: str, *more: Tensor) -> Tensor:
        return torch.stack([*found[part].values(), *more])

    def best(parts: Tensor) -> tuple[Tensor, float]:
        weights = mixture_weights(parts)
        return weights, float(mix(parts, weights).mean())

    states, targets = (tensor[:, :CHOOSE] for tensor in read_parts["valid"])
    network = heard["valid"][:, :CHOOSE].flatten().double()

    def tried(window: int, sharpness: float) -> float:
        recent = cache_probs(states, targets, window, sharpness).flatten().double().log()
        return best(torch.stack((network, recent)))[1]

    sharpness = max(SHARPNESS, key=lambda one: tried(2000, one))
    chosen = max(WINDOWS, key=lambda one: tried(one, sharpness)), sharpness
    cases = {"LSTM": ["network"], "5-gram, modified Kneser-Ney": ["5-gram"], "LSTM + 5-gram": ["network", "5-gram"]}
    rows = []
    for case, names in cases.items():
        weights, _ = best(torch.stack([found["valid"][one] for one in names]))
        scores = {part: mix(torch.stack([found[part][one] for one in names]), weights) for part in found}
        rows.append(row(case, scores, weights))
    weights, _ = best(together("valid", cached("valid", *chosen)))
    scores = {part: mix(together(part, cached(part, *chosen)), weights) for part in found}
    case = f"LSTM + 5-gram + cache of {chosen[0]} states, sharpness {chosen[1]}"
    rows.append(row(case, scores, weights) | {"target": TARGET, "met": perplexity(scores["test"]) <= TARGET})
    print(f"{time.process_time() - begin:.0f} CPU s")
    return rows


def perplexity(log_probs: Tensor) -> float:
    return math.exp(-float(log_probs.mean()))


def row(case: str, scores: dict[str, Tensor], weights: Tensor) -> dict:
    return {
        "model": case,
        "test perplexity": perplexity(scores["test"]),
        "valid perplexity": perplexity(scores["valid"]),
        "words": len(scores["test"]),
        "shares": ", ".join(f"{share:.2f}" for share in weights.tolist()),
    }


NOTE = """Words as WikiText-2 has them, `<unk>` and the ends of lines among them; shares, window and sharpness from the
validation text. The cache knows only what stands before a word."""


def main() -> int:
    torch.set_num_threads(1)
    name = sys.argv[1] if len(sys.argv) > 1 else "wikitext2"
    rows = measure(name)
    command = "python benchmarks/wikitext2.py" + (f" {name}" if len(sys.argv) > 1 else "")
    write_section("Words: WikiText-2, test perplexity", command, rows, NOTE)
    print(table(rows))
    return 0 if rows[-1]["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
