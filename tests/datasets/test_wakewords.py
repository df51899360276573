"""Who trains, who tunes, who tests; and which speech may stand for "nobody said it"."""

from pathlib import Path

import pytest

from voiceseq.datasets.corpora.wakewords import (
    holds_phrase,
    part_of,
    person,
    plain_phrase,
    split_people,
    spoken_word,
    unheard_speech,
    without_phrases,
)
from voiceseq.datasets.manifest import Clip, held_out, read_manifest, write_manifest
from voiceseq.errors import InputError


def clip(name: str, speaker: str | None = None, text: str | None = None, **extra: object) -> Clip:
    return Clip(name, Path("a.wav"), 1.0, text=text, speaker=speaker, extra=extra)


def test_nobody_is_in_two_parts_whatever_the_word() -> None:
    clips = [
        clip(f"{word}-{group}-{take}", f"s{group}{take}", label=word, group=f"g{group}")
        for word in ("alexa", "computer")
        for group in range(300)
        for take in range(2)
    ]
    parts = split_people(clips)
    people = {part: {person(one) for one in found} for part, found in parts.items()}
    assert sum(map(len, parts.values())) == len(clips)
    assert not people["train"] & people["dev"] | people["train"] & people["test"] | people["dev"] & people["test"]
    assert [len(people[part]) / 300 for part in ("train", "dev", "test")] == pytest.approx([0.6, 0.2, 0.2], abs=0.08)
    assert split_people(clips[::-1])["test"] == parts["test"][::-1]


def test_the_part_is_in_the_name_for_ever() -> None:
    assert [part_of(f"pv-g{number:03d}") for number in (52, 53, 54, 55, 57, 60)] == [
        "train", "dev", "train", "dev", "train", "train",
    ]  # fmt: skip


def test_who_speaks() -> None:
    assert person(clip("x", "anna", group="g1")) == "g1"
    assert person(clip("x", "anna", group=None)) == "anna"
    assert person(clip("x")) == "x"


def test_what_is_said() -> None:
    assert spoken_word(clip("x", word="Smart_Mirror", label="no")) == "smart mirror"
    assert spoken_word(clip("x", label=" view-glass ")) == "view glass"
    assert spoken_word(clip("x", text="alexa")) is None
    assert plain_phrase("Hey\tLuna ") == "hey luna"
    assert plain_phrase("Hey, Luna!") == "hey luna"  # as people write in a transcript
    assert plain_phrase("\u201eL'été \u2026\u201c") == "l'été"
    assert plain_phrase("?!") == ""


@pytest.mark.parametrize(
    ("text", "phrase", "held"),
    [
        ("the computer is on", "computer", True),
        ("two computers", "computer", True),
        ("my alexa's light", "alexa", True),
        ("a recomputerised text", "computer", False),
        ("compute it", "computer", False),
        ("look into the smart mirror now", "Smart-Mirror", True),
        ("smart people have a mirror", "smart mirror", False),
        ("", "computer", False),
        (None, "computer", False),
        ("anything", "", False),
    ],
)
def test_transcripts_with_the_phrase(text: str | None, phrase: str, held: bool) -> None:
    assert holds_phrase(text, phrase) is held


def test_clips_with_the_phrase_are_left_out() -> None:
    clips = [clip("a", text="a computer"), clip("b", text="a glass"), clip("c")]
    assert [one.id for one in without_phrases(clips, ["computer", "view glass"])] == ["b", "c"]


def test_unheard_speech_has_no_speaker_of_training(tmp_path: Path) -> None:
    (tmp_path / "a.wav").touch()
    for part in ("train", "extra", "dev"):
        rows = [
            Clip(f"{part}-{i}", tmp_path / "a.wav", 1.0, speaker=f"{'d' if part == 'dev' else 's'}{i % 50}")
            for i in range(100)
        ]
        write_manifest(tmp_path / "librispeech" / f"manifest-{part}.jsonl", rows)
    found = unheard_speech(tmp_path, share=0.3)
    assert {one.id for one in found if one.id.startswith("dev")} == {f"dev-{i}" for i in range(100)}
    trained = [one for one in found if not one.id.startswith("dev")]
    assert 0 < len(trained) < 120
    assert all(held_out(one.speaker, 0.3) for one in trained)
    with pytest.raises(InputError, match="librispeech"):
        unheard_speech(tmp_path / "nowhere")


def test_the_shared_words_split_evenly_and_the_shared_speech_is_eight_hours(shared: Path) -> None:
    folder = shared / "data" / "speech"
    clips = read_manifest(folder / "wakeword" / "picovoice" / "manifest.jsonl")
    parts = split_people(clips)
    for word in {spoken_word(one) for one in clips}:
        whole = sum(spoken_word(one) == word for one in clips)
        share = [sum(spoken_word(one) == word for one in parts[part]) / whole for part in ("train", "dev", "test")]
        assert share == pytest.approx([0.66, 0.17, 0.17], abs=0.03), word
    speech = unheard_speech(folder)
    assert 7.9 < sum(one.duration for one in speech) / 3600 < 8.5
    ids = {one.id for one in speech} - {one.id for one in without_phrases(speech, ["computer"])}
    assert ids <= {"so-015030115", "so-001570212", "cv-35002900"} or len(ids) < 6
