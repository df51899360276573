"""A bundle gives back what was put in, refuses whatever was changed since, and is never lost while being replaced."""

import contextlib
import dataclasses
import gzip
import hashlib
import json
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import voiceseq
from voiceseq.bundles import export_bundle, load_bundle, reading, save_bundle, verify_bundle, writing
from voiceseq.bundles.stores import MANIFEST, MAX_FILES, PACKED, SEAL, WEIGHTS, pack, unpack
from voiceseq.bundles.writing import LEVELS
from voiceseq.errors import BundleError

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclasses.dataclass(frozen=True)
class Size:
    width: int
    layers: int = 2


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    size: Size
    kernels: tuple[int, ...] = (3, 5)
    dropout: float = 0.1
    span: tuple[int, float] = (1, 2.0)
    limit: int | None = None
    level: Literal["character", "word"] = "word"
    rates: dict[str, float] = dataclasses.field(default_factory=dict)
    parts: list[Size] = dataclasses.field(default_factory=list)
    inner: Size | None = None
    free: Any = None


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(7, 4), nn.LayerNorm(4), nn.Linear(4, 7))


def make(path: Path, **changes) -> Path:
    given = {
        "kind": "language-model",
        "config": {"width": 4},
        "weights": network().state_dict(),
        "vocabularies": {"characters": list("abcdé�☃")},
        "files": {"lm/words.arpa": b"\\data\\\n" * 50},
        "metrics": {"loss": 1.5},
        "training": {"data": [{"name": "shakespeare", "licence": "public domain"}]},
        "licence": "Apache-2.0",
    }
    return save_bundle(path, **{**given, **changes})


@pytest.fixture(scope="module", params=["folder", "zip"])
def good(request, tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("good") / ("model" if request.param == "folder" else "model.zip"))


@pytest.fixture
def folder(tmp_path) -> Path:
    return make(tmp_path / "model")


def reseal(folder: Path, change) -> None:
    """What a stranger with the same tools would do: edit bundle.json and make a fitting seal."""
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    raw = json.dumps(manifest).encode()
    (folder / MANIFEST).write_bytes(raw)
    (folder / SEAL).write_text(f"{hashlib.sha256(raw).hexdigest()}  {MANIFEST}\n")


# --- what goes in comes out ------------------------------------------------------------------------------------------


