"""Synthesisers: graphs opened up without a change of sound, times that are true, plans that keep their proportions."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.datasets.voices import (
    ENGINES,
    Manner,
    Sentence,
    Voice,
    classic,
    find_voices,
    graphs,
    kokoro,
    phonemes,
    piper,
    plan,
    speak,
    speaking,
    speech_bounds,
    utter,
)
from voiceseq.datasets.voices.planning import SHARES, engine_order
from voiceseq.datasets.voices.sentences import carrier, carriers, talk_without, word_list
from voiceseq.datasets.voices.voice import Speech, sentence_of
from voiceseq.errors import InputError, MissingDependencyError

RATE, HOP, SPEAKERS = 8000, 16, 5
SYMBOLS = {s: [i] for i, s in enumerate("_^$ ,.abcdeiklmnopstuvɒɑxʘ")}
UNTRAINED = "ɒʘ"


@pytest.fixture(autouse=True)
def no_packaged_voices(monkeypatch):
    """What is installed on this machine is no part of a test."""
    monkeypatch.setattr(piper, "packaged_configs", list)


@pytest.fixture
def plain_reading(monkeypatch):
    """Letters for phonemes, so that nothing depends on an espeak."""
    phonemes.ipa.cache_clear()
    monkeypatch.setattr(phonemes, "reader", lambda: lambda clause, accent: clause.strip().lower())
    yield
    phonemes.ipa.cache_clear()


def tiny_piper(
    folder: Path, speakers: int = SPEAKERS, name: str = "en_US-libritts_r-medium", symbols: str = "enc_p.emb.weight"
) -> Path:
    """A model with a Piper voice's inputs, lookups, noise and durations, and next to nothing else.

    ``symbols`` is what the table of the phonemes is called.
    """
    onnx = pytest.importorskip("onnx")
    helper, floats, whole = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    rng = np.random.default_rng(1)
    table = rng.uniform(0.5, 1.5, (len(SYMBOLS), 4)).astype("f")
    table[[SYMBOLS[s][0] for s in UNTRAINED]] *= 0.01
    voices = rng.normal(size=(speakers, 6)).astype("f")
    numbers = {
        "hop": np.array([HOP]),
        "one": np.array([1]),
        "ones": np.array([1, 1]),
        "axis": np.array([2]),
        "last": np.array([1]),
    }
    node = helper.make_node
    nodes = [
        node("Gather", [symbols, "input"], ["emb"]),
        node("Gather", ["emb_g.weight", "sid"], ["g"]),
        node("Gather", ["scales", "zero"], ["noise_scale"]),
        node("Gather", ["scales", "single"], ["length_scale"]),
        node("Abs", ["emb"], ["size"]),
        node("ReduceSum", ["size", "axis"], ["w"], keepdims=0),
        node("Mul", ["w", "length_scale"], ["w_scaled"]),
        node("Ceil", ["w_scaled"], ["w_ceil"]),
        node("ReduceSum", ["w_ceil", "last"], ["frames"], keepdims=0),
        node("Cast", ["frames"], ["count"], to=whole),
        node("Mul", ["count", "hop"], ["length"]),
        node("Concat", ["ones", "length"], ["shape"], axis=0),
        node("ConstantOfShape", ["shape"], ["blank"]),
        node("RandomNormalLike", ["blank"], ["z"], dtype=1),
        node("Mul", ["z", "noise_scale"], ["loud"]),
        node("ReduceMean", ["g"], ["level"], axes=[1], keepdims=1),
        node("Add", ["loud", "level"], ["output"]),
    ]
    inputs = [("input", whole, [1, "t"]), ("input_lengths", whole, [1]), ("scales", floats, [3]), ("sid", whole, [1])]
    constants = {
        symbols: table,
        "emb_g.weight": voices,
        "zero": np.array(0),
        "single": np.array(1),
        **numbers,
    }
    if speakers == 1:
        nodes[1] = node("Identity", ["emb_g.weight"], ["g"])
        inputs.pop()
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(*entry) for entry in inputs],
        [helper.make_tensor_value_info("output", floats, [1, 1, None])],
        [onnx.numpy_helper.from_array(value, key) for key, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(folder / f"{name}.onnx"))
    config = {
        "audio": {"sample_rate": RATE},
        "espeak": {"voice": "en-us"},
        "num_speakers": speakers,
        "phoneme_id_map": SYMBOLS,
        "speaker_id_map": {f"s{i}": i for i in range(speakers)} if speakers > 1 else {},
    }
    (folder / f"{name}.onnx.json").write_text(json.dumps(config))
    return folder / f"{name}.onnx"


@pytest.mark.parametrize("symbols", ["enc_p.emb.weight", "sid"])
def test_a_voice_of_one_speaker_speaks_whatever_its_weights_are_called(tmp_path, plain_reading, symbols):
    pytest.importorskip("onnxruntime")
    tiny_piper(tmp_path, speakers=1, name="en_US-joe-medium", symbols=symbols)  # joe's own table is called "sid"
    (voice,) = piper.Piper().find([tmp_path])
    assert len(speak("cat", voice)[0]) > 0


@pytest.fixture
def voices(tmp_path, plain_reading) -> list[Voice]:
    pytest.importorskip("onnxruntime")
    tiny_piper(tmp_path)
    return piper.Piper().find([tmp_path])


def test_an_opened_graph_says_what_the_closed_one_says(voices):
    import onnxruntime

    closed = onnxruntime.InferenceSession(str(voices[0].path), providers=["CPUExecutionProvider"])
    ids = [1, 0, *(n for s in "cat" if s in SYMBOLS for n in (SYMBOLS[s][0], 0)), 2]
    for number in (0, 3):
        feeds = {"input": np.array([ids]), "input_lengths": np.array([len(ids)]), "sid": np.array([number])}
        (wanted,) = closed.run(None, {**feeds, "scales": np.array([0, 1 / 0.8, 0], dtype="f")})
        samples, rate = speak("cat", voices[number], noise=0.0, speed=0.8)
        assert rate == RATE
        np.testing.assert_array_equal(samples, wanted.reshape(-1))


def test_a_seed_decides_the_noise_and_more_noise_begins_alike(voices, monkeypatch):
    first, again = (speak("cat on a mat", voices[1], seed=5)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - speak("cat on a mat", voices[1], seed=6)[0]).max() > 0.1
    assert abs(float(first.std()) - 0.667) < 0.1  # noise it is, and of the scale that was asked for
    monkeypatch.setattr(piper, "FRAMES_A_PHONEME", 0)
    short = speak("cat on a mat", voices[1], seed=5)[0]  # too little: 50 draws again and again
    np.testing.assert_array_equal(short[:50], first[:50])
    np.testing.assert_allclose(short, np.resize(short[:50], len(first)), atol=1e-6)


def test_blends_go_from_one_speaker_to_the_other(voices):
    a, b = voices[0], voices[2]
    level = lambda voice, **manner: speak("cat", voice, noise=0.0, **manner)[0].mean()  # noqa: E731
    assert level(a, other=b, share=0.0) == pytest.approx(level(a), abs=1e-6)
    assert level(a, other=b, share=1.0) == pytest.approx(level(b), abs=1e-6)
    middle = level(a, other=b, share=0.5)
    assert abs(middle - level(a)) > 1e-4
    assert abs(middle - level(b)) > 1e-4


@given(st.integers(0, 10_000), st.floats(0, 1))
@settings(deadline=None)
def test_a_spherical_blend_keeps_length_and_plane(seed, share):
    a, b = np.random.default_rng(seed).normal(size=(2, 8))
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    mixed = graphs.spherical(a, b, share).astype("d")
    assert np.linalg.norm(mixed) == pytest.approx(1, abs=1e-5)
    whole = np.arccos(np.clip(a @ b, -1, 1))
    assert np.arccos(np.clip(a @ mixed, -1, 1)) == pytest.approx(share * whole, abs=2e-3)


def test_pieces_are_timed_by_the_durations(voices):
    model = piper.opened(graphs.stamp(voices[0].path))
    said = model.say(["no cat", "pat", ", nil"], model.vector(voices[0], Manner()), Manner(speed=0.5))
    sizes = {s: float(np.abs(model_table(voices[0].path)[n[0]]).sum()) for s, n in SYMBOLS.items()}

    def seconds(text: str) -> float:
        return sum(np.ceil(np.float32(sizes[s] * 2)) + np.ceil(np.float32(sizes["_"] * 2)) for s in text) * HOP / RATE

    lead = seconds("^")
    start = lead + seconds("no cat ")
    after = start + seconds("pat, ")
    wanted = [(lead, lead + seconds("no cat")), (start, start + seconds("pat")), (after, after + seconds("nil"))]
    np.testing.assert_allclose(said.spans, wanted, atol=1e-9)
    assert len(said.samples) / RATE == pytest.approx(after + seconds("nil") + np.ceil(sizes["$"] * 2) * HOP / RATE)


def model_table(path: Path) -> np.ndarray:
    return graphs.initializer(graphs.read_graph(path), "enc_p.emb.weight")


def test_symbols_that_a_voice_never_met_stand_near_ones_it_did(voices):
    model = piper.opened(graphs.stamp(voices[0].path))
    assert model.symbols["ɒ"] == model.symbols["ɑ"]
    assert "ʘ" not in model.symbols
    np.testing.assert_array_equal(speak("lɒt", voices[0], seed=1)[0], speak("lɑtʘ", voices[0], seed=1)[0])


def test_one_speaker_needs_no_number(tmp_path, plain_reading):
    pytest.importorskip("onnxruntime")
    tiny_piper(tmp_path, speakers=1, name="en_US-somebody-low")
    (voice,) = find_voices_of("piper", tmp_path)
    assert (voice.speaker, voice.licence, voice.ships) == ("", "see its card", False)
    assert len(speak("cat", voice)[0])


def find_voices_of(engine: str, folder: Path) -> list[Voice]:
    return ENGINES[engine].find([folder])


def test_folders_hold_all_sorts(tmp_path, monkeypatch):
    tiny_piper(tmp_path / "below")
    (tmp_path / "lonely.onnx.json").write_text("{}")  # no model beside it
    for name, text in (("broken", "{"), ("french", '{"espeak": {"voice": "fr"}}'), ("other", '{"a": 1}')):
        (tmp_path / f"{name}.onnx").write_bytes(b"")
        (tmp_path / f"{name}.onnx.json").write_text(text)
    found = find_voices_of("piper", tmp_path)
    assert [voice.speaker for voice in found] == [f"s{i}" for i in range(SPEAKERS)]
    assert all(voice.ships and voice.licence == "CC BY 4.0" for voice in found)
    assert find_voices_of("piper", tmp_path / "below/en_US-libritts_r-medium.onnx") == found
    monkeypatch.setenv("VOICESEQ_VOICES", str(tmp_path))
    assert [voice for voice in find_voices() if voice.path == found[0].path] == found
    with pytest.raises(InputError, match="no folder"):
        find_voices(tmp_path / "nowhere")


def test_a_damaged_model_is_told(tmp_path, plain_reading):
    path = tiny_piper(tmp_path)
    path.write_bytes(b"\x08\x08 no model")
    with pytest.raises(InputError, match="get it again"):
        speak("cat", find_voices_of("piper", tmp_path)[0])


def test_kokoro_takes_styles_blends_and_tells_times(tmp_path, plain_reading, monkeypatch):
    tiny_kokoro(tmp_path)
    monkeypatch.setattr(kokoro, "vocabulary", lambda: {s: [i + 1] for i, s in enumerate(" ,abcdefghiklmnoprstu")})
    found = find_voices_of("kokoro", tmp_path)
    assert [(voice.name, voice.accent) for voice in found] == [
        ("af_one", "en-us"),
        ("bm_two", "en-gb"),
        ("ff_three", "fr"),
    ]
    level = lambda **manner: speak("cat", found[0], **manner)[0].mean()  # noqa: E731
    own, other = level(), speak("cat", found[1])[0].mean()
    assert own != other
    assert level(other=found[1], share=0.25) == pytest.approx(0.75 * own + 0.25 * other, rel=1e-5)
    said = ENGINES["kokoro"].say(["so", "cat", ", go"], found[0], Manner(speed=0.5))
    frame = 3 * 2 * 8 / 24_000  # three a symbol, half as fast, eight samples each; one symbol of padding before
    places = [(1, 3), (4, 7), (9, 11)]
    wanted = [(a * frame - kokoro.EARLY_S, b * frame - kokoro.EARLY_S) for a, b in places]
    np.testing.assert_allclose(said.spans, wanted, atol=1e-6)
    with pytest.raises(InputError, match="shorter"):
        speak("cat " * 200, found[0])


def tiny_kokoro(folder: Path) -> None:
    """Three frames a symbol over the speed; a sound as loud as the style's mean."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, floats, whole = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    node = helper.make_node
    nodes = [
        node("Cast", ["tokens"], ["t"], to=floats),
        node("Mul", ["t", "nought"], ["zeros"]),
        node("Add", ["zeros", "three"], ["threes"]),
        node("Div", ["threes", "speed"], ["raw"]),
        node("Round", ["raw"], ["rounded"]),
        node("Clip", ["rounded", "one"], ["durations"]),
        node("ReduceSum", ["durations", "axis"], ["frames"], keepdims=0),
        node("Cast", ["frames"], ["count"], to=whole),
        node("Mul", ["count", "eight"], ["length"]),
        node("ReduceMean", ["style"], ["mean"], keepdims=0),
        node("Expand", ["mean", "length"], ["audio"]),
    ]
    constants = {
        "nought": np.float32(0),
        "three": np.float32(3),
        "one": np.float32(1),
        "axis": np.array([1]),
        "eight": np.array([8]),
    }
    graph = helper.make_graph(
        nodes,
        "tiny",
        [
            helper.make_tensor_value_info("tokens", whole, [1, "t"]),
            helper.make_tensor_value_info("style", floats, [1, 256]),
            helper.make_tensor_value_info("speed", floats, [1]),
        ],
        [helper.make_tensor_value_info("audio", floats, [None])],
        [onnx.numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8), str(folder / "kokoro.onnx")
    )
    rng = np.random.default_rng(0)
    names = ("af_one", "bm_two", "ff_three")
    np.savez(folder / "voices.npz", **{name: rng.normal(size=(510, 1, 256)).astype("f") + 1 for name in names})


