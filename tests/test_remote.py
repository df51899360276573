"""URLs where paths are wanted, against a real file server on loopback and fsspec's own memory."""

from pathlib import Path

import fsspec
import numpy as np
import pytest
from file_server import file_server

import voiceseq
from voiceseq import remote
from voiceseq.audio.files import audio_info, read_audio, read_clip, write_audio
from voiceseq.bundles import export_bundle
from voiceseq.cli.main import main
from voiceseq.datasets.manifest import Clip, read_manifest, write_manifest
from voiceseq.errors import AudioError, BundleError, InputError


@pytest.fixture
def served(tmp_path):
    """A folder, its address, and what the server was asked."""
    folder = tmp_path / "served"
    (folder / "sub").mkdir(parents=True)
    rng = np.random.default_rng(0)
    write_audio(folder / "a.wav", 0.1 * rng.standard_normal(16_000).astype(np.float32), 16_000)
    write_audio(folder / "sub" / "b c.flac", 0.1 * rng.standard_normal(8_000).astype(np.float32), 16_000)
    with file_server(folder) as (url, handler):
        yield folder, url, handler
    remote.forget_all()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(remote, "PAUSE_S", 0.01)
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("https://host/a b.wav", "https://host/a b.wav"),
        (Path("https://host/a.wav"), "https://host/a.wav"),
        (Path("s3://bucket/key") / "x.json", "s3://bucket/key/x.json"),
        ("plain.wav", None),
        ("/a/https:x", None),
        ("file:///tmp/a.wav", None),
        (Path("file:///tmp/a.wav"), None),
    ],
)
def test_a_url_survives_being_a_path(path, url) -> None:
    assert remote.url_of(path) == url


def test_a_file_url_is_the_file() -> None:
    assert remote.local_path("file:///tmp/a%20b.wav") == Path("/tmp/a b.wav")
    assert remote.local_path(Path("file:///tmp/a.wav")) == Path("/tmp/a.wav")
    assert remote.local_path("a.wav") == Path("a.wav")


@pytest.mark.parametrize("url", ["ftp://host/a", "simplecache::s3://b/a", "zip://x::https://host/a.zip", "shell://x"])
def test_other_protocols_are_refused(url: str) -> None:
    with pytest.raises(InputError, match="was wanted before ://"):
        remote.url_of(url)


def test_sound_is_read_as_from_the_disk(served) -> None:
    folder, url, handler = served
    for name in ("a.wav", "sub/b%20c.flac"):
        here = folder / name.replace("%20", " ")
        np.testing.assert_array_equal(read_audio(f"{url}/{name}").samples, read_audio(here).samples)
        assert audio_info(Path(f"{url}/{name}")) == audio_info(here)
    np.testing.assert_array_equal(read_clip(f"{url}/a.wav", 0.25, 0.5), read_clip(folder / "a.wav", 0.25, 0.5))
    assert handler.asked.count(("GET", "/a.wav")) == 1  # the clips of a manifest share their file
    np.testing.assert_array_equal(read_audio((folder / "a.wav").as_uri()).samples, read_audio(folder / "a.wav").samples)


def test_copies_are_bounded_and_deleted(served, monkeypatch) -> None:
    folder, url, _ = served
    monkeypatch.setattr(remote, "KEPT", 1)
    for number in range(3):
        (folder / f"{number}.bin").write_bytes(bytes([number]))
        with remote.local_copy(f"{url}/{number}.bin") as copy:
            assert copy.read_bytes() == bytes([number])
    assert len(list(copy.parent.iterdir())) == 1
    remote.forget_all()
    assert not copy.parent.exists()


