"""Whisper at work: the contract of a recogniser on a small network, and real words with the real weights."""

import dataclasses
import math
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from places import ROOT

import voiceseq
from voiceseq.audio.files import read_audio
from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.core.search import Hypothesis as Found
from voiceseq.datasets.manifest import Clip
from voiceseq.errors import BundleError, ConfigError, InputError
from voiceseq.evaluation.speech import Heard, Hearing, search_report
from voiceseq.inference import whisper
from voiceseq.inference.speech import Decoding, Samples
from voiceseq.inference.whisper import WhisperRecogniser, WhisperSettings, banned, listened, repetitive, word_groups
from voiceseq.models.whisper import WhisperConfig, WhisperNetwork
from voiceseq.text.ngram import read_arpa
from voiceseq.text.pieces import Pieces
from voiceseq.text.vocabulary import Vocabulary

SYMBOLS = (*(bytes([number]) for number in range(256)), b" c", b" ca", b" cat", b" d", b" do", b"\xe2\x99\xaa")
PIECES = Pieces(SYMBOLS, {"end": 262, "start": 263, "no_speech": 264, "no_timestamps": 265}, 266)
LETTERS = Vocabulary.from_text(" 'abcdefghijklmnopqrstuvwxyz", specials=("blank",))
CONFIG = WhisperConfig(
    symbols=266, characters=len(LETTERS), tail_s=0.1, size=16, heads=2, encoder_layers=1, decoder_layers=2,
    audio_positions=100, text_positions=40,
)  # fmt: skip
SURE = WhisperSettings(least_log_prob=-100.0)


def network(config: WhisperConfig = CONFIG) -> WhisperNetwork:
    torch.manual_seed(2)
    made = WhisperNetwork(config)
    with torch.no_grad():
        made.embedding.weight.mul_(2.0)  # so that it has an opinion
        made.embedding.weight[[*range(97), *range(123, 256)]] *= 0.01  # and likes letters
    return made


def recogniser(settings: WhisperSettings = SURE, config: WhisperConfig = CONFIG) -> WhisperRecogniser:
    return WhisperRecogniser(network(config), PIECES, LETTERS if config.characters else None, settings)


def noise(*seconds: float) -> list[Samples]:
    chance = np.random.default_rng(4)
    return [chance.normal(size=round(16_000 * s)).astype(np.float32) * 0.1 for s in seconds]


@pytest.mark.parametrize("decoder", ["greedy", "beam", "ctc", "rescore"])
def test_answers_do_not_depend_on_which_pieces_come_together(decoder: str) -> None:
    ours, sounds = recogniser(), noise(0.9, 0.3, 1.4, 0.05)
    together = ours.recognise(sounds, Decoding(decoder=decoder))
    for sound, answer in zip(sounds, together, strict=True):
        (alone,) = ours.recognise([sound], Decoding(decoder=decoder))
        assert [one.text for one in alone] == [one.text for one in answer]
        assert alone[0].score == pytest.approx(answer[0].score, abs=1e-3)
    assert any(answer[0].text for answer in together)


@pytest.mark.parametrize("config", [CONFIG, dataclasses.replace(CONFIG, characters=0)], ids=["ctc", "attention"])
def test_words_have_times_in_order_within_the_sound_and_make_the_text(config: WhisperConfig) -> None:
    (sound,) = noise(1.5)
    for answer in recogniser(config=config).recognise([sound], Decoding(decoder="beam", nbest=4))[0]:
        assert answer.text == " ".join(word.word for word in answer.words)
        edges = [edge for word in answer.words for edge in (word.start, word.end)]
        assert edges == sorted(edges)
        assert all(0 <= edge <= 1.5 + CONFIG.tail_s + 0.02 for edge in edges)
        assert all(0 <= word.confidence <= 1 for word in answer.words)


