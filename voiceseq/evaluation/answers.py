"""What each kind of text model answers to rows of ``(text, wanted)``, in the one form that error analysis reads."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from voiceseq.evaluation.search_errors import MODEL
from voiceseq.evaluation.text import Answer, Units, fault_of, letters, words

TOGETHER = 64
Row = tuple[str, str]
Rows = Sequence[Row]


class Asking(NamedTuple):
    """How a kind of model is asked, what its texts are made of, and what the search finds ("exact": it cannot err)."""

    ask: Callable[..., list[Answer]]
    units: Units
    search: str = "beam"


def exact(source: str, wanted: str, given: str, loss: float | None = None) -> Answer:
    """An answer whose search is exact: what is wrong is the model's fault."""
    return Answer(source, wanted, given, float(given == wanted), loss, None if given == wanted else MODEL)


def searched(
    rows: Rows, given: Sequence[str], score: Callable[[Sequence[str], Sequence[str]], Sequence[float]]
) -> list[Answer]:
    """Answers of a beam search; ``score(texts, outputs)`` is asked for outputs and references of the wrong ones."""
    wrong = [i for i, (_, wanted) in enumerate(rows) if given[i] != wanted]
    faults: dict[int, str | None] = {}
    for some in (wrong[i : i + TOGETHER] for i in range(0, len(wrong), TOGETHER)):
        texts = [rows[i][0] for i in some]
        found = zip(some, score(texts, [given[i] for i in some]), score(texts, [rows[i][1] for i in some]), strict=True)
        faults |= {i: fault_of(given[i], rows[i][1], own, theirs) for i, own, theirs in found}
    return [
        Answer(text, wanted, said, float(said == wanted), None, faults.get(i))
        for i, ((text, wanted), said) in enumerate(zip(rows, given, strict=True))
    ]


def ask_translator(model: Any, rows: Rows, beam: int | None, language: str | None) -> list[Answer]:
    from voiceseq.inference.translator import plain_text

    rows = [(plain_text(text), wanted) for text, wanted in rows if model.problem(text) is None]
    return searched(rows, model.translate([text for text, _ in rows], beam), model.scores)


def ask_transducer(model: Any, rows: Rows, beam: int | None, language: str | None) -> list[Answer]:
    given: list[str] = []
    for some in (rows[i : i + TOGETHER] for i in range(0, len(rows), TOGETHER)):
        given += model.convert([text for text, _ in some], beam)
    return searched(rows, given, model.scores)


def ask_letters(model: Any, rows: Rows, beam: int | None, language: str | None) -> list[Answer]:
    if language is None:
        language = model.languages[0] if len(model.languages) == 1 else None
    model.check_language(language)
    rows = [row for row in rows if model.problem(row[0]) is None]
    ways = model.pronounce([text for text, _ in rows], language, beam)

    def score(texts: Sequence[str], outputs: Sequence[str]) -> list[float]:
        return list(model.scores(texts, language, [tuple(output.split()) for output in outputs]))

    return searched(rows, [" ".join(found[0]) for found in ways], score)


def ask_captioner(model: Any, rows: Rows, beam: int | None, language: str | None) -> list[Answer]:
    """Texts are files of pictures."""
    from voiceseq.inference.captioner import read_frames

    images = {path: read_frames(path)[0] for path, _ in rows}
    given = [model.caption([images[path]], beam)[0] for path, _ in rows]

    def score(paths: Sequence[str], outputs: Sequence[str]) -> list[float]:
        return list(model.score_outputs(*model.frames([images[path] for path in paths]), outputs))

    return searched(rows, given, score)


def ask_frames(model: Any, rows: Rows, beam: int | None, language: str | None) -> list[Answer]:
    """Texts are files of clips or, where the network reads letters of DNA, the bases themselves."""
    from voiceseq.inference.captioner import read_clip

    found = [model.classify([read_clip(model, text)])[0] for text, _ in rows]
    return [
        exact(text, wanted, one.label, -math.log(max(one.probabilities.get(wanted, 0.0), 1e-9)))
        for (text, wanted), one in zip(rows, found, strict=True)
    ]


def ask_classifier(model: Any, rows: Rows, beam: int | None, language: str | None) -> list[Answer]:
    found = model.classify([text for text, _ in rows])
    return [
        exact(text, wanted, one.label or "", -math.log(max(one.probabilities.get(wanted, 0.0), 1e-9)))
        for (text, wanted), one in zip(rows, found, strict=True)
    ]