def test_everything_comes_back(good):
    bundle = load_bundle(good)
    assert (bundle.kind, bundle.config, bundle.licence) == ("language-model", {"width": 4}, "Apache-2.0")
    assert bundle.metrics == {"loss": 1.5}
    assert bundle.training["data"][0]["licence"] == "public domain"
    assert bundle.vocabularies == {"characters": list("abcdé�☃")}
    assert bundle.read("lm/words.arpa") == b"\\data\\\n" * 50
    assert "shakespeare" in bundle.card
    assert "1.5" in bundle.card
    wanted = network().state_dict()
    assert bundle.weights.keys() == wanted.keys()
    assert all(torch.equal(bundle.weights[name], wanted[name]) for name in wanted)
    assert bundle.tensors["0.weight"] == ("F32", (7, 4))
    assert (bundle.voiceseq_version, bundle.format_version) == (voiceseq.__version__, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        bundle.kind = "other"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
dtypes = st.sampled_from(
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
)
names = st.text(st.characters(codec="utf-8"), max_size=12).filter(lambda name: name != "__metadata__")


@st.composite
def small_tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    values = torch.randint(0, 100, shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    tensor = values.to(draw(dtypes))
    return tensor.mT if tensor.dim() > 1 and draw(st.booleans()) else tensor  # not contiguous


@quick
@given(
    config=st.dictionaries(st.text(), json_values, max_size=4),
    weights=st.dictionaries(names, small_tensors(), max_size=4),
    vocabulary=st.lists(st.text(), max_size=5),
    zipped=st.booleans(),
)
def test_any_json_and_any_tensors_round_trip(tmp_path, config, weights, vocabulary, zipped):
    path = tmp_path / ("any.zip" if zipped else "any")
    save_bundle(path, kind="test", config=config, weights=weights, vocabularies={"symbols": vocabulary})
    bundle = load_bundle(path)
    assert bundle.config == config
    assert json.dumps(bundle.config) == json.dumps(config)  # 1 is not 1.0 is not True
    assert bundle.vocabularies == {"symbols": vocabulary}
    assert bundle.weights.keys() == weights.keys()
    for name, tensor in weights.items():
        assert bundle.weights[name].dtype == tensor.dtype
        assert torch.equal(bundle.weights[name], tensor)


def test_the_same_parts_give_the_same_bytes(tmp_path):
    one, two = make(tmp_path / "one.zip"), make(tmp_path / "two.zip")
    assert one.read_bytes() == two.read_bytes()


def test_dataclass_configs_are_rebuilt(tmp_path):
    config = NetworkConfig(
        Size(8), (1, 2, 3), 0, (1, 2), 7, "character", {"a": 1}, [Size(1), Size(2, 3)], Size(4), {"any": [1]}
    )
    bundle = load_bundle(make(tmp_path / "model", config=config))
    assert bundle.config["kernels"] == [1, 2, 3]
    assert bundle.config["parts"] == [{"width": 1, "layers": 2}, {"width": 2, "layers": 3}]
    assert bundle.config_as(NetworkConfig) == config
    assert load_bundle(make(tmp_path / "least", config=NetworkConfig(Size(8)))).config_as(NetworkConfig).limit is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"size": {"width": 1}, "dropuot": 0.2}, "unknown 'dropuot'"),
        ({"kernels": [1]}, "missing 'size'"),
        ({"size": {"layers": 1}}, "config.size does not describe a Size: missing 'width'"),
        ({"size": {"width": 1.5}}, r"config.size.width is 1.5; int was wanted"),
        ({"size": {"width": True}}, "config.size.width is True; int was wanted"),
        ({"size": 3}, "config.size is 3; settings by name were wanted"),
        ({"size": {"width": 1}, "kernels": 3}, r"config.kernels is 3; tuple\[int, ...\] was wanted"),
        ({"size": {"width": 1}, "kernels": [3, "5"]}, r"config.kernels\[1\] is '5'; int was wanted"),
        ({"size": {"width": 1}, "dropout": None}, "config.dropout is None; float was wanted"),
        ({"size": {"width": 1}, "span": [1, 2, 3]}, r"config.span is \[1, 2, 3\]; tuple\[int, float\] was wanted"),
        ({"size": {"width": 1}, "limit": "x"}, r"config.limit is 'x'; int \| None was wanted"),
        ({"size": {"width": 1}, "inner": {"width": "x"}}, "config.inner.width is 'x'; int was wanted"),
        ({"size": {"width": 1}, "inner": 4}, r"config.inner is 4; .*Size \| None was wanted"),
        ({"size": {"width": 1}, "level": "letter"}, "config.level is 'letter'; .*'word'"),
        ({"size": {"width": 1}, "rates": {"a": "x"}}, "config.rates.a is 'x'; float was wanted"),
        ({"size": {"width": 1}, "rates": [1]}, r"config.rates is \[1\]; dict\[str, float\] was wanted"),
        ({"size": {"width": 1}, "parts": [{"width": "x"}]}, r"config.parts\[0\].width is 'x'; int was wanted"),
    ],
)
def test_a_config_of_other_settings_is_refused(tmp_path, config, message):
    with pytest.raises(BundleError, match=message):
        load_bundle(make(tmp_path / "model", config=config)).config_as(NetworkConfig)


def test_whole_numbers_are_within_half_a_step_and_fit_the_network(tmp_path: Path) -> None:
    torch.manual_seed(1)
    weights = {
        "w": torch.randn(5, 3, 2),
        "zero": torch.zeros(2, 2),
        "b": torch.randn(4),
        "n": torch.arange(6).view(2, 3),
    }
    bundle = load_bundle(make(tmp_path / "eight", weights=weights, dtype=torch.int8))
    assert bundle.tensors["w"][0] == "I8"
    assert bundle.shapes == {name: tuple(tensor.shape) for name, tensor in weights.items()}
    step = weights["w"].abs().amax((1, 2), keepdim=True) / LEVELS
    assert ((bundle.weights["w"] - weights["w"]).abs() <= step / 2 * 1.001).all()
    assert bundle.weights["w"].dtype == torch.float32
    assert torch.equal(bundle.weights["zero"], weights["zero"])
    assert torch.equal(bundle.weights["n"], weights["n"])
    assert torch.allclose(bundle.weights["b"].float(), weights["b"], atol=2e-3)
    with pytest.raises(BundleError, match="NaN or infinity"):
        make(tmp_path / "bad", weights={"w": torch.full((2, 2), torch.inf)}, dtype=torch.int8)