@torch.no_grad()
def test_a_word_is_as_sure_as_the_decoder_that_wrote_it() -> None:
    """Times are CTC's; the decoder, asked for each piece in turn, says how sure the word is."""
    ours, sounds = recogniser(), noise(1.2)
    (found,) = ours.search(ours.hear(sounds), Decoding(), 1, 1)
    answer = ours.recognise(sounds, Decoding(decoder="greedy"))[0][0]
    heard = ours.hear(sounds)
    memory, caches, sure = ours.network.start(heard.frames, heard.lengths), None, []
    for token, following in pairwise((ours.start, ours.first, *found[0].tokens)):
        log_probs, caches = ours.network.step(torch.tensor([token]), caches, memory)
        sure.append(float(log_probs[0, following].exp()))
    groups = word_groups(PIECES, found[0].tokens)
    assert len(groups) == len(answer.words) > 0
    for word, (begin, end) in zip(answer.words, groups, strict=True):
        assert word.confidence == pytest.approx(math.prod(sure[1:][begin:end]) ** (1 / (end - begin)), rel=0.02)
    by_ctc = ours.recognise(sounds, Decoding(decoder="ctc"))[0][0]
    spans = ours.spelling.hypothesis(ours._letters(by_ctc.text), 0.0, heard.log_probs[0], 0.02, 0)
    assert [word.confidence for word in by_ctc.words] == [word.confidence for word in spans.words]


def test_the_n_best_are_different_and_in_order() -> None:
    (answers,) = recogniser().recognise(noise(1.0), Decoding(decoder="beam", beam=6, nbest=5))
    assert len({one.text for one in answers}) > 1
    scores = [one.score for one in answers]
    assert scores == sorted(scores, reverse=True)
    (fewer,) = recogniser().recognise(noise(1.0), Decoding(decoder="beam", beam=6))
    assert [one.text for one in fewer] == [answers[0].text]


def test_nothing_is_heard_in_nothing() -> None:
    ours = recogniser()
    sounds = [np.zeros(8000, np.float32), np.zeros(0, np.float32), np.full(800, np.nan, np.float32)]
    assert [answer[0].text for answer in ours.recognise(sounds, Decoding())] == ["", "", ""]
    assert ours.recognise([], Decoding()) == []
    with pytest.raises(InputError, match="one channel"):
        ours.recognise([np.zeros((2, 800), np.float32)], Decoding())


def test_one_bad_sample_does_not_spoil_a_piece() -> None:
    (sound,) = noise(1.0)
    spoilt = sound.copy()
    spoilt[500] = np.nan
    ours = recogniser()
    clean = ours.recognise([sound], Decoding())[0][0]
    assert clean.text
    assert abs(ours.recognise([spoilt], Decoding())[0][0].score) < 1e6


def test_what_is_written_is_limited_by_the_sound() -> None:
    """A network that never ends."""
    endless = network()
    with torch.no_grad():
        endless.embedding.weight[262] = 0.0
    ours = WhisperRecogniser(endless, PIECES, None, SURE)
    for seconds in (0.3, 1.0):
        heard = ours.hear(noise(seconds))
        tokens = ours.reader(Decoding())(heard)[0][0].tokens
        assert len(tokens) <= 8 * seconds + 8
    assert len(ours.reader(Decoding())(ours.hear(noise(1.9)))[0][0].tokens) <= CONFIG.text_positions - 2


def test_texts_that_nobody_said_are_dropped() -> None:
    sounds = noise(1.0)
    assert recogniser().recognise(sounds, Decoding())[0][0].text
    unsure = WhisperSettings(least_log_prob=0.0, no_speech=0.0)
    assert recogniser(unsure).recognise(sounds, Decoding())[0][0].text == ""
    assert recogniser(dataclasses.replace(unsure, no_speech=1.1)).recognise(sounds, Decoding())[0][0].text
    assert repetitive("again and again " * 9)
    assert not repetitive("a sentence as people say it, in which words like the and a come back now and then")
    assert not repetitive("no no no")


