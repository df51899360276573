"""What is shown of a recogniser is what it does."""

import base64

import numpy as np
import pytest
import torch
from echo import FRAME, VOCABULARY, Echo, say, silence
from small_speech import small_network
from spoken_tones import ToneRecogniser

from voiceseq.errors import InputError
from voiceseq.inference.inside import BLANK, look_inside
from voiceseq.inference.recogniser import AcousticRecogniser
from voiceseq.inference.speech import Decoding
from voiceseq.inference.whisper import WhisperRecogniser, WhisperSettings
from voiceseq.models.whisper import WhisperConfig, WhisperNetwork
from voiceseq.text.pieces import Pieces
from voiceseq.text.vocabulary import Vocabulary


def echo() -> AcousticRecogniser:
    return AcousticRecogniser(Echo(), VOCABULARY)


def whisper() -> WhisperRecogniser:
    """A small one that writes letters."""
    specials = {"end": 256, "start": 257, "no_speech": 258, "no_timestamps": 259}
    pieces = Pieces(tuple(bytes([n]) for n in range(256)), specials, 260)
    letters = Vocabulary.from_text(" 'abcdefghijklmnopqrstuvwxyz", specials=("blank",))
    config = WhisperConfig(symbols=260, characters=len(letters), tail_s=0.1, size=16, heads=2, encoder_layers=1,
                           decoder_layers=2, audio_positions=100, text_positions=40)  # fmt: skip
    torch.manual_seed(2)
    network = WhisperNetwork(config)
    with torch.no_grad():
        network.embedding.weight.mul_(2.0)
        network.embedding.weight[[*range(97), *range(123, 256)]] *= 0.01
    return WhisperRecogniser(network, pieces, letters, WhisperSettings(least_log_prob=-100.0))


def noise(seconds: float) -> np.ndarray:
    return np.random.default_rng(4).normal(size=round(16_000 * seconds)).astype(np.float32) * 0.1


def test_posteriors_are_the_letters_where_they_were_said():
    inside = look_inside(echo(), say("the cab"))
    assert inside.hypotheses[0].text == "the cab"
    assert inside.posteriors is not None
    assert inside.posteriors.rows == ("t", "h", "e", "␣", "c", "a", "b", BLANK)  # in the order of time, blank last
    assert inside.posteriors.values.sum(0) == pytest.approx(1.0, abs=0.05)
    first = [int(row.argmax()) for row in inside.posteriors.values[:-1]]
    assert first == sorted(first)
    assert inside.attention is None  # a network without a decoder


def test_the_beam_grows_into_the_text():
    inside = look_inside(echo(), say("c?b", 1), beam=4)
    assert inside.steps[-1].texts[0] == inside.hypotheses[0].text
    assert {one.text for one in inside.hypotheses} <= {"cab", "cbb"} | set(inside.steps[-1].texts)
    for before, after in zip(inside.steps, inside.steps[1:], strict=False):
        assert before.time < after.time
        for text, parent in zip(after.texts, after.parents, strict=True):
            assert parent < 0 or text.startswith(before.texts[parent])
    assert all(len(step.texts) <= 5 for step in inside.steps)


@pytest.mark.parametrize("decoder", ["recurrent", "transformer"])
def test_attention_of_a_decoder_is_over_its_frames(decoder):
    network = small_network(decoder=decoder)
    inside = look_inside(AcousticRecogniser(network, VOCABULARY), noise(1.0))
    assert inside.attention is not None
    assert inside.attention.values.shape == (len(inside.attention.rows), inside.posteriors.values.shape[1])
    assert inside.attention.values.max() == pytest.approx(1.0)


def test_whisper_shows_letters_pieces_and_its_search():
    recogniser, sound = whisper(), noise(0.9)
    inside = look_inside(recogniser, sound, beam=3, nbest=3)
    (found,) = recogniser.recognise([sound], Decoding("beam", beam=3, nbest=3))
    assert [one.text for one in inside.hypotheses] == [one.text for one in found]
    assert inside.attention.values.shape[1] == 45  # frames of 20 ms
    assert inside.posteriors.rows[-1] == BLANK
    assert inside.posteriors.values.shape[1] == 45
    assert inside.steps[0].texts == ("",)
    ended = {text for step in inside.steps for text, end in zip(step.texts, step.ended, strict=True) if end}
    assert {recogniser.pieces.decode(one.tokens).strip() for one in recogniser.search(
        recogniser.hear([sound]), Decoding(), 3, 3)[0]} <= ended  # fmt: skip
    told = inside.to_json()
    assert len(base64.b64decode(told["attention"]["data"])) == inside.attention.values.size


def test_what_cannot_be_looked_into_is_told():
    with pytest.raises(InputError, match="30 s or less"):
        look_inside(echo(), np.ones(16_000 * 31, np.float32))
    with pytest.raises(InputError, match="no sound"):
        look_inside(echo(), np.zeros(16_000, np.float32))
    with pytest.raises(InputError, match="a frame"):
        look_inside(AcousticRecogniser(small_network(), VOCABULARY), np.ones(5, np.float32))
    with pytest.raises(InputError, match="tones cannot be looked into"):
        look_inside(ToneRecogniser(), np.ones(16_000, np.float32))
    assert look_inside(echo(), np.concatenate((silence(5), say("a"), silence(5)))).frame_s == FRAME / 16_000
