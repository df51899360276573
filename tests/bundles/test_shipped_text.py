"""The text bundles that ship, at work on sentences that they have not learned from."""

import voiceseq


def test_names_are_marked() -> None:
    (found,) = voiceseq.load("wnut17").tag(["Yesterday, Harry Potter met Hermione Granger."])
    assert found.marked() == "Yesterday, [Harry Potter](person) met [Hermione Granger](person)."


def test_parts_of_speech_depend_on_the_sentence() -> None:
    (found,) = voiceseq.load("ewt-pos").tag(["Time flies like an arrow."])
    assert found.marked() == "Time/NOUN flies/VERB like/ADP an/DET arrow/NOUN ./PUNCT"


def test_a_masked_word_is_one_that_fits() -> None:
    place, verb = voiceseq.load("masked").fill(
        ["he was born in the [MASK] of london .", "she [MASK] not know ."], n_best=5
    )
    assert {"city", "town", "university", "south", "north", "west", "east"} & {one.word for one in place.candidates[0]}
    assert {"did", "does", "could", "would", "do"} & {one.word for one in verb.candidates[0]}


def test_words_that_fit_are_likelier() -> None:
    pear, pair = voiceseq.load("wikitext2").score(["the apple and pear salad", "the apple and pair salad"])
    assert pear.log_prob > pair.log_prob
    assert pear.unknown == pair.unknown  # not because one of them is unknown
