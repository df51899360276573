"""Tasks of text and a look inside, over HTTP: what the commands say, and what is missing by name."""

import dataclasses
import time

import httpx
import numpy as np
import pytest
import soundfile
import torch
from serving import FAKE, catalogue, serving
from small_sentences import make_bundles
from small_speech import small_bundle
from voiceseq.apps.serve.catalogue import Catalogue, open_catalogue
from voiceseq.apps.serve.limits import Limits

import voiceseq
from voiceseq.bundles import save_bundle
from voiceseq.inference.dates import read_dates
from voiceseq.models.seq2seq import Seq2SeqConfig, seq2seq
from voiceseq.text.vocabulary import Vocabulary

GERMAN, ENGLISH = ["ein Hund läuft", "ein Kind schläft"], ["a dog runs", "a child sleeps"]


def ask(server, status=200, **order):
    reply = httpx.post(f"{server.url}/v1/text", json=order, timeout=60)
    assert reply.status_code == status, reply.text
    return reply.json()


def test_a_date_and_where_it_looked(server):
    answer = ask(server, task="dates", text="the 20th of July, 1969")
    (reading,) = read_dates(voiceseq.load("dates"), ["the 20th of July, 1969"])
    assert (answer["output"], answer["model"]) == (reading.date, "dates") == ("1969-07-20", "dates")
    assert answer["probability"] == pytest.approx(reading.probability, abs=1e-4)
    drawn = answer["attention"]
    assert (len(drawn["weights"]), len(drawn["weights"][0])) == (len("1969-07-20") + 1, len("the 20th of July, 1969"))
    assert ask(server, task="dates", text="no date at all in here")["output"] == ""


def test_a_text_is_written_on_as_the_command_does(server):
    answer = ask(server, task="generate", text="ROMEO:", length=40, seed=3)
    assert answer["output"] == voiceseq.load("shakespeare").generate(["ROMEO:"], 40, seed=3)[0]


def test_the_missing_bundle_is_named(server):
    told = ask(server, 404, task="translate", text="bonjour")["error"]["message"]
    assert "fra-eng" in told
    assert "--model" in told
    assert "served are: none" in ask(server, 404, task="tag", text="Harry", model="luna")["error"]["message"]


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ({"task": "sing", "text": "la"}, "task"),
        ({"task": "dates", "text": "x" * 5000}, "text"),
        ({"task": "dates", "text": "today", "colour": "red"}, "colour"),
        ({"task": "generate", "text": "a", "length": 10**6}, "length"),
    ],
)
def test_what_cannot_be_is_told(server, order, reason):
    assert reason in ask(server, 400, **order)["error"]["message"]