@pytest.mark.parametrize("name", ["packed", "packed.zip"])
def test_whole_numbers_are_packed_and_say_so(tmp_path, name):
    weights = {"w": torch.randn(200, 300), "b": torch.randn(200)}
    bundle = load_bundle(make(tmp_path / name, weights=weights, dtype=torch.int8))
    assert bundle.format_version == 2
    assert load_bundle(make(tmp_path / "plain", weights=weights)).format_version == 1  # readable by all there were
    file = WEIGHTS + PACKED
    assert bundle.files[file].size < 0.95 * weights["w"].numel()
    assert safetensors.torch.load(gzip.decompress(bundle.read(file))).keys() == {"w", "w:scale", "b"}
    assert bundle.tensors["w"] == ("I8", (200, 300))


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_what_is_packed_comes_back_whatever_it_is(share):
    data = np.random.default_rng(1).integers(0, 256, 10_000) * (np.random.default_rng(2).random(10_000) < share)
    for part in (data, data[:1], data[:0]):
        assert unpack(pack(part.astype(np.uint8).tobytes())) == part.astype(np.uint8).tobytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-20], "not one whole packed file"),
        (lambda data: data + b"more", "not one whole packed file"),
        (lambda data: b"no gzip" + data, "cannot be unpacked"),
        (lambda data: gzip.compress(bytes(50_000_000)), "not one whole packed file"),  # a bomb: it is not filled
    ],
)
def test_damaged_packed_weights_are_refused_even_with_fitting_hashes(tmp_path, change, message):
    path = make(tmp_path / "eight", weights={"w": torch.randn(20, 30)}, dtype=torch.int8)
    data = change((path / (WEIGHTS + PACKED)).read_bytes())
    (path / (WEIGHTS + PACKED)).write_bytes(data)
    entry = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    reseal(path, lambda m: m["files"].update({WEIGHTS + PACKED: entry}))
    bundle = load_bundle(path)
    for ask in ("weights", "tensors"):
        with pytest.raises(BundleError, match=message):
            getattr(bundle, ask)


def test_half_precision_is_noted_and_undone(tmp_path):
    weights = {"w": torch.tensor([1 / 3, 2.0]), "count": torch.tensor([70_000])}
    bundle = load_bundle(make(tmp_path / "half", weights=weights, dtype=torch.float16))
    assert bundle.storage["dtype"] == "float16"
    assert bundle.weights["w"].dtype == torch.float16
    restored = bundle.read_weights(torch.float32)
    assert restored["w"].dtype == torch.float32
    assert torch.equal(restored["w"], weights["w"].half().float())
    assert torch.equal(restored["count"], weights["count"])
    with pytest.raises(BundleError, match=r"w reaches 1e\+06, too large for torch.float16"):
        make(tmp_path / "big", weights={"w": torch.tensor([1e6])}, dtype=torch.float16)


@pytest.mark.parametrize("name", ["model", "model.zip"])
def test_weights_too_large_for_one_file_are_stored_in_several(tmp_path, monkeypatch, name):
    monkeypatch.setattr("voiceseq.bundles.writing.LARGEST_FILE", 4_000)
    weights = {f"layer{number}": torch.randn(20, 30) for number in range(5)} | {"tied": torch.zeros(3)}
    weights["twin"] = weights["tied"]
    bundle = load_bundle(make(tmp_path / name, weights=weights))
    files = [file for file in bundle.files if file.startswith("weights")]
    assert files == ["weights.safetensors", *(f"weights-{number}.safetensors" for number in range(1, 5))]
    assert all(bundle.files[file].size < 4_000 for file in files)
    assert bundle.weights.keys() == weights.keys() == bundle.shapes.keys()
    assert all(torch.equal(bundle.weights[key], value) for key, value in weights.items())
    with pytest.raises(BundleError, match="which the format keeps"):
        make(tmp_path / "other", files={"weights-1.safetensors": b""})


def test_tied_weights_are_stored_once_and_come_back_twice(tmp_path):
    model = network()
    model[2].weight = model[0].weight
    bundle = load_bundle(make(tmp_path / "tied", weights=model.state_dict()))
    assert "2.weight" not in bundle.tensors
    assert torch.equal(bundle.weights["2.weight"], model[0].weight)
    other = network(1)
    other[2].weight = other[0].weight
    assert torch.equal(bundle.fill(other)[2].weight, model[0].weight)


def test_fill_restores_a_network_and_names_what_does_not_fit(good):
    bundle = load_bundle(good)
    model = bundle.fill(network(seed=5))
    assert not model.training
    tokens = torch.arange(7)
    assert torch.equal(model(tokens), network().eval()(tokens))
    with pytest.raises(BundleError, match=r"0.weight has shape \(7, 4\), not \(8, 4\)"):
        bundle.fill(nn.Sequential(nn.Embedding(8, 4), nn.LayerNorm(4), nn.Linear(4, 7)))
    with pytest.raises(BundleError, match=r"3.weight is missing"):
        bundle.fill(nn.Sequential(*network(), nn.LayerNorm(7)))
    with pytest.raises(BundleError, match=r"2.weight is not the network's"):
        bundle.fill(network()[:2])


