"""``voiceseq embed [WORDS ...]``: a line a text. One word: its neighbours; two: how alike; three: the analogy."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voiceseq.cli.options import add_json, print_json
from voiceseq.errors import InputError

if TYPE_CHECKING:
    from voiceseq.text.vectors import WordVectors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("texts", nargs="*", metavar="WORDS", help='"king", "king queen" or "man king woman"; or stdin')
    parser.add_argument("--model", default="word-vectors", help="a bundle, or vectors of word2vec or GloVe as a file")
    parser.add_argument("--count", type=int, default=5, metavar="N", help="how many neighbours (default: %(default)s)")
    parser.add_argument("--vector", action="store_true", help="print the numbers of each word instead")
    parser.add_argument("--similarity", type=Path, metavar="FILE", help="agreement with people: word word score a line")
    parser.add_argument("--analogies", type=Path, metavar="FILE", help="share of right answers: four words a line")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the words that were asked for, by t-SNE")
    parser.add_argument("--method", choices=("tsne", "pca"), default="tsne", help="how they come onto the plane")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all vectors as text")
    parser.add_argument("--format", choices=("word2vec", "glove"), default="word2vec", help="of --out")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from voiceseq.inference.embeddings import open_vectors
    from voiceseq.text.vectors import write_vectors

    vectors = open_vectors(args.model)
    if args.count < 1:
        raise InputError(f"--count {args.count}; 1 or more was wanted")
    if args.out:
        write_vectors(vectors, args.out, args.format)
    measured = measure(vectors, args)
    for row in measured:
        print_json(row) if args.json else print(row["result"])
    if not args.texts and (args.out or measured):
        return 0
    failed, words = 0, dict[str, None]()
    for text in args.texts or (line.rstrip("\r\n") for line in sys.stdin):
        try:
            found = answer(vectors, text, args)
            words |= dict.fromkeys(found["words"])
        except InputError as error:
            found = {"text": text, "result": ""}
            failed += 1
            print(f"voiceseq: {error}", file=sys.stderr)
        print_json(found) if args.json else print(found["result"], flush=True)
    if args.plot:
        draw(vectors, list(words), args.method, args.plot)
    return 1 if failed else 0


def answer(vectors: "WordVectors", text: str, args: argparse.Namespace) -> dict[str, Any]:
    """What one line gets; InputError for none or more than three words, or one that has no vector."""
    from voiceseq.inference.translator import plain_text

    asked = plain_text(text[:1000]).split()
    words = [vectors.words[vectors.number(word)] for word in asked]
    if not 1 <= len(words) <= (1 if args.vector else 3):
        raise InputError(f"{text[:40]!r} has {len(words)} words; one, two or three were wanted (one for --vector)")
    if args.vector:
        return {"text": text, "words": words, "result": " ".join(f"{value:.6g}" for value in vectors[words[0]])}
    if len(words) == 2:
        return {"text": text, "words": words, "result": f"{vectors.similarity(words[0], words[1]):.4f}"}
    few = (
        vectors.neighbours(words[0], args.count)
        if len(words) == 1
        else vectors.analogy(words[0], words[1], words[2], args.count)
    )
    near = [{"word": one.word, "cosine": round(one.cosine, 4)} for one in few]
    result = " ".join(one.word for one in few) if len(words) == 1 else few[0].word
    return {"text": text, "words": [*words, *(one.word for one in few)], "result": result, "near": near}


def measure(vectors: "WordVectors", args: argparse.Namespace) -> list[dict[str, Any]]:
    """What the two evaluators say, for whichever file was given."""
    from voiceseq.evaluation.embeddings import agreement, answer_analogies, read_questions, read_scored_pairs

    rows: list[dict[str, Any]] = []
    if args.analogies:
        found = answer_analogies(vectors, read_questions(args.analogies))
        share = found.total()
        parts = {name: part._asdict() | {"percent": round(part.percent, 2)} for name, part in found.sections.items()}
        result = f"{share.percent:.2f} % of {share.answered} analogies ({found.asked} asked)"
        numbers = {"percent": round(share.percent, 2), "answered": share.answered, "asked": found.asked}
        rows.append({"file": str(args.analogies), "result": result, **numbers, "sections": parts})
    if args.similarity:
        same = agreement(vectors, read_scored_pairs(args.similarity))
        result = f"{same.correlation:.4f} rank correlation of {same.pairs} pairs"
        numbers = {"correlation": round(same.correlation, 4), "pairs": same.pairs}
        rows.append({"file": str(args.similarity), "result": result, **numbers})
    return rows


def draw(vectors: "WordVectors", words: list[str], method: str, path: Path) -> None:
    """The words as points with their names; InputError where the file cannot be written."""
    from voiceseq.evaluation.plots import plot_points
    from voiceseq.inference.embeddings import flatten

    points = flatten(vectors, words, method)
    try:
        plot_points(points, words, path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be written ({error}); give a .png in a folder that exists") from error