def test_a_full_house_and_a_slow_text_are_told():
    served = open_catalogue(["shakespeare"])
    with serving(served, Limits(texts=1, short_s=0.05, stop_s=5.0)) as server:
        told = ask(server, 422, task="generate", text="O", length=200)
        assert "longer than" in told["error"]["message"]
        while server.service.gate.inside["texts"]:  # the answer goes out before its place is free
            time.sleep(0.01)
        with server.service.gate.enter("texts"):
            told = ask(server, 503, task="generate", text="O", length=1)
        assert "all places are taken" in told["error"]["message"]


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A server with a tagger of names, one of words, and a translator; what they say is by chance."""
    folder = tmp_path_factory.mktemp("bundles")
    paths = [path for name, path in make_bundles(folder).items() if name in ("names", "speech")]
    source, target = (
        Vocabulary.from_text(text, "word", specials=("unknown", "bos", "eos")) for text in (GERMAN, ENGLISH)
    )
    torch.manual_seed(3)
    network = seq2seq(Seq2SeqConfig(len(source), len(target), "gru", size=8, embedding=8))
    vocabularies = {"source": source.to_json(), "target": target.to_json()}
    paths.append(save_bundle(folder / "de-en", kind="translator", config=dataclasses.asdict(network.config),
                             weights=network.state_dict(), vocabularies=vocabularies))  # fmt: skip
    with serving(open_catalogue(paths)) as server:
        yield server, dict(zip(("names", "speech", "de-en"), paths, strict=True))


def test_a_translation_and_where_it_looked(reader):
    server, paths = reader
    answer = ask(server, task="translate", text="ein Hund läuft")
    assert answer["output"] == voiceseq.load(paths["de-en"]).translate(["ein Hund läuft"])[0]
    assert answer["attention"]["columns"] == ["ein", "Hund", "läuft"]
    assert answer["attention"]["rows"] == [*answer["output"].split(), "end"]
    assert len(answer["candidates"]) > 1
    assert "attention" in ask(server, task="translate", text="ein Hund " * 100)  # in parts, and without a picture
    assert "another language" in ask(server, 400, task="translate", text="\N{SNOWMAN}")["error"]["message"]


def test_tags_of_names_and_of_words(reader):
    server, paths = reader
    text = "Yesterday, Harry Potter met Hermione."
    for name in ("names", "speech"):
        answer = ask(server, task="tag", text=text, model=name)
        (tagged,) = voiceseq.load(paths[name]).tag([text])
        assert answer["output"] == tagged.marked()
        assert [one["tag"] for one in answer["tokens"]] == list(tagged.tags)
        assert [(one["start"], one["end"], one["type"]) for one in answer["spans"]] == tagged.spans
        assert all(text[one["start"] : one["end"]] == one["word"] for one in answer["tokens"])
    assert ask(server, task="tag", text="")["tokens"] == []


@pytest.fixture(scope="module")
def small_server(tmp_path_factory):
    """With a recogniser that has a network, if a small one."""
    path = small_bundle(tmp_path_factory.mktemp("bundle") / "small")
    with serving(Catalogue((*open_catalogue([path]).models, *catalogue(FAKE, words=("computer",)).models))) as one:
        yield one


def inspect(server, samples, model="small", **more):
    import io

    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format="WAV")
    asked = {"data": {"model": model, **more}, "files": {"file": ("me.wav", file.getvalue())}, "timeout": 60}
    return httpx.post(f"{server.url}/v1/inspect", **asked)


def test_an_utterance_is_opened_up(small_server):
    noise = np.random.default_rng(0).normal(size=16_000) * 0.1
    reply = inspect(small_server, noise, beam=3)
    assert reply.status_code == 200, reply.text
    inside = reply.json()
    assert inside["model"] == "small"
    assert inside["duration"] == 1.0
    assert inside["hypotheses"][0]["text"] == inside["text"]
    assert len(inside["steps"][-1]["texts"]) <= 5
    assert inside["posteriors"]["frames"] == round(1.0 / inside["frame_s"])
    assert list(small_server.service.folder.iterdir()) == []


def test_what_cannot_be_opened_up_is_told(small_server):
    def told(status, *args, **more):
        reply = inspect(small_server, *args, **more)
        assert reply.status_code == status, reply.text
        return reply.json()["error"]["message"]

    assert "30 s or less" in told(400, np.ones(16_000 * 33) * 0.1)
    assert "no sound" in told(400, np.zeros(16_000))
    assert "cannot be looked into" in told(400, np.ones(16_000) * 0.1, model=FAKE)
    assert "nobody" in told(404, np.ones(16_000), model="nobody")
    assert "beam" in told(400, np.ones(16_000), beam=1000)
    reply = httpx.post(f"{small_server.url}/v1/inspect", data={"model": "small"}, files={"file": ("a.wav", b"what")})
    assert reply.status_code == 400
    assert "a.wav" in reply.json()["error"]["message"]
    assert str(small_server.service.folder) not in reply.text


def test_the_page_is_served_and_says_when_it_changes(server):
    reply = httpx.get(server.url)
    assert reply.headers["content-type"].startswith("text/html")
    assert reply.headers["cache-control"] == "no-cache"
    assert "default-src 'self'" in reply.headers["content-security-policy"]
    assert httpx.get(f"{server.url}/nothing.js").status_code == 404
    assert httpx.get(f"{server.url}/../serve/guard.py").status_code == 404