def test_a_network_is_compared_before_it_is_built(tmp_path):
    """On the meta device nothing is allocated: a config of 10**6 x 10**6 is refused by its shape."""
    built = []

    def build(config: Size) -> nn.Module:
        layer = nn.Linear(config.width, config.width)
        built.append(layer.weight.device.type)
        return layer

    path = make(tmp_path / "model", weights=build(Size(3)).state_dict(), config={"width": 3})
    assert load_bundle(path).network(build, Size).in_features == 3
    path = make(tmp_path / "huge", weights=nn.Linear(3, 3).state_dict(), config={"width": 10**6})
    with pytest.raises(BundleError, match=r"weight has shape \(3, 3\), not \(1000000, 1000000\)"):
        load_bundle(path).network(build, Size)
    assert built == ["cpu", "meta", "cpu", "meta"]


def test_export_is_the_same_bundle_byte_for_byte(good, tmp_path):
    for target in (tmp_path / "copy.zip", tmp_path / "copy"):
        copy = load_bundle(export_bundle(good, target))
        assert copy.files == load_bundle(good).files
        assert copy.config == load_bundle(good).config


def test_a_zip_of_the_folder_itself_opens(folder, tmp_path):
    shutil.make_archive(str(tmp_path / "packed"), "zip", root_dir=folder.parent, base_dir=folder.name)
    assert load_bundle(tmp_path / "packed.zip").vocabularies == load_bundle(folder).vocabularies


def test_the_seal_is_what_sha256sum_reads(folder):
    digest, name = (folder / SEAL).read_text().split()
    assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_metrics_that_are_not_finite_become_null(tmp_path):
    assert load_bundle(make(tmp_path / "m", metrics={"loss": float("nan"), "n": 3})).metrics == {"loss": None, "n": 3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": {"a": float("inf")}}, "config.a is inf"),
        ({"config": {"a": {1: 2}}}, "config.a has the key 1"),
        ({"config": {"a": [torch.zeros(1)]}}, r"config.a\[0\] is tensor"),
        ({"config": {"a": Path("x")}}, "config.a is .*Path"),
        ({"config": {"a": "\ud800"}}, "cannot be written as JSON"),
        ({"config": ["a"]}, "config"),
        ({"kind": "Language Model"}, "cannot be of kind 'Language Model'"),
        ({"files": {"../out": b""}}, "leaves the bundle"),
        ({"files": {"/out": b""}}, "an absolute path"),
        ({"files": {WEIGHTS: b""}}, "which the format keeps"),
        ({"vocabularies": {"../../x": []}}, "leaves the bundle"),
        ({"files": {"lm": Path("/nowhere/lm.arpa")}}, "lm cannot be read"),
        ({"weights": {"w": torch.zeros(3).to_sparse()}}, "weight w cannot be stored"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_written(tmp_path, changes, message):
    with pytest.raises(BundleError, match=message):
        make(tmp_path / "model", **changes)
    assert list(tmp_path.iterdir()) == []


# --- what was changed is refused -------------------------------------------------------------------------------------


@contextlib.contextmanager
def damaged(path: Path, data: bytes):
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(before)


def contents(bundle: Path) -> list[Path]:
    return sorted(p for p in bundle.rglob("*") if p.is_file()) if bundle.is_dir() else [bundle]


def test_any_flipped_byte_of_any_file_of_a_folder_is_refused(tmp_path):
    path = make(tmp_path / "model")

    @settings(max_examples=200, deadline=None)
    @given(st.data())
    def flip(data):
        file = data.draw(st.sampled_from(contents(path)))
        raw = bytearray(file.read_bytes())
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
        with damaged(file, bytes(raw)), pytest.raises(BundleError):
            load_bundle(path)

    flip()
    load_bundle(path)


def test_any_flipped_byte_of_a_zip_is_refused_or_changes_nothing(tmp_path):
    """A date in a zip's directory may change unseen; what is inside may not."""
    path = make(tmp_path / "model.zip")
    whole = load_bundle(path)
    refused = 0

    @settings(max_examples=200, deadline=None)
    @given(st.data())
    def flip(data):
        nonlocal refused
        raw = bytearray(path.read_bytes())
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
        with damaged(path, bytes(raw)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                bundle = load_bundle(path)
            except BundleError:
                refused += 1
            else:
                assert bundle == whole
                assert {n: bundle.read(n) for n in bundle.files} == {n: whole_parts[n] for n in bundle.files}

    whole_parts = {name: whole.read(name) for name in whole.files}
    flip()
    assert refused > 50


def test_any_truncation_is_refused(good):
    @settings(max_examples=100, deadline=None)
    @given(st.data())
    def cut(data):
        file = data.draw(st.sampled_from(contents(good)))
        raw = file.read_bytes()
        with damaged(file, raw[: data.draw(st.integers(0, len(raw) - 1))]), pytest.raises(BundleError):
            load_bundle(good)

    cut()
    load_bundle(good)


def test_added_bytes_are_refused(folder):
    with (folder / WEIGHTS).open("ab") as file:
        file.write(b"x")
    with pytest.raises(BundleError, match=r"weights.safetensors has \d+ bytes, \d+ were wanted"):
        load_bundle(folder)


def test_each_missing_file_is_named(folder):
    for file in contents(folder):
        kept = file.read_bytes()
        file.unlink()
        with pytest.raises(BundleError, match=file.name.removesuffix(".sha256")):
            load_bundle(folder)
        file.write_bytes(kept)


def test_verify_names_all_that_is_wrong(folder):
    assert verify_bundle(folder).ok
    (folder / WEIGHTS).write_bytes(b"short")
    (folder / "README.md").unlink()
    (folder / "notes.txt").write_text("mine")
    report = verify_bundle(folder)
    assert not report.ok
    assert set(report.problems) == {WEIGHTS, "README.md"}
    assert report.unlisted == ("notes.txt",)


def test_an_unlisted_file_is_never_opened(folder):
    os.mkfifo(folder / "pipe")  # opening it would wait for ever
    load_bundle(folder)
    assert verify_bundle(folder).unlisted == ("pipe",)


def test_a_listed_file_that_is_a_pipe_is_not_waited_for(folder):
    (folder / "README.md").unlink()
    os.mkfifo(folder / "README.md")
    with pytest.raises(BundleError, match=r"README.md is missing"):
        load_bundle(folder)


def test_a_file_that_changes_after_opening_is_noticed(folder):
    bundle = load_bundle(folder)
    raw = bytearray((folder / WEIGHTS).read_bytes())
    raw[-1] ^= 1
    (folder / WEIGHTS).write_bytes(bytes(raw))
    with pytest.raises(BundleError, match="changed after"):
        _ = bundle.weights


# --- what is foreign is refused --------------------------------------------------------------------------------------


def test_a_newer_format_says_who_made_it_and_how_to_update(folder):
    reseal(folder, lambda m: m.update(format_version=3, voiceseq_version="9.1.0"))
    with pytest.raises(BundleError, match=r"made by voiceseq 9.1.0 in bundle format 3.*pip install -U voiceseq"):
        load_bundle(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format="other"), "does not say format"),
        (lambda m: m.update(format_version="1"), "format version '1'"),
        (lambda m: m.update(format_version=0), "format version 0"),
        (lambda m: m.pop("config"), "config"),
        (lambda m: m.update(config=[1]), "config"),
        (lambda m: m.update(files=[]), "garbles"),
        (lambda m: m["files"].update({"../../etc/passwd": {"sha256": "0", "size": 1}}), "leaves the bundle"),
        (lambda m: m["files"].update({"/etc/passwd": {"sha256": "0", "size": 1}}), "absolute"),
        (lambda m: m["files"]["README.md"].pop("size"), "size"),
    ],
)
def test_a_strangers_manifest_is_refused_even_with_a_fitting_seal(folder, change, message):
    reseal(folder, change)
    with pytest.raises(BundleError, match=message):
        load_bundle(folder)


