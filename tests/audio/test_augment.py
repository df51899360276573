"""The chain: deterministic, an identity when off, within its ranges, labels moved along, mistakes all named."""

import dataclasses
import pickle
from pathlib import Path

import hydra
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from places import ROOT

from voiceseq.audio import effects
from voiceseq.audio.augment import AugmentConfig, Augmented, Augmenter, Effect, Masks, Noise, Pause, Speed, Telephone
from voiceseq.audio.files import Audio
from voiceseq.audio.rooms import as_impulse
from voiceseq.errors import ConfigError, InputError

RATE = 16_000
EFFECTS = [one.name for one in dataclasses.fields(AugmentConfig) if one.name != "masks"]
CONFIGS = sorted((ROOT / "conf" / "augment").glob("*.yaml"))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(size: int, seed: int = 0, level: float = 0.1) -> np.ndarray:
    return (level * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)


NOISES = [Audio(noise(20_000, 50), RATE), Audio(noise(1000, 51, 0.5), 8000), Audio(noise(3000, 52)[None], 44_100)]
ROOMS = [as_impulse(noise(2000, 60) * np.exp(-np.arange(2000) / 200).astype(np.float32), RATE)]


def one(name: str, probability: float = 1.0, **settings: object) -> AugmentConfig:
    """Everything off but one effect."""
    return AugmentConfig(**{name: {"probability": probability, **settings}})


def everything(probability: float = 1.0) -> AugmentConfig:
    return AugmentConfig(**{name: {"probability": probability} for name in EFFECTS})


def read_config(path: Path) -> AugmentConfig:
    written = OmegaConf.load(path)
    for base in written.pop("defaults", []):  # a config may stand on another
        if base != "_self_":
            written = OmegaConf.merge(OmegaConf.load(path.with_name(f"{base}.yaml")), written)
    return hydra.utils.instantiate(written, _convert_="all")


def test_off_is_the_very_same_samples():
    samples = noise(1000)
    hard = Augmenter(AugmentConfig())(samples, RATE, generator())
    assert hard.samples is samples
    assert (hard.time_scale, hard.delay_samples, hard.applied) == (1.0, 0.0, ())
    assert hard.moved(123) == 123


@pytest.mark.parametrize("name", EFFECTS)
def test_every_effect_can_be_on_alone(name):
    augmenter = Augmenter(one(name), NOISES, ROOMS)
    samples = noise(4000)
    before = samples.copy()
    hard = augmenter(samples, RATE, generator(3))
    assert hard.applied == (name,)
    assert hard.samples.dtype == np.float32
    before_it = hard.delay_samples if name == "pause" else 0
    assert len(hard.samples) == pytest.approx(4000 * hard.time_scale + before_it, abs=1)
    assert len(hard.samples) == 4000 or name in ("speed", "tempo", "pause")
    assert not np.array_equal(hard.samples, samples)
    np.testing.assert_array_equal(samples, before)
    silent = augmenter(np.zeros(4000, np.float32), RATE, generator(3))
    assert not silent.samples[int(silent.delay_samples) if name == "pause" else 0 :].any()


def test_a_pause_is_a_hiss_before_the_untouched_sound():
    samples = noise(4000)
    hard = Augmenter(one("pause", seconds=(0.5, 0.5), db=(-60, -60)))(samples, RATE, generator(3))
    assert hard.delay_samples == RATE // 2
    np.testing.assert_array_equal(hard.samples[RATE // 2 :], samples)
    assert 20 * np.log10(hard.samples[: RATE // 2].std()) == pytest.approx(-60, abs=0.5)
    assert hard.moved(100) == RATE // 2 + 100


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 3000),
    level=st.sampled_from([0, 1e-40, 1e-20, 1e-6, 0.1, 1, 900]),
    rate=st.sampled_from([8000, RATE, 44_100]),
)
def test_any_sound_comes_out_finite(seed, size, level, rate):
    samples = np.clip(noise(size, seed, level), -1000, 1000)
    config = dataclasses.replace(everything(0.5), pause=Pause())
    hard = Augmenter(config, NOISES, ROOMS)(samples, rate, generator(seed))
    assert hard.samples.dtype == np.float32
    assert np.isfinite(hard.samples).all()
    assert abs(len(hard.samples) - size * hard.time_scale) <= 2
    assert level or not hard.samples.any()


def test_the_same_generator_gives_the_same_sound():
    samples = noise(5000)
    for config in (everything(0.5), everything()):
        first, again = (Augmenter(config, NOISES, ROOMS) for _ in range(2))
        first(samples, RATE, generator(9))  # what was made before has no say
        a, b = (x(samples, RATE, generator(7)) for x in (first, again))
        np.testing.assert_array_equal(a.samples, b.samples)
        assert (a.applied, a.time_scale, a.delay_samples) == (b.applied, b.time_scale, b.delay_samples)
        assert not np.array_equal(a.samples, first(samples, RATE, generator(8)).samples)


def test_a_generator_goes_on():
    samples, running = noise(500), generator(1)
    augmenter = Augmenter(one("gain"))
    assert not np.array_equal(augmenter(samples, RATE, running).samples, augmenter(samples, RATE, running).samples)


def test_turning_one_off_leaves_the_others_as_they_were():
    config = everything(0.5)
    for seed in range(10):
        both = Augmenter(config, NOISES, ROOMS)(noise(800), RATE, generator(seed))
        less = dataclasses.replace(config, room={"probability": 0})
        fewer = Augmenter(less, NOISES, ROOMS)(noise(800), RATE, generator(seed))
        assert fewer.applied == tuple(name for name in both.applied if name != "room")
        assert fewer.time_scale == both.time_scale


def test_effects_happen_as_often_as_their_probability_says():
    augmenter = Augmenter(AugmentConfig(gain={"probability": 0.3}, offset={"probability": 0.8}))
    applied = [augmenter(noise(10), RATE, generator(seed)).applied for seed in range(2000)]
    assert sum("gain" in names for names in applied) / 2000 == pytest.approx(0.3, abs=0.04)
    assert sum("offset" in names for names in applied) / 2000 == pytest.approx(0.8, abs=0.04)
    both = sum(len(names) == 2 for names in applied) / 2000
    assert both == pytest.approx(0.24, abs=0.04)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), low=st.floats(-60, 30), width=st.floats(0, 20))