def test_what_cannot_be_had_is_told(served, monkeypatch) -> None:
    folder, url, handler = served
    (folder / "text.wav").write_text("no sound")
    for name, said in [("gone.wav", "there is no such file"), ("text.wav", "cannot be read|no sound")]:
        with pytest.raises(AudioError, match=said) as error:
            read_audio(f"{url}/{name}")
        assert f"{url}/{name}" in str(error.value)
        assert "voiceseq-fetched" not in str(error.value)
    with pytest.raises(AudioError, match=r"http://127.0.0.1:1/a.wav cannot be reached"):
        read_audio("http://127.0.0.1:1/a.wav")
    monkeypatch.setattr(remote, "LARGEST", 1000)
    with pytest.raises(AudioError, match="at most 1,000 were wanted"):
        read_audio(f"{url}/a.wav")
    handler.moods["/sub/b%20c.flac"] = ["endless"] * 9
    with pytest.raises(AudioError, match="1,000"):
        read_audio(f"{url}/sub/b%20c.flac")


def test_a_net_that_fails_twice_is_tried_again(served) -> None:
    folder, url, handler = served
    handler.moods["/a.wav"] = ["busy", "short"]
    np.testing.assert_array_equal(read_audio(f"{url}/a.wav").samples, read_audio(folder / "a.wav").samples)
    handler.moods["/sub/b%20c.flac"] = ["short"] * 3
    with pytest.raises(AudioError, match=r"broke off|cannot be reached"):
        read_audio(f"{url}/sub/b%20c.flac")


def test_manifests(served, tmp_path) -> None:
    folder, url, _ = served
    clips = [
        Clip("beside", folder / "a.wav", 0.5, 0.25),
        Clip("elsewhere", Path("https://host/x.opus"), 1.0),
    ]
    write_manifest(folder / "m.jsonl.gz", clips)
    found = read_manifest(f"{url}/m.jsonl.gz")
    assert [remote.url_of(clip.audio) for clip in found] == [f"{url}/a.wav", "https://host/x.opus"]
    np.testing.assert_array_equal(read_clip(found[0].audio, 0.25, 0.5), read_clip(folder / "a.wav", 0.25, 0.5))
    assert read_manifest(folder / "m.jsonl.gz")[1].audio == found[1].audio
    write_manifest(Path(f"{url}/new/n.jsonl"), [Clip("up", Path(f"{url}/new/x.wav"), 1.0), clips[0]])
    text = (folder / "new" / "n.jsonl").read_text()
    assert '"audio": "x.wav"' in text
    assert (folder / "a.wav").as_uri() in text
    with pytest.raises(InputError, match="no such file"):
        read_manifest(f"{url}/gone.jsonl")


def test_writing(served) -> None:
    folder, url, _ = served
    remote.write_bytes(f"{url}/deep/er/x.txt", b"one")
    assert (folder / "deep/er/x.txt").read_bytes() == b"one"
    with pytest.raises(InputError, match="403"):
        remote.write_bytes(f"{url}/forbidden/x.txt", b"one")
    with remote.output(Path("memory://box/report")) as target:
        (target / "sub").mkdir(parents=True)
        (target / "sub" / "r.json").write_text("{}")
    assert remote.read_bytes("memory://box/report/sub/r.json") == b"{}"
    assert remote.read_bytes("memory://box/none") is None
    assert remote.files_below("memory://box") == ["memory://box/report/sub/r.json"]


def test_bundles(served, tmp_path) -> None:
    folder, url, _ = served
    export_bundle("alexa", folder / "alexa.zip")
    assert voiceseq.load(f"{url}/alexa.zip").words == ("alexa",)
    with pytest.raises(BundleError, match="no such file"):
        voiceseq.load(f"{url}/gone.zip")


def test_listening_to_a_url(served, capsys) -> None:
    folder, url, _ = served
    clip = Path(__file__).parent.parent / "data" / "clips" / "computer.flac"
    (folder / "c.flac").write_bytes(clip.read_bytes())
    assert main(["listen", "--model", "computer", "--file", f"{url}/c.flac", "--json"]) == 0
    assert '"word": "computer"' in capsys.readouterr().out
