"""Tasks of text, as a worker does them: a model and what was asked -> plain JSON."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from voiceseq.errors import InputError

if TYPE_CHECKING:
    from voiceseq.inference.language import LanguageModel
    from voiceseq.inference.tagger import Tagger
    from voiceseq.inference.transduce import Transducer
    from voiceseq.inference.translator import Translator

CANDIDATES = 5

Asked = Mapping[str, Any]
Answer = dict[str, Any]


def translate(model: "Translator", asked: Asked) -> Answer:
    """Raises InputError for what cannot be translated."""
    from voiceseq.inference.translator import PART, plain_text

    if problem := model.problem(asked["text"]):
        raise InputError(problem)
    plain = plain_text(asked["text"])
    (output,) = model.translate([plain])
    symbols = model.source.split(plain)
    if len(symbols) > PART:  # it was translated in parts
        return {"output": output}
    found = model.candidates([plain], max(CANDIDATES, model.decoding.beam), CANDIDATES)[0]
    drawn = _attention(model, plain, output, symbols, [*model.target.split(output), "end"])
    return {"output": output, "candidates": [_candidate(one) for one in found]} | drawn


def dates(model: "Transducer", asked: Asked) -> Answer:
    """An output of "" where no date was found."""
    from voiceseq.inference.dates import is_legible, plain_text, read_dates

    plain = plain_text(asked["text"])
    (reading,) = read_dates(model, [plain])
    answer: Answer = {"output": reading.date or "", "probability": round(reading.probability, 4)}
    if is_legible(plain):
        answer["candidates"] = [_candidate(one) for one in model.candidates([plain])[0][:CANDIDATES]]
    if reading.date:
        answer |= _attention(model, plain, reading.date, list(plain), [*reading.date, "end"])
    return answer


def _candidate(found: Any) -> dict[str, Any]:
    return {"text": found.text, "score": round(found.score, 4)}


def _attention(model: "Transducer", text: str, output: str, columns: list[str], rows: list[str]) -> Answer:
    """Where it looked; nothing of a model without attention."""
    try:
        weights = model.attention(text, output)
    except InputError:
        return {}
    rounded = [[round(value, 3) for value in row] for row in weights.tolist()]
    return {"attention": {"rows": rows, "columns": columns, "weights": rounded}}


def tag(model: "Tagger", asked: Asked) -> Answer:
    (tagged,) = model.tag([asked["text"]])
    rows = zip(tagged.tokens, tagged.tags, tagged.probabilities, strict=True)
    tokens = [
        {"word": one.word, "start": one.start, "end": one.end, "tag": name, "probability": round(sure, 4)}
        for one, name, sure in rows
    ]
    spans = [{"start": start, "end": end, "type": kind} for start, end, kind in tagged.spans]
    return {"output": tagged.marked(), "text": tagged.text, "tokens": tokens, "spans": spans}


def generate(model: "LanguageModel", asked: Asked) -> Answer:
    (text,) = model.generate([asked["text"]], asked["length"], asked["temperature"], seed=asked["seed"])
    return {"output": text}


TASKS: dict[str, Callable[[Any, Asked], Answer]] = {
    "translate": translate,
    "tag": tag,
    "generate": generate,
    "dates": dates,
}