def test_gain_keeps_to_its_range(seed, low, width):
    samples = noise(200)
    hard = Augmenter(one("gain", db=[low, low + width]))(samples, RATE, generator(seed)).samples
    got = 20 * np.log10(np.linalg.norm(hard) / np.linalg.norm(samples))
    assert low - 1e-3 <= got <= low + width + 1e-3


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), low=st.floats(-10, 40), width=st.floats(0, 20))
def test_the_ratio_to_noise_keeps_to_its_range(seed, low, width):
    samples = noise(8000)
    hard = Augmenter(one("noise", snr_db=[low, low + width]), NOISES[:1])(samples, RATE, generator(seed)).samples
    added = (hard.astype(np.float64) - samples).astype(np.float32)
    ratio = effects.active_level_db(samples, RATE) - effects.active_level_db(added, RATE)
    assert low - 0.1 <= ratio <= low + width + 0.1


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), low=st.floats(0.5, 1.5), width=st.floats(0, 0.5))
def test_speeds_keep_to_their_range_and_say_their_scale(seed, low, width):
    hard = Augmenter(one("speed", factor=[low, low + width]))(noise(3000), RATE, generator(seed))
    assert low - 5.1e-4 <= 1 / hard.time_scale <= low + width + 5.1e-4
    assert len(hard.samples) == pytest.approx(3000 * hard.time_scale, abs=0.51)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), bits=st.tuples(st.integers(2, 8), st.integers(0, 4)))
def test_bits_and_clipped_shares_keep_to_their_ranges(seed, bits):
    samples = noise(2000)
    low, high = bits[0], sum(bits)
    rounded = Augmenter(one("quantise", bits=[low, high]))(samples, RATE, generator(seed)).samples
    steps = np.abs(samples).max() / np.unique(np.abs(rounded[rounded != 0])).min()
    assert 2 ** (low - 1) - 0.6 <= steps <= 2 ** (high - 1)
    clipped = Augmenter(one("clip", share=[0.02, 0.06]))(samples, RATE, generator(seed)).samples
    assert 0.019 <= (np.abs(clipped) == np.abs(clipped).max()).mean() <= 0.061


def test_all_of_a_range_is_used():
    augmenter = Augmenter(one("gain", db=[-20, 0]))
    got = [20 * np.log10(augmenter(np.ones(1, np.float32), RATE, generator(s)).samples[0]) for s in range(500)]
    assert np.histogram(got, 4, (-20, 0))[0].min() > 90


def test_noise_is_taken_from_everywhere():
    ramp = Audio(np.arange(1, 1001, dtype=np.float32), RATE)
    augmenter = Augmenter(one("noise", snr_db=[0, 0]), [ramp, *NOISES])
    pieces = [augmenter.supply.noise(np.random.default_rng(seed), 20, RATE) for seed in range(400)]
    starts = [piece[0] for piece in pieces if np.allclose(np.diff(piece), 1)]
    assert len(starts) == pytest.approx(100, abs=30)
    assert np.histogram(starts, 4, (0, 1000))[0].min() > 10


def test_simulated_rooms_are_made_once_and_are_always_the_same():
    config = one("room", count=2, t60_s=[0.1, 0.2])
    augmenter, samples = Augmenter(config), np.zeros(4000, np.float32)
    samples[1000] = 1
    got = {augmenter(samples, RATE, generator(seed)).samples.tobytes() for seed in range(12)}
    assert len(got) == len(augmenter.supply._made) == 2
    assert Augmenter(config)(samples, RATE, generator(3)).samples.tobytes() in got
    for heard in got:
        assert np.abs(np.frombuffer(heard, np.float32)[:980]).max() < 0.05