@given(st.lists(st.text("abc ,.", max_size=6), min_size=1, max_size=4))
@settings(deadline=None)
def test_spelling_keeps_every_symbol_and_every_place(pieces):
    symbols = {s: [n, 0] for n, s in enumerate("abc ,.", 1)}
    ids, places = phonemes.spell(pieces, symbols)
    said = "".join("abc ,."[n - 1] for n in ids[::2])
    assert said.replace(" ", "") == "".join(pieces).replace(" ", "")
    for piece, (start, end) in zip(pieces, places, strict=True):
        assert said[start // 2 : end // 2] == piece.strip(" ,.")


@pytest.mark.parametrize(
    ("rule", "said", "becomes"),
    [
        ("unflapped", "kəmpjˈuːɾɚ", "kəmpjˈuːtɚ"),
        ("r-less", "kəmpjˈuːɾɚ", "kəmpjˈuːɾə"),
        ("r-less", "dʒˈɑːɹvɪs", "dʒˈɑːvɪs"),
        ("r-less", "mˈɪɹɚ", "mˈɪɹə"),  # between vowels it stays
        ("full-vowels", "ɐlˈɛksə", "ʌlˈɛksʌ"),
        ("full-vowels", "snˈəʊbɔɪ", "snˈəʊbɔɪ"),
        ("open-vowels", "lˈuːnə", "lˈuːnɑ"),
        ("round-vowels", "kəmpjˈuːɾɚ", "kɔmpjˈuːɾɚ"),
        ("round-vowels", "mˈɑːɹvɪn", "mˈɑːɹvɪn"),
        ("tense", "dʒˈɑːɹvɪs", "dʒˈɑːɹvis"),
        ("tense", "hˈeɪ", "hˈeɪ"),
        ("stops-for-th", "ðə θˈɪŋ", "də tˈɪŋ"),
        ("v-for-w", "wˈʌn", "vˈʌn"),
        ("voiceless-end", "dˈɔɡz, hˈæd", "dˈɔɡs, hˈæt"),
        ("no-stress", "ˌɪnfɚmˈeɪʃən", "ɪnfɚmeɪʃən"),
        ("even-stress", "ˌɪnfɚmˈeɪʃən", "ˈɪnfɚmˈeɪʃən"),
    ],
)
def test_rules_say_it_as_others_would(rule, said, becomes):
    assert phonemes.RULES[rule](said) == becomes


def test_reading_keeps_punctuation_and_refuses_nothing_to_say(plain_reading):
    assert phonemes.pronounce(["Hello ,  you there!?", "", "."]) == ["hello, you there!", "", "."]
    for pieces in (["..."], [""], ["", "?!"]):
        with pytest.raises(InputError, match="nothing to say"):
            phonemes.pronounce(pieces)
    with pytest.raises(InputError, match=r"no pronunciation rule 'lisp'.*unflapped"):
        phonemes.pronounce(["hello"], rules=("lisp",))


def test_without_an_espeak_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(phonemes.shutil, "which", lambda name: None)
    with pytest.raises(MissingDependencyError, match="apt install espeak-ng"):
        phonemes.program_reader()


@given(
    st.integers(0, 4000),
    st.integers(400, 4000),
    st.integers(0, 4000),
    st.floats(1e-3, 1),
    st.sampled_from([8000, 16000]),
)
@settings(deadline=None)
def test_speech_is_found_to_ten_milliseconds(before, length, after, level, rate):
    burst = np.random.default_rng(length).uniform(0.5, 1, length) * np.where(np.arange(length) % 2, 1, -1)
    samples = np.concatenate([np.zeros(before), burst * level, np.zeros(after)]).astype("f")
    samples += np.float32(level * 1e-3) * np.sin(np.arange(len(samples)))  # a hum 60 dB below
    start, end = speech_bounds(samples, rate)
    assert abs(start - before) <= 0.01 * rate
    assert abs(end - before - length) <= 0.01 * rate


def test_silence_and_nothing_have_no_speech():
    for samples in (np.zeros(0), np.zeros(50), np.zeros(8000)):
        assert speech_bounds(samples.astype("f"), 8000) == (0, 0)


class FakeEngine:
    """Says a burst a piece, each of its own length, with silence around; ``told`` are the spans."""

    name, kind, licence, install, timed, blends = "fake", "fake", "none", "nothing", True, False
    told: tuple[tuple[float, float], ...] | None = ((0.2, 0.5), (0.5, 1.0), (1.0, 1.4))

    def find(self, folders):
        return [Voice("fake", "one"), Voice("fake", "two", ships=False)]

    def say(self, pieces, voice, manner):
        samples = np.zeros(32_000, dtype="f")
        samples[3200:22_400] = np.where(np.arange(19_200) % 3, 0.2, -0.1)
        return Speech(samples, 16_000, self.told)


@pytest.fixture
def fake(monkeypatch):
    engine = FakeEngine()
    monkeypatch.setitem(ENGINES, "fake", engine)
    return engine


def test_an_utterance_is_trimmed_and_knows_its_phrase(fake):
    said = utter(Sentence("b", "a", "c"), Voice("fake", "one"), margin_s=0.1)
    assert len(said.samples) == pytest.approx(1.4 * 16_000, abs=160)
    assert np.abs(said.samples).max() == pytest.approx(0.7, abs=1e-6)
    assert said.speech == pytest.approx((0.1, 1.3), abs=0.01)
    assert said.phrase == pytest.approx((0.4, 0.9), abs=0.01)
    fake.told = ((0.2, 0.2), (0.25, 1.2), (1.2, 1.2))  # alone: the sound's own ends, but not far from what is told
    said = utter(Sentence("b", "", "."), Voice("fake", "one"), margin_s=0.0)
    assert said.speech == said.phrase
    assert said.phrase == pytest.approx((0.0, 1.06), abs=0.01)
    fake.told = None
    assert utter(Sentence("b", "a"), Voice("fake", "one")).phrase is None
    alone = utter(Sentence("b"), Voice("fake", "one"))
    assert alone.phrase == alone.speech


def test_bad_requests_are_told(fake):
    one = Voice("fake", "one")
    with pytest.raises(InputError, match="nothing to say"):
        speak(" ?! ", one)
    for speed in (0, -1, float("nan"), 50):
        with pytest.raises(InputError, match="out of range"):
            speak("cat", one, speed=speed)
    with pytest.raises(InputError, match="different models"):
        speak("cat", one, other=Voice("espeak", "en-us"), share=0.5)
    with pytest.raises(InputError, match="no synthesiser 'silero'"):
        speak("cat", Voice("silero", "en"))
    fake.say = lambda pieces, voice, manner: Speech(np.zeros(8000, dtype="f"), 16_000)
    with pytest.raises(InputError, match="stays silent"):
        utter(Sentence("cat"), one)


def test_a_sentence_is_joined_as_it_is_written():
    assert sentence_of(("Now,", "computer", ", go on.")) == "Now, computer, go on."
    assert Sentence("computer", after="?").text == "computer?"
    assert Sentence("computer", before="hey").text == "hey computer"


MANY = [
    *(Voice("piper", "m", str(i), path=Path("m.onnx")) for i in range(30)),
    *(Voice("kokoro", f"af_{i}", path=Path("k.onnx")) for i in range(6)),
    *(Voice("espeak", "en-us", f"f{i}", ships=i > 0) for i in range(4)),
]


@given(st.integers(1, 120), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_a_plan_keeps_its_proportions_and_deals_every_voice(count, seed):
    takes = plan("computer", count, seed, MANY)
    assert takes == plan("computer", count, seed, MANY)
    assert len(takes) == count
    shares = {
        name: SHARES[name] / sum(SHARES[n] for n in ("piper", "kokoro", "espeak"))
        for name in ("piper", "kokoro", "espeak")
    }
    used = Counter(take.voice.engine for take in takes)
    assert all(abs(used[name] - share * count) <= 1 for name, share in shares.items())
    for voices in ([take.voice for take in takes if take.voice.engine == name] for name in shares):
        counts = Counter(voices)
        assert not counts or max(counts.values()) - min(counts.values()) <= 1
    for take in takes:
        other = take.manner.other
        assert other is None or (
            other.path == take.voice.path and other != take.voice and take.voice.engine != "espeak"
        )
        assert 0.4 < take.manner.speed < 1.3
    assert len({take.manner.seed for take in takes}) == count


def test_plans_vary_and_obey(fake):
    takes = plan("computer", 200, 3, MANY)
    assert takes != plan("computer", 200, 4, MANY)
    assert 60 < sum(take.manner.other is not None for take in takes) < 140
    assert {take.sentence.after for take in takes} == {"", ".", ",", "!", "?"}
    assert len({take.manner.accent for take in takes}) > 5
    assert any("unflapped" in take.manner.rules for take in takes)
    assert all(take.voice.ships for take in plan("computer", 40, 3, MANY, ships=True))
    sentences = carriers("computer", 10)
    said = plan(sentences, 25, 0, MANY)
    assert {take.voice.engine for take in said} == {"piper", "kokoro"}  # those that tell when the phrase was said
    assert [take.sentence for take in said] == [sentences[i % 10] for i in range(25)]
    for empty in ([], [Voice("espeak", "x", ships=False)]):
        with pytest.raises(InputError, match="voiceseq voices"):
            plan("computer", 3, voices=empty, ships=True)
    with pytest.raises(InputError, match="voiceseq voices"):
        plan(sentences, 3, voices=[Voice("espeak", "x")])
    assert set(engine_order({"fake"}, 3, SHARES)) == {"fake"}


def test_manners_are_told_by_what_is_not_usual():
    assert Manner().told() == {}
    told = Manner(speed=0.5, other=MANY[1], share=0.3, rules=("tense",)).told()
    assert told == {"speed": 0.5, "other": "piper/m/1", "share": 0.3, "rules": ("tense",)}
    json.dumps(told)


def test_the_lists_are_whole():
    lists = {name: word_list(name) for name in ("carriers", "sentences", "phrases")}
    assert all(len(lines) == len(set(lines)) for lines in lists.values())
    assert [len(lists[name]) >= least for name, least in (("carriers", 150), ("sentences", 300), ("phrases", 200))] == [
        True
    ] * 3
    assert all(line.isascii() for lines in lists.values() for line in lines)
    kinds = Counter(
        (bool(s.before), any(c.isalpha() for c in s.after)) for s in (carrier("x", t) for t in lists["carriers"])
    )
    assert min(kinds[False, True], kinds[True, False], kinds[True, True]) > 30
    with pytest.raises(InputError, match="no list"):
        word_list("nothing")


def test_carriers_use_every_template_and_keep_the_phrase_apart():
    templates = ["{}, go.", "Stop, {}.", "Ask {} now"]
    said = carriers("view glass", 7, 2, templates)
    assert said == carriers("view glass", 7, 2, templates)
    assert all(sentence.phrase == "view glass" for sentence in said)
    ends = Counter(
        next(t for t in templates if t.split("{}")[0].strip() in s.before and t.split("{}")[1].strip(" .") in s.after)
        for s in said
    )
    assert max(ends.values()) - min(ends.values()) <= 2
    assert carrier("hey luna", "Now, {}, go.") == Sentence("hey luna", "Now,", ", go.")
    for template in ("none here", "{} and {}"):
        with pytest.raises(InputError, match="needs one"):
            carrier("x", template)
    assert any("bridge" in line.split() for line in word_list("sentences"))
    assert not any(" bridge " in f" {line.strip('.')} " for line in talk_without("Bridge"))
    assert "The lift is broken, so we have to use the stairs." in talk_without("stair")
    assert "thank you" not in talk_without("Thank  you!", "phrases")


def test_only_voices_that_may_be_used_have_an_engine():
    assert not {"silero", "mbrola", "rhvoice"} & set(ENGINES)
    assert not any("mb-" in accent for accent in phonemes.ACCENTS)
    assert {"kal", "kal16"}.isdisjoint(classic.FLITE_VOICES)


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "fake"])
def test_what_is_installed_speaks(name):
    voices = [voice for voice in find_voices() if voice.engine == name]
    if not voices:
        pytest.skip(f"no voice of {name} here: {ENGINES[name].install}")
    slow, fast = (utter(Sentence("good morning"), voices[0], Manner(speed=speed, seed=1)) for speed in (0.8, 1.25))
    for said in (slow, fast):
        assert said.samples.dtype == np.float32
        assert np.isfinite(said.samples).all()
        assert 0.3 < said.speech[1] - said.speech[0] < 2.5
    assert slow.speech[1] - slow.speech[0] > 1.1 * (fast.speech[1] - fast.speech[0])
    again = utter(Sentence("good morning"), voices[0], Manner(speed=0.8, seed=1))
    np.testing.assert_allclose(slow.samples, again.samples, atol=2e-3)  # pico dithers a little
    if ENGINES[name].timed:
        said = utter(Sentence("morning", "Good", ", everybody."), voices[-1], Manner(seed=2))
        assert said.phrase is not None
        assert said.speech[0] < said.phrase[0] < said.phrase[1] < said.speech[1]
        assert 0.1 < said.phrase[1] - said.phrase[0] < 0.9


def test_both_readers_of_text_agree_where_both_are_there():
    if phonemes.shutil.which("espeak-ng") is None or phonemes.importlib.util.find_spec("piper") is None:
        pytest.skip("needs both: apt install espeak-ng, pip install piper-tts")
    program, package = phonemes.program_reader(), phonemes.reader()
    for accent in phonemes.ACCENTS:
        for word in ("computer", "jarvis", "marvin"):
            assert program(word, accent) == package(word, accent)


def test_folders_are_looked_for_where_users_keep_things(monkeypatch, tmp_path):
    monkeypatch.delenv("VOICESEQ_VOICES", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert speaking.voice_folders() == [tmp_path / "voiceseq/voices"]
    monkeypatch.setenv("VOICESEQ_VOICES", f"{tmp_path}/a:{tmp_path}/b")
    assert speaking.voice_folders() == [tmp_path / "a", tmp_path / "b"]
    assert speaking.voice_folders(tmp_path) == [tmp_path]