def test_weights_that_are_no_safetensors_are_refused_even_with_fitting_hashes(folder):
    (folder / WEIGHTS).write_bytes(b'\x08\0\0\0\0\0\0\0{"a": 1}')
    entry = {"sha256": hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest(), "size": 16}
    reseal(folder, lambda m: m["files"].update({WEIGHTS: entry}))
    bundle = load_bundle(folder)
    with pytest.raises(BundleError, match="safetensors"):
        _ = bundle.weights
    with pytest.raises(BundleError, match="safetensors"):
        _ = bundle.tensors


class Evil:
    def __reduce__(self):
        return (os.system, ("touch evil-was-here",))


@pytest.mark.parametrize("name", ["model.pt", "model.ckpt", "model.zip", "model"])
@pytest.mark.parametrize("how", ["pickle", "torch", "torch-legacy"])
def test_a_pickle_is_refused_and_not_executed(tmp_path, monkeypatch, name, how):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    if how == "pickle":
        path.write_bytes(pickle.dumps(Evil()))
    else:
        torch.save({"weights": Evil()}, path, _use_new_zipfile_serialization=how == "torch")
    with pytest.raises(BundleError, match=r"could run any code.*give the bundle/ folder"):
        voiceseq.load(path)
    assert not (tmp_path / "evil-was-here").exists()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("empty.zip", b"", "a folder or a .zip was wanted"),
        ("song.wav", b"RIFF....WAVE", "a folder or a .zip was wanted"),
        ("half.zip", b"PK\x03\x04" + b"\0" * 50, "not a complete zip"),
        ("bundle.json", b"{}", "give the folder"),
    ],
)
def test_foreign_files_are_refused(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BundleError, match=message):
        load_bundle(tmp_path / name)