def ask_tagger(model: Any, rows: Rows, beam: int | None, language: str | None) -> list[Answer]:
    """Texts and tags with spaces between; right is the share of the words."""
    found = model.tag_words([text.split() for text, _ in rows])
    answers = []
    for (text, wanted), (tags, _) in zip(rows, found, strict=True):
        hits = [one == other for one, other in zip(tags, wanted.split(), strict=True)]
        answers.append(Answer(text, wanted, " ".join(tags), float(np.mean(hits)), None, None if all(hits) else MODEL))
    return answers


def ask_language(model: Any, rows: Rows, beam: int | None, language: str | None) -> list[Answer]:
    """Nothing is right or wrong: the loss is in nats a symbol."""
    return [
        Answer(text, "", "", None, -found.log_prob / found.symbols)
        for (text, _), found in zip(rows, model.score([text for text, _ in rows]), strict=True)
    ]


def ask_masked(model: Any, rows: Rows, beam: int | None, language: str | None) -> list[Answer]:
    """The word in the middle of each text is masked, where the text has no [MASK] of its own."""
    answers = []
    for text, wanted in rows:
        if "[MASK]" not in text:
            parts = text.split()
            middle = len(parts) // 2
            wanted, text = parts[middle], " ".join([*parts[:middle], "[MASK]", *parts[middle + 1 :]])
        best = model.fill([text], n_best=1)[0].candidates[0][0]
        answers.append(exact(text, wanted.lower(), best.word))
    return answers


def ask_names(model: Any, rows: Rows, beam: int | None, language: str | None) -> list[Answer]:
    """Of which kind a name is, by Bayes' rule; only the kinds that occur in the rows are weighed."""
    kinds = {wanted for _, wanted in rows}
    answers = []
    for (name, wanted), shares in zip(rows, model.kinds_of([name for name, _ in rows]), strict=True):
        given = max((kind for kind in shares if kind in kinds), key=shares.__getitem__)
        answers.append(exact(name, wanted, given, -math.log(max(shares.get(wanted, 0.0), 1e-9))))
    return answers


def ask_embeddings(model: Any, rows: Rows, beam: int | None, language: str | None) -> list[Answer]:
    """Texts are ``man king woman``, what is wanted is ``queen``; questions with an unknown word are left out."""
    known = [(text, wanted) for text, wanted in rows if all(word in model for word in [*text.split(), wanted])]
    return [exact(text, wanted, model.analogy(*text.split(), 1)[0].word) for text, wanted in known]


def ask_forecaster(model: Any, rows: Rows, beam: int | None, language: str | None) -> list[Answer]:
    """Texts are series, what is wanted is how they go on: right is what the 80 % interval covers, the loss |error|."""
    answers = []
    for text, wanted in rows:
        truth = [float(cell) for cell in wanted.split()]
        found = model.forecast([float(cell) for cell in text.split()], len(truth))
        for step, (mean, low, high, value) in enumerate(zip(*found, truth, strict=True), 1):
            given = f"{mean:g} ({low:g} to {high:g})"
            answers.append(
                Answer(f"step {step}", f"{value:g}", given, float(low <= value <= high), abs(mean - value), size=step)
            )
    return answers


def ask_composer(model: Any, rows: Rows, beam: int | None, language: str | None) -> list[Answer]:
    """Texts are chorales: the MIDI numbers of a chord with commas between, chords with spaces. Nats a step."""
    from voiceseq.datasets.corpora.chorales import piano_roll

    answers = []
    for text, _ in rows:
        roll = piano_roll([[int(key) for key in chord.split(",") if key.isdecimal()] for chord in text.split(" ")])
        answers.append(Answer(text, "", "", None, float(model.loss(roll))))
    return answers


KINDS = {
    "translator": Asking(ask_translator, words),
    "transducer": Asking(ask_transducer, letters),
    "pronouncer": Asking(ask_transducer, letters),
    "letters": Asking(ask_letters, letters),
    "captioner": Asking(ask_captioner, words),
    "frame-classifier": Asking(ask_frames, letters, "exact"),
    "classifier": Asking(ask_classifier, words, "exact"),
    "tagger": Asking(ask_tagger, words, "exact"),
    "language-model": Asking(ask_language, words, "none"),
    "masked-lm": Asking(ask_masked, words, "exact"),
    "names": Asking(ask_names, letters, "exact"),
    "embeddings": Asking(ask_embeddings, words, "exact"),
    "forecaster": Asking(ask_forecaster, words, "none"),
    "composer": Asking(ask_composer, words, "none"),
}