def test_what_is_brought_forward_is_judged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A language model may like what the decoder made up: "oh" of a noise once came so."""
    ours, sounds = recogniser(), noise(1.2)
    second = ours.recognise(sounds, Decoding(decoder="beam", beam=4, nbest=2))[0][1].text
    monkeypatch.setattr(whisper, "text_log_prob", lambda lm, text: 100.0 * (text == second) * len(text.split()))
    monkeypatch.setattr(ours, "lm", object())
    assert ours.recognise(sounds, Decoding(decoder="beam", beam=4))[0][0].text == second
    monkeypatch.setattr(ours, "_believable", lambda found, quiet: ours._text(found) != second)
    assert ours.recognise(sounds, Decoding(decoder="beam", beam=4))[0][0].text == ""


def test_a_hesitation_by_itself_is_a_noise_unless_it_was_heard_well() -> None:
    ours = recogniser()

    def believed(text: str, log_prob: float) -> bool:
        tokens = tuple(PIECES.encode(f" {text}"))
        return ours._believable(Found(tokens, log_prob, (log_prob * (len(tokens) + 1),), True), no_speech=0.0)

    assert not believed("um", math.log(0.6))
    assert believed("um", math.log(0.9))
    assert believed("mm hmm", math.log(0.6))
    assert believed("umbrella", math.log(0.6))


def test_hotwords_come_forward_and_exclude_nothing() -> None:
    sounds = noise(0.05)
    ours = recogniser()
    plain = ours.recognise(sounds, Decoding(decoder="beam"))[0][0].text
    assert "cat" not in plain
    boosted = ours.recognise(sounds, Decoding(hotwords=("cat",), hotword_weight=30.0))[0][0].text
    assert "cat" in boosted
    assert ours.recognise(sounds, Decoding(hotwords=("cat",), hotword_weight=0.0))[0][0].text == plain
    with pytest.raises(InputError, match="no letters"):
        ours.recognise(sounds, Decoding(hotwords=("?",)))


def test_a_language_model_orders_the_n_best(tmp_path: Path) -> None:
    ours, sounds = recogniser(), noise(1.0)
    before = ours.recognise(sounds, Decoding(decoder="beam", beam=6, nbest=6))[0]
    wanted = next(one.text for one in before[1:] if one.text and one.text != before[0].text)
    words = sorted({word for one in before for word in one.text.split()})
    rows = [f"{-0.1 if word in wanted.split() else -9.0}\t{word}" for word in words]
    arpa = "\n".join(
        ["\\data\\", f"ngram 1={len(words) + 3}", "", "\\1-grams:", "-9\t<s>", "-1\t</s>", "-9\t<unk>", *rows]
    )
    (tmp_path / "lm.arpa").write_text(arpa + "\n\n\\end\\\n")
    after = ours.recognise(sounds, Decoding(beam=6, lm=str(tmp_path / "lm.arpa"), lm_weight=50.0))[0]
    assert after[0].text == wanted or set(after[0].text.split()) <= set(wanted.split())
    ours.lm = read_arpa(tmp_path / "lm.arpa")  # as a bundle brings one
    assert ours.recognise(sounds, Decoding(decoder="beam", beam=6, lm_weight=50.0))[0][0].text == after[0].text
    assert ours.recognise(sounds, Decoding(decoder="beam", beam=6, lm_weight=0.0))[0][0].text == before[0].text


def test_given_texts_are_scored_as_the_search_scores_them() -> None:
    """Of what a search finds best it says the same again; a better text that it missed is its fault."""
    path, seconds = ROOT / "data" / "clips" / "speech" / "bank-call.flac", 4.3
    ours, sound = voiceseq.load("harper-valley").recogniser, read_audio(path, sample_rate=16_000, duration_s=seconds)
    for decoder in ("greedy", "beam", "rescore"):
        decoding = Decoding(decoder=decoder, nbest=1 if decoder == "greedy" else 3)
        found = ours.recognise([sound.samples], decoding)[0]
        again = ours.score_texts(sound.samples, [one.text for one in found], decoding)
        # of the best: lesser readings may be spelt in rarer pieces; 8 bits round by the rows that come together
        assert again[0] == pytest.approx(found[0].score, abs=1e-2)
        best, clip = found[0], Clip("x", path, seconds, text=found[0].text)
        missed, worse = Heard(clip, best.text, f"{best.text} zzz", best), Heard(clip, "zzz", best.text, best)
        report = search_report(ours, Hearing([missed, worse], [], seconds, 0.1), decoding)
        assert report is not None
        assert (report["search"]["count"], report["model"]["count"]) == (1, 1)


def test_what_cannot_be_is_refused() -> None:
    ours = recogniser()
    with pytest.raises(InputError, match="no decoder 'joint'; choose one of greedy, beam, ctc, rescore"):
        ours.recognise([], Decoding(decoder="joint"))
    with pytest.raises(InputError, match="one reading"):
        ours.recognise([], Decoding(decoder="greedy", nbest=3))
    with pytest.raises(InputError, match="1 or more"):
        ours.recognise([], Decoding(decoder="beam", beam=0))
    assert recogniser(config=dataclasses.replace(CONFIG, characters=0)).decoders == ("greedy", "beam")
    with pytest.raises(ConfigError, match="decoder is 'best'"):
        WhisperSettings(decoder="best")
    with pytest.raises(ConfigError, match="longest_s 31"):
        WhisperSettings(longest_s=31)


def test_signs_and_special_pieces_are_never_written() -> None:
    ban = banned(PIECES)
    assert ban[262] == 0
    assert ban[263] == ban[264] == ban[265] == -torch.inf
    assert ban[261] == ban[ord("[")] == -torch.inf
    assert ban[ord("a")] == ban[ord(".")] == ban[258] == ban[ord("7")] == 0


def test_words_begin_at_spaces() -> None:
    tokens = [*PIECES.encode(" cat"), *PIECES.encode("s do"), ord("g")]
    assert word_groups(PIECES, tokens) == [(0, 2), (2, 4)]
    assert word_groups(PIECES, [ord("a"), *PIECES.encode(" dog")]) == [(0, 1), (1, 3)]


def test_pieces_are_found_where_the_heads_looked() -> None:
    weights = torch.full((2, 3, 12), 0.01)
    for piece, frames in enumerate((range(0, 3), range(3, 9), range(9, 12))):
        weights[:, piece, list(frames)] = 0.3
    assert listened(weights) == [(0, 3), (3, 9), (9, 12)]
    crowded = listened(torch.rand(2, 5, 3))
    assert (len(crowded), crowded[0][0], crowded[-1][1]) == (5, 0, 3)


def test_a_bundle_opens_as_what_was_saved_and_damaged_ones_do_not(tmp_path: Path) -> None:
    def save(**changes: object) -> Path:
        vocabularies = {"pieces": PIECES.to_json(), "letters": LETTERS.to_json()}
        parts = {"config": CONFIG, "weights": network().state_dict(), "vocabularies": vocabularies} | changes
        return save_bundle(tmp_path / "whisper", kind="whisper", **parts)  # type: ignore[arg-type]

    settings = {"least_log_prob": -100.0, "decoder": "ctc"}
    ours = WhisperRecogniser.from_bundle(load_bundle(save(decoding=settings)))
    assert ours.decoders[0] == "ctc"
    sounds = noise(0.8)
    assert ours.recognise(sounds, Decoding("greedy"))[0] == recogniser().recognise(sounds, Decoding("greedy"))[0]
    for changes, message in (
        ({"vocabularies": {"letters": LETTERS.to_json()}}, "no vocabulary 'pieces'"),
        ({"vocabularies": {"pieces": PIECES.cut([])[0].to_json(), "letters": LETTERS.to_json()}}, "do not belong"),
        ({"vocabularies": {"pieces": LETTERS.to_json(), "letters": LETTERS.to_json()}}, "pieces.json"),
        ({"vocabularies": {"pieces": PIECES.to_json()}}, "no vocabulary 'letters'"),
        ({"config": dataclasses.replace(CONFIG, size=32)}, "does not fit"),
        ({"decoding": {"beams": 3}}, "beams"),
    ):
        with pytest.raises(BundleError, match=message):
            WhisperRecogniser.from_bundle(load_bundle(save(**changes)))


def test_the_real_weights_hear_real_words(shared: Path, tmp_path: Path) -> None:
    """The command makes a bundle of tiny.en; padded to 30 s it hears what was said."""
    folder = Path(os.environ.get("VOICESEQ_WHISPER", "/nowhere"))
    if not (folder / "tiny.en.pt").exists():
        pytest.skip("set VOICESEQ_WHISPER to a folder with tiny.en.pt and ref/whisper/assets/gpt2.tiktoken")
    from voiceseq.audio.files import read_clip
    from voiceseq.datasets.manifest import read_manifest

    ranks = folder / "ref" / "whisper" / "assets" / "gpt2.tiktoken"
    command = [sys.executable, "-m", "voiceseq", "bundle", "import", "whisper", str(folder / "tiny.en.pt")]
    made = subprocess.run(
        [*command, "--vocabulary", str(ranks), "--out", str(tmp_path / "tiny")], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout.strip() == str(tmp_path / "tiny")
    ours = WhisperRecogniser.from_bundle(load_bundle(tmp_path / "tiny"))
    clip = read_manifest(shared / "data" / "speech" / "librispeech" / "manifest-dev.jsonl")[0]
    (answer,) = ours.recognise([read_clip(clip.audio, clip.offset, clip.duration, 16_000)], Decoding())[0]
    assert answer.text == "Whereupon Lake laughed quietly, still looking on the ace of hearts with his sly eyes."
    times = {word.word: (word.start, word.end) for word in answer.words}
    assert times["Lake"][0] < times["laughed"][0] < times["hearts"][0] < times["eyes."][1] <= clip.duration + 0.02