def test_foreign_folders_and_zips_are_refused(tmp_path):
    with pytest.raises(BundleError, match=r"no bundle.json"):
        load_bundle(tmp_path)
    make(tmp_path / "run" / "bundle")
    with pytest.raises(BundleError, match=r"did you mean .*run/bundle"):
        load_bundle(tmp_path / "run")
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("one.jpg", b"jpg")
    with pytest.raises(BundleError, match=r"no bundle.json: it holds one.jpg"):
        load_bundle(tmp_path / "photos.zip")


def test_a_foreign_folder_is_not_walked(tmp_path, monkeypatch):
    """It may be somebody's home, or the whole disk."""
    monkeypatch.setattr(Path, "rglob", lambda *args: pytest.fail("the folder was walked"))
    for act in (load_bundle, make):
        (tmp_path / "thesis.tex").touch()
        with pytest.raises(BundleError):
            act(tmp_path)


@pytest.mark.parametrize("raw", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b'{"format": NaN}', b"[]", b"null"])
def test_corrupt_json_is_refused(folder, raw):
    (folder / MANIFEST).write_bytes(raw)
    with pytest.raises(BundleError, match=r"bundle\.json"):
        load_bundle(folder)


@quick
@given(raw=st.binary(max_size=300), suffix=st.sampled_from([".zip", ".pt", ""]))
def test_random_bytes_are_refused_politely(tmp_path, raw, suffix):
    path = tmp_path / f"noise{suffix}"
    path.write_bytes(raw)
    with pytest.raises(BundleError):
        load_bundle(path)