def test_labels_move_with_the_sound():
    """A burst ends where ``moved`` says, through speed, tempo and room together."""
    samples = np.zeros(2 * RATE, np.float32)
    samples[8000:12_000] = 0.3 * np.sin(np.arange(4000))
    config = AugmentConfig(
        speed={"probability": 1, "factor": [0.8, 1.2]},
        tempo={"probability": 1, "factor": [0.8, 1.2]},
        room={"probability": 1, "t60_s": [0.1, 0.1], "distance_m": [1, 3], "count": 4},
    )
    for seed in range(6):
        hard = Augmenter(config)(samples, RATE, generator(seed))
        loud = np.flatnonzero(np.abs(hard.samples) > 0.1)
        assert loud[0] == pytest.approx(hard.moved(8000), abs=200)
        assert hard.delay_samples != 0


def test_effects_one_after_the_other_compose():
    none = np.zeros(1, np.float32)
    first, second = Augmented(none, 0.5, 3.0, ("a",)), Augmented(none, 4.0, -1.0)
    both = first.then("b", second)
    assert both.moved(10) == second.moved(first.moved(10)) == 31
    assert both.applied == ("a", "b")


def test_it_serves_the_datasets_and_their_workers():
    augment = pickle.loads(pickle.dumps(Augmenter(everything(), NOISES, ROOMS)))
    wanted = Augmenter(everything(), NOISES, ROOMS)(noise(900), RATE, generator(2)).samples
    np.testing.assert_array_equal(augment(noise(900), RATE, generator(2)).samples, wanted)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_configs_are_built_and_work(path):
    config = read_config(path)
    assert config.noise.probability > 0
    assert config.masks.probability > 0
    hard = Augmenter(config, NOISES, ROOMS)(noise(3000), RATE, generator(1))
    assert hard.applied
    if path.stem == "telephone":
        assert hard.applied[-1] == "telephone"


def test_the_default_config_names_every_effect():
    assert {path.stem for path in CONFIGS} == {"default", "light", "telephone", "words"}
    written = OmegaConf.load(ROOT / "conf/augment/default.yaml")
    for part in dataclasses.fields(AugmentConfig):
        assert set(written[part.name]) == {one.name for one in dataclasses.fields(part.default)}


def test_all_mistakes_are_named_at_once():
    with pytest.raises(ConfigError) as error:
        AugmentConfig(
            speed={"probability": 1.5, "factor": [1.2, 0.8]},
            noise={"probabilty": 0.5, "snr_db": [0]},
            gain={"db": [-200, 0], "loudness": 3},
            quantise={"bits": [2.5, 4]},
            telephone={"mu_law": "yes"},
            masks={"fill": "noise", "time_masks": -1},
            clip=0.5,
            codec={"probability": float("nan")},
        )
    for words in (
        "speed: probability is 1.5; a number from 0 to 1",
        "factor is (1.2, 0.8); a range [low, high] within 0.5..2",
        "noise: 'probabilty' is not known; is it 'probability'?",
        "snr_db is (0,)",
        "db is (-200, 0)",
        "gain: 'loudness' is not known; choose from probability, db",
        "bits is (2.5, 4)",
        "mu_law is 'yes'; bool",
        "fill is 'noise'; one of mean, zero",
        "time_masks is -1",
        "clip: 0.5 came; Clip or a mapping",
        "codec: probability is nan",
    ):
        assert words in str(error.value)


@pytest.mark.parametrize("kind", [Speed, Noise, Telephone, Masks, Effect])
@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan"), "1", None, True])
def test_probabilities_are_between_0_and_1(kind, wrong):
    with pytest.raises(ConfigError, match="probability"):
        kind(wrong)


def test_rooms_that_would_take_for_ever_are_refused_beforehand():
    with pytest.raises(ConfigError, match="shorten"):
        one("room", floor_m=[1, 2], t60_s=[0.1, 2])


def test_effects_without_what_they_need_are_refused():
    with pytest.raises(ConfigError, match=r"no noises were given.*list of rooms is empty"):
        Augmenter(AugmentConfig(noise={"probability": 0.1}, room={"probability": 0.1}), [], [])
    with pytest.raises(InputError, match="no samples"):
        Augmenter(one("noise"), [Audio(np.zeros(0, np.float32), RATE)])(noise(10), RATE, generator())


@pytest.mark.parametrize(
    ("samples", "rate", "words"),
    [
        (np.array([0, np.nan, np.inf], np.float32), RATE, "2 NaN or infinite"),
        (np.zeros(0, np.float32), RATE, "at least one sample"),
        (np.zeros((2, 9), np.float32), RATE, r"\(2, 9\)"),
        (np.zeros(9, np.int16), RATE, "/ 32768"),
        (np.full(9, 2000, np.float32), RATE, "full scale is 1"),
        (np.zeros(9, np.float32), 0, "sample_rate is 0"),
    ],
)
def test_bad_samples_are_refused_even_when_all_is_off(samples, rate, words):
    with pytest.raises(InputError, match=words):
        Augmenter(AugmentConfig())(samples, rate, generator())
