"""`voiceseq tag`, `classify` and `fill` as a user types them: one line out for each line in, whatever it holds."""

import io
import json
import sys
from pathlib import Path

import pytest
from small_sentences import make_bundles

from voiceseq.cli.main import COMMANDS, main

LINES = [
    *(
        b"Harry met [MASK].",
        b"",
        b"   ",
        b"\xef\xbb\xbfHarry [MASK]",
        b"a\x00b [MASK]",
        b"\xff\xfe\x80 [MASK]",
        b"x" * 100_000,
    ),
    *(
        b"met, " * 20_000,
        "Привет, мир [MASK] 日本語 😀".encode(),
        "a\u2028b\x85c [MASK]".encode(),
        b"?! [MASK]",
        b"Harry",
    ),
]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {name: str(path) for name, path in make_bundles(tmp_path_factory.mktemp("bundles")).items()}


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], list[str]]:
    code = main(words)
    printed = capsys.readouterr()
    return code, printed.out.split("\n")[:-1], printed.err.splitlines()


@pytest.mark.parametrize(
    ("command", "bundle"), [("tag", "names"), ("tag", "speech"), ("classify", "classes"), ("fill", "masked")]
)
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_line_out_for_each_line_in(
    bundles: dict[str, str],
    command: str,
    bundle: str,
    more: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n".join(LINES)), encoding="utf-8"))
    code, lines, said = run([command, "--model", bundles[bundle], *more], capsys)
    assert len(lines) == len(LINES)
    assert code == (0 if command == "tag" else 1)
    assert bool(said) == (code == 1)
    assert all(line.startswith("voiceseq: ") and len(line) < 250 for line in said)
    if more:
        answers = [json.loads(line) for line in lines]
        assert answers[-1]["text"] == "Harry"
        assert answers[1]["text"] == ""
    else:
        shown = [line.strip()[:20] for line in lines]  # short: pytest would compare 100 kB for minutes
        assert shown[1:3] == ["", ""]
        assert all(shown[n] for n in (0, 3, 4, 5, 8, 9, 10))


def test_tag(bundles: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    names = ["--model", bundles["names"]]
    _, (line,), _ = run(["tag", "Harry don't", *names, "--json"], capsys)
    answer = json.loads(line)
    assert answer["tokens"] == ["Harry", "do", "n't"]
    assert len(answer["tags"]) == len(answer["probabilities"]) == 3
    assert all(answer["text"][span["start"] : span["end"]] == span["text"] for span in answer["spans"])
    _, (line,), _ = run(["tag", "Harry don't", *names, "--json", "--tokens"], capsys)
    assert json.loads(line)["tokens"] == ["Harry", "don't"]
    _, (line,), _ = run(["tag", "Harry met", *names, "--columns"], capsys)
    assert [cell.partition("/")[0] for cell in line.split()] == ["Harry", "met"]
    _, (line,), _ = run(["tag", "Harry met", "--model", bundles["speech"]], capsys)
    assert [cell.partition("/")[0] for cell in line.split()] == ["Harry", "met"]


def test_classify_and_fill(bundles: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = run(["classify", "fried chicken", "Harry", "--model", bundles["classes"]], capsys)
    assert set(lines) <= {"negative", "positive"}
    assert len(lines) == 2
    _, (line,), _ = run(["classify", "", "--model", bundles["classes"], "--json"], capsys)
    assert json.loads(line) == {"text": "", "label": None, "probability": None, "classes": {}}
    _, (line,), _ = run(
        ["fill", "make [MASK] chicken", "--model", bundles["masked"], "--json", "--n-best", "2"], capsys
    )
    answer = json.loads(line)
    assert [len(mask) for mask in answer["masks"]] == [2]
    assert answer["filled"] == f"make {answer['masks'][0][0]['word']} chicken"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tag", "x", "--model", "{masked}"], "a tagger was wanted"),
        (["classify", "x", "--model", "{names}"], "a classifier was wanted"),
        (["fill", "x", "--model", "{classes}"], "a masked language model was wanted"),
        (["fill", "x", "--model", "{masked}", "--n-best", "0"], "--n-best 0"),
    ],
)
def test_mistakes_get_a_clear_line(
    bundles: dict[str, str], words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, errors = run([word.format(**bundles) for word in words], capsys)
    assert (code, lines) == (1, [])
    assert said in errors[-1]


@pytest.mark.parametrize("name", ["tag", "classify", "fill"])
def test_the_default_bundle_is_there_or_its_recipe_is_told(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, errors = run([name, "Harry [MASK]"], capsys)
    assert (code == 0 and len(lines) == 1) or "train it: voiceseq train experiment=" in errors[-1]
    recipe = COMMANDS[name].recipe
    assert recipe is not None
    assert (
        Path(__file__).parents[2] / "conf" / "experiment" / f"{recipe.split('experiment=')[1].split()[0]}.yaml"
    ).exists()