def member(name: str, mode: int = 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("placeholder")
    info.filename = info.orig_filename = name
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (member("../evil"), "leaves the bundle"),
        (member("a/../../evil"), "leaves the bundle"),
        (member("/etc/evil"), "an absolute path"),
        (member("..\\evil"), "a character that no bundle uses"),
        (member("C:evil"), "a character that no bundle uses"),
        (member("link", stat.S_IFLNK | 0o777), "a link"),
    ],
)
def test_zip_slip_is_refused(folder, tmp_path, info, message):
    path = export_bundle(folder, tmp_path / "slip.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(info, b"/etc/passwd")
    with pytest.raises(BundleError, match=message):
        load_bundle(path)


def test_zip_bombs_and_crowds_and_twins_are_refused(folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, bytes(50 << 20))
    with pytest.raises(BundleError, match="more than 200 times"):
        load_bundle(tmp_path / "bomb.zip")
    with zipfile.ZipFile(tmp_path / "crowd.zip", "w") as archive:
        for i in range(MAX_FILES + 1):
            archive.writestr(f"{i}", b"")
    with pytest.raises(BundleError, match="1001 files"):
        load_bundle(tmp_path / "crowd.zip")
    path = export_bundle(folder, tmp_path / "twins.zip")
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("README.md", b"other")
    with pytest.raises(BundleError, match="two files of the same name"):
        load_bundle(path)


def test_zeros_never_make_our_own_zip_a_bomb(tmp_path):
    path = make(tmp_path / "zeros.zip", weights={"w": torch.zeros(1 << 20)})
    assert not load_bundle(path).weights["w"].any()


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    monkeypatch.setattr(reading.importlib.resources, "files", lambda package: tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    for name in ("alexa", "jarvis.zip"):
        make(tmp_path / "data" / "bundles" / name)
    (tmp_path / "data" / "bundles" / "LICENCES").mkdir()
    return tmp_path


def test_shipped_names_are_found_and_win_over_folders(shipped):
    assert list(reading.shipped_bundles()) == ["alexa", "jarvis"]
    (shipped / "alexa").mkdir()
    assert load_bundle("alexa").path == shipped / "data/bundles/alexa"
    assert load_bundle("jarvis").path.name == "jarvis.zip"
    with pytest.raises(BundleError, match="not a bundle"):
        load_bundle("./alexa")


def test_a_name_is_that_of_the_newest_run_where_none_ships(tmp_path, monkeypatch, shipped):
    monkeypatch.chdir(tmp_path)
    for day in ("2026-01-01_00-00-00", "2026-01-02_00-00-00"):
        save_bundle(f"runs/own/{day}/bundle", kind="test", config={"made": day}, weights={"w": torch.zeros(1)})
    (tmp_path / "runs" / "own" / "2026-01-03_00-00-00").mkdir()  # still running
    assert load_bundle("own").config == {"made": "2026-01-02_00-00-00"}
    with pytest.raises(BundleError, match="no bundle"):
        load_bundle("../own")


def test_an_unknown_name_suggests_the_nearest_and_lists_all(shipped):
    with pytest.raises(BundleError, match=r"no bundle 'alxa'.*did you mean 'alexa'.*shipped: alexa, jarvis"):
        load_bundle("alxa")
    with pytest.raises(BundleError, match=r"no such file or folder"):
        load_bundle("here/alexa")


@pytest.mark.parametrize("name", ["", "x" * 5000, "a\0b", "~nobody-of-this-name/x"])
def test_impossible_names_are_refused(name):
    with pytest.raises(BundleError, match="no bundle"):
        load_bundle(name)


def test_load_knows_its_kinds(tmp_path, monkeypatch):
    with pytest.raises(BundleError, match=r"is a 'teleporter'; voiceseq .* opens .*language-model"):
        voiceseq.load(make(tmp_path / "model", kind="teleporter"))
    monkeypatch.setitem(voiceseq.KINDS, "teleporter", f"{__name__}:Teleporter")
    assert voiceseq.load(tmp_path / "model").bundle.config == {"width": 4}


class Teleporter:
    def __init__(self, bundle):
        self.bundle = bundle

    from_bundle = classmethod(lambda cls, bundle: cls(bundle))


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model", "model.zip"])
@pytest.mark.parametrize("exchanging", [True, False])
def test_a_failure_at_any_step_leaves_the_old_bundle_and_no_litter(tmp_path, monkeypatch, name, exchanging):
    """Every system call of a save fails in turn, as on a full disk; each time all is as before."""
    path = make(tmp_path / name, config={"age": "old"})
    if not exchanging:
        monkeypatch.setattr(writing, "exchange", lambda one, other: False)
    failures = 0
    while message := failing_at(failures, path, monkeypatch):
        assert "No space left on device" in message
        assert "MB are free" in message
        assert load_bundle(path).config == {"age": "old"}
        assert [p.name for p in tmp_path.iterdir()] == [name]
        failures += 1
    assert failures > (10 if name == "model" else 1)
    assert load_bundle(path).config == {"age": "new"}
    assert [p.name for p in tmp_path.iterdir()] == [name]


def failing_at(step: int, path: Path, monkeypatch) -> str:
    """The error of a save whose given step fails; nothing where it has fewer steps."""
    left = step

    def failing(call):
        def wrapped(*args, **kwargs):
            nonlocal left
            left -= 1
            if left == -1:
                raise OSError(28, "No space left on device")
            return call(*args, **kwargs)

        return wrapped

    with monkeypatch.context() as patch:
        patch.setattr(writing.shutil, "copyfileobj", failing(shutil.copyfileobj))
        patch.setattr(writing.os, "fsync", failing(os.fsync))
        patch.setattr(writing.os, "replace", failing(os.replace))
        if path.suffix != ".zip":
            patch.setattr(writing, "swap", failing(writing.swap))
        try:
            make(path, config={"age": "new"})
        except BundleError as error:
            return str(error)
    return ""


def test_the_stepwise_exchange_takes_a_failed_rename_back(tmp_path, monkeypatch):
    path = make(tmp_path / "model", config={"age": "old"})
    monkeypatch.setattr(writing, "exchange", lambda one, other: False)
    real = os.rename
    monkeypatch.setattr(
        writing.os, "rename", lambda a, b: real(a, b) if "partial" not in str(a) or b != path else fail_rename(b)
    )
    with pytest.raises(BundleError, match="cannot be written"):
        make(path, config={"age": "new"})
    assert load_bundle(path).config == {"age": "old"}
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def fail_rename(target):
    raise OSError(39 if os.listdir(target.parent) and target.exists() else 13, "not now")


KILLED = """
import os, signal, sys
from pathlib import Path
from voiceseq.bundles import save_bundle, writing

left, path, exchanging = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "True"

def deadly(call):
    def wrapped(*args, **kwargs):
        global left
        left -= 1
        if left == -1:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **kwargs)
    return wrapped

if not exchanging:
    writing.exchange = lambda one, other: False
for name in ("rename", "replace", "fsync", "mkdir", "rmdir", "unlink"):
    setattr(os, name, deadly(getattr(os, name)))
writing.exchange = deadly(writing.exchange)
writing.shutil.copyfileobj = deadly(writing.shutil.copyfileobj)
save_bundle(path, kind="test", config={"age": "new"})
"""


@pytest.mark.parametrize(("name", "exchanging"), [("model", True), ("model", False), ("model.zip", True)])
def test_killed_at_any_moment_a_save_leaves_a_whole_bundle(tmp_path, name, exchanging):
    """SIGKILL before the 1st, 2nd, 3rd ... system call that matters; at no point is the bundle lost."""
    ages = []
    for step in range(100):
        home = tmp_path / str(step)
        path = save_bundle(home / name, kind="test", config={"age": "old"})
        child = subprocess.run([sys.executable, "-c", KILLED, str(step), str(path), str(exchanging)], check=False)
        ages.append(surviving(path, exchanging))
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL
    assert child.returncode == 0
    assert ages == sorted(ages, reverse=True)  # old ... old new ... new
    assert ages[0] == "old"
    assert ages[-1] == "new"
    assert len(ages) > 8


def surviving(path: Path, exchanging: bool) -> str:
    try:
        return load_bundle(path).config["age"]
    except BundleError as error:
        assert not exchanging
        aside = str(error).partition("rename ")[2].partition(" back")[0]
        return load_bundle(Path(aside)).config["age"]


def test_a_real_full_disk_is_one_clear_error(tmp_path):
    """The system itself refuses to write on: a limit on the size of a file stands for the full disk."""
    code = f"""
import random, resource
from voiceseq.bundles import save_bundle
from voiceseq.errors import BundleError
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for name in ("model", "model.zip"):
    try:
        noise = random.Random(0).randbytes(90_000)
        save_bundle({str(tmp_path)!r} + "/" + name, kind="test", config={{}}, files={{"lm": noise}}, card="x" * 30_000)
    except BundleError as error:
        print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) == 2
    assert all("cannot be written: File too large" in line and "MB are free" in line for line in said)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BundleError, match=r"cannot be written: File exists: .*/file;"):
        make(tmp_path / "file" / "model")
    if Path("/proc/self").exists():
        with pytest.raises(BundleError, match="cannot be written"):
            make(Path("/proc/self/model"))


def test_only_a_bundle_is_written_over(tmp_path, folder):
    (tmp_path / "home").mkdir()
    make(tmp_path / "home")  # an empty folder is nothing
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.tex").write_text("years")
    (tmp_path / "thesis.zip").write_text("years")
    for name in ("work", "thesis.zip"):
        with pytest.raises(BundleError, match="will not be written over"):
            make(tmp_path / name)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(BundleError, match=r"holds more than its bundle \(notes.txt\)"):
        make(folder)
    assert (tmp_path / "work" / "thesis.tex").read_text() == (tmp_path / "thesis.zip").read_text() == "years"
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_damaged_bundle_may_be_replaced(folder):
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(b"")
    make(folder)
    assert load_bundle(folder).read(WEIGHTS) == whole


def test_a_link_to_a_bundle_stays_a_link(tmp_path, folder):
    (tmp_path / "latest").symlink_to(folder)
    make(tmp_path / "latest", config={"age": "new"})
    assert (tmp_path / "latest").is_symlink()
    assert load_bundle(folder).config == {"age": "new"}


def test_leftovers_of_killed_saves_are_swept_when_old(tmp_path):
    old, young, other = (
        tmp_path / f".{name}.partial" for name in ("model.00000000", "model.11111111", "mode.22222222")
    )
    for left in (old, young, other):
        left.mkdir()
    for left in (old, other):
        os.utime(left, (time.time() - 7200,) * 2)
    make(tmp_path / "model")
    assert [p.exists() for p in (old, young, other)] == [False, True, True]


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        path = make(tmp_path / "model")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert stat.S_IMODE((path / MANIFEST).stat().st_mode) == 0o640


def test_many_savers_of_one_bundle_leave_one_whole_bundle(tmp_path):
    code = "import sys; from voiceseq.bundles import save_bundle\n"
    code += "for i in range(20): save_bundle(sys.argv[1], kind='test', config={'i': i}, card='x' * 10_000 * i)"
    target = str(tmp_path / "model")
    savers = [subprocess.Popen([sys.executable, "-c", code, target], stderr=subprocess.PIPE) for _ in range(3)]
    errors = [saver.communicate()[1].decode() for saver in savers]
    assert all("Traceback" not in e or "BundleError" in e for e in errors), errors
    assert load_bundle(target).config["i"] in range(20)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_network_with_an_embedding_opens_without_the_compiler():
    code = "import sys, voiceseq; voiceseq.load('dates'); sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0


def test_other_decoding_leaves_every_file_as_it_was(tmp_path: Path) -> None:
    path = save_bundle(
        tmp_path / "b", kind="whisper", config={"size": 3}, weights={"a": torch.ones(2, 2)}, decoding={"beam": 5}
    )
    before = load_bundle(path)
    writing.change_decoding(path, {"beam": 7})
    after = load_bundle(path)
    assert after.decoding == {"beam": 7}
    assert after.files == before.files
    assert (after.config, after.storage, after.kind) == (before.config, before.storage, before.kind)
    assert verify_bundle(path).ok
