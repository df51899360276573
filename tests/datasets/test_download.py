"""Downloads against a real server on loopback that continues, cuts, lies and fails; archives that want out."""

import contextlib
import errno
import gzip
import hashlib
import http.server
import importlib.util
import io
import json
import os
import shutil
import stat
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from voiceseq.datasets import download
from voiceseq.datasets.corpora import KINDS
from voiceseq.datasets.download import (
    SOURCES,
    Source,
    archive_name,
    fetch,
    listed_checksum,
    obtain,
    parse_checksum,
    unpack,
)
from voiceseq.errors import InputError

DATA = os.urandom(3_000_000)


def tar_of(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


class Server:
    """Serves ``data`` at any path; the switches make it misbehave. ``ranges`` lists what was asked for."""

    def __init__(self) -> None:
        self.data = DATA
        self.continues = True  # answers Range
        self.cuts: list[int] = []  # of the next answers, send only so many bytes and hang up
        self.codes: list[int] = []  # of the next answers: this status and nothing else
        self.tells_length = True
        self.ranges: list[str | None] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.answer(self)

            def log_message(self, *args):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/corpus.tar.gz"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range")
        self.ranges.append(asked)
        if self.codes:
            request.send_error(self.codes.pop(0))
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.continues else 0
        if start >= len(self.data) > 0:
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(self.data)}")
            request.end_headers()
            return
        body = self.data[start:]
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(self.data) - 1}/{len(self.data)}")
        if self.tells_length:
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        with contextlib.suppress(ConnectionError):  # a client that has no space hangs up
            request.wfile.write(body[: self.cuts.pop(0)] if self.cuts else body)

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "pause", lambda failures: 0.0)
    running = Server()
    yield running
    running.stop()


def sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def quiet(what, done, total):
    pass


def get(server: Server, folder: Path, checksum: str | None = None) -> Path:
    return fetch(server.url, folder / "corpus.tar.gz", checksum or sha(server.data), quiet)


# --- fetching --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_file_comes_and_is_checked(server, tmp_path, kind):
    seen = []
    checksum = hashlib.new(kind, DATA).hexdigest().upper()
    path = fetch(server.url, tmp_path / "x.bin", checksum, lambda *now: seen.append(now))
    assert path.read_bytes() == DATA
    assert os.listdir(tmp_path) == ["x.bin"]
    assert seen[-1] == ("x.bin", len(DATA), len(DATA))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert len(seen) > 3
    fetch(server.url, path, checksum, quiet)
    assert server.ranges == [None]  # what is there and right is not asked for again


def test_a_cut_connection_is_taken_up_where_it_broke(server, tmp_path):
    server.cuts = [1_000_000, 700_000]
    assert get(server, tmp_path).read_bytes() == DATA
    assert server.ranges == [None, "bytes=1000000-", "bytes=1700000-"]


def test_a_bad_line_is_borne_as_long_as_bytes_come(server, tmp_path):
    server.cuts = [100_000] * 20
    assert get(server, tmp_path).read_bytes() == DATA
    server.cuts, server.continues, server.ranges = [100_000, 90_000] * 20, False, []  # back and forth, never further
    (tmp_path / "corpus.tar.gz").unlink()
    with pytest.raises(InputError, match="ended early"):
        get(server, tmp_path)
    assert len(server.ranges) == 1 + download.TRIES


def test_a_second_run_continues_the_first(server, tmp_path):
    server.cuts = [1_234_567] + [0] * 10
    with pytest.raises(InputError, match=r"cannot be downloaded .the connection ended early.*what came is kept"):
        get(server, tmp_path)
    assert (tmp_path / "corpus.tar.gz.part").read_bytes() == DATA[:1_234_567]
    assert not (tmp_path / "corpus.tar.gz").exists()
    server.cuts, server.ranges = [], []
    assert get(server, tmp_path).read_bytes() == DATA
    assert server.ranges == ["bytes=1234567-"]


def test_a_server_that_cannot_continue_sends_it_all_again(server, tmp_path):
    server.cuts, server.continues = [1_000_000], False
    assert get(server, tmp_path).read_bytes() == DATA


def test_a_part_that_is_already_whole_is_only_checked(server, tmp_path):
    (tmp_path / "corpus.tar.gz.part").write_bytes(DATA)
    assert get(server, tmp_path).read_bytes() == DATA
    assert server.ranges == [f"bytes={len(DATA)}-"]


def test_a_part_of_something_longer_is_thrown_away(server, tmp_path):
    (tmp_path / "corpus.tar.gz.part").write_bytes(DATA + b"more")
    assert get(server, tmp_path).read_bytes() == DATA


def test_a_server_that_does_not_tell_the_length(server, tmp_path):
    server.tells_length = False
    assert get(server, tmp_path).read_bytes() == DATA


def test_wrong_bytes_leave_nothing(server, tmp_path):
    wanted = sha(DATA)
    server.data = DATA[:-1] + bytes([DATA[-1] ^ 1])
    with pytest.raises(InputError, match=r"is not what was wanted: its sha256 is .*Nothing was kept"):
        get(server, tmp_path, wanted)
    assert os.listdir(tmp_path) == []
    (tmp_path / "corpus.tar.gz.part").write_bytes(b"from elsewhere")  # continued with the right bytes, still wrong
    server.data = DATA
    with pytest.raises(InputError, match="Nothing was kept"):
        get(server, tmp_path, wanted)
    assert get(server, tmp_path, wanted).read_bytes() == DATA


def test_a_wrong_file_under_the_final_name_is_replaced(server, tmp_path):
    (tmp_path / "corpus.tar.gz").write_bytes(b"damaged")
    assert get(server, tmp_path).read_bytes() == DATA


def test_a_busy_server_is_asked_again_and_a_clear_no_is_not(server, tmp_path):
    server.codes = [503, 503]
    assert get(server, tmp_path).read_bytes() == DATA
    server.ranges, server.codes = [], [404]
    with pytest.raises(InputError, match="the server says 404"):
        fetch(server.url, tmp_path / "other", sha(DATA), quiet)
    assert server.ranges == [None]
    server.codes = [503] * 10
    with pytest.raises(InputError, match="the server says 503"):
        fetch(server.url, tmp_path / "other", sha(DATA), quiet)


def test_no_network_is_a_clear_error(server, tmp_path):
    server.http.server_close()
    with pytest.raises(InputError, match=r"cannot be downloaded .*look at the network"):
        get(server, tmp_path)


def test_no_space_is_told_before_the_disk_is_full(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(InputError, match="no space is left for the download in"):
        obtain(Source(server.url, sha(DATA), "CC0", "folder"), tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fills_up_keeps_what_came(server, tmp_path, monkeypatch):
    def full(what, done, total):
        if done > 1_000_000:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InputError, match=r"no space is left .*what came is kept"):
        obtain(Source(server.url, sha(DATA), "CC0", "folder"), tmp_path, progress=full)
    part = (tmp_path / "corpus.tar.gz.part").read_bytes()
    assert len(part) > 1_000_000
    assert part == DATA[: len(part)]


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x/y.zip", "http://host/", "http://host/..", "http://h/%2e%2e", "x"]
)
def test_only_files_over_http_have_a_name(url):
    with pytest.raises(InputError, match="an http or https address of an archive was wanted"):
        archive_name(url)


# --- checksums -------------------------------------------------------------------------------------------------------


def test_checksums_are_read():
    assert parse_checksum("A" * 64) == ("sha256", "a" * 64)
    assert parse_checksum(f"md5:{'0' * 32}") == ("md5", "0" * 32)
    for wrong in ("", "abc", "g" * 64, f"sha256:{'0' * 32}", f"sha1:{'0' * 40}"):
        with pytest.raises(InputError, match="is no checksum"):
            parse_checksum(wrong)


def test_a_table_of_checksums_is_read_by_name(tmp_path):
    table = tmp_path / "md5sum.txt"
    table.write_text(f"{'1' * 32}  ./dev-clean.tar.gz\n{'2' * 64} *other.zip\n")
    assert listed_checksum(table, "dev-clean.tar.gz") == f"md5:{'1' * 32}"
    assert listed_checksum(table, "other.zip") == f"sha256:{'2' * 64}"
    with pytest.raises(InputError, match=r"no line for none\.zip"):
        listed_checksum(table, "none.zip")
    with pytest.raises(InputError, match="cannot be read"):
        listed_checksum(tmp_path / "none", "x")


def test_the_table_of_sources_is_sound():
    for name, source in SOURCES.items():
        assert archive_name(source.url) == f"{name}.tar.gz"
        assert source.url.startswith("https://")
        assert source.kind in KINDS
        assert source.licence
        assert source.checksum is None or parse_checksum(source.checksum)
    assert len({source.checksum for source in SOURCES.values()}) == len(SOURCES)


def test_librispeech_hashes_are_those_of_torchaudio():
    source = Path(importlib.util.find_spec("torchaudio").origin).parent / "datasets/librispeech.py"
    text = source.read_text()
    known = [row for row in SOURCES.values() if "/12/" in row.url]
    assert len(known) == 7
    for row in known:
        name = archive_name(row.url)
        assert f'/{name}": "{row.checksum.removeprefix("sha256:")}"' in text


def test_what_has_no_checksum_is_not_downloaded(server, tmp_path):
    with pytest.raises(InputError, match="give the one that you trust with --sha256"):
        obtain(Source(server.url, None, "CC0", "folder"), tmp_path)
    assert server.ranges == []


# --- unpacking -------------------------------------------------------------------------------------------------------


def test_obtain_unpacks_joins_and_does_nothing_twice(server, tmp_path):
    server.data = tar_of({"Libri/README": b"new", "Libri/dev/1.flac": b"abc"})
    source = Source(server.url, sha(server.data), "CC0", "folder")
    (tmp_path / "Libri/train").mkdir(parents=True)
    (tmp_path / "Libri/README").write_bytes(b"old")
    assert obtain(source, tmp_path) is True
    assert (tmp_path / "Libri/dev/1.flac").read_bytes() == b"abc"
    assert (tmp_path / "Libri/README").read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == [".corpus.tar.gz.received.json", "Libri"]
    assert json.loads((tmp_path / ".corpus.tar.gz.received.json").read_text())["licence"] == "CC0"
    assert obtain(source, tmp_path) is False
    assert len(server.ranges) == 1
    server.data = tar_of({"Libri/dev/1.flac": b"abcd"})
    assert obtain(source, tmp_path, sha(server.data)) is True  # another hash is another archive
    assert (tmp_path / "Libri/dev/1.flac").read_bytes() == b"abcd"


def test_unpacking_that_was_stopped_is_taken_up_without_a_download(server, tmp_path):
    server.data = tar_of({"a": b"1"})
    (tmp_path / "corpus.tar.gz").write_bytes(server.data)
    assert obtain(Source(server.url, sha(server.data), "CC0", "folder"), tmp_path) is True
    assert server.ranges == []
    assert (tmp_path / "a").read_bytes() == b"1"


def zip_of(files: dict[str, bytes], mode: int = 0) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return out.getvalue()


@pytest.mark.parametrize(
    "raw",
    [
        tar_of({"x/a.wav": b"1", "x/y/b.wav": b"2"}),
        tar_of({"x/a.wav": b"1", "x/y/b.wav": b"2"}, "w"),
        tar_of({"x/a.wav": b"1", "x/y/b.wav": b"2"}, "w:xz"),
        zip_of({"x/a.wav": b"1", "x/empty/": b"", "x/y/b.wav": b"2"}),
    ],
    ids=["tar.gz", "tar", "tar.xz", "zip"],
)
def test_tar_and_zip_are_unpacked(tmp_path, raw):
    (tmp_path / "archive").write_bytes(raw)
    unpack(tmp_path / "archive", tmp_path)
    assert (tmp_path / "x/a.wav").read_bytes() == b"1"
    assert (tmp_path / "x/y/b.wav").read_bytes() == b"2"
    assert sorted(os.listdir(tmp_path)) == ["archive", "x"]


def tar_with(**fields) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        fine = tarfile.TarInfo("fine")
        tar.addfile(fine)
        member = tarfile.TarInfo("bad")
        for name, value in fields.items():
            setattr(member, name, value)
        tar.addfile(member)
    return out.getvalue()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (tar_with(name="/tmp/out"), "leads out of its folder"),
        (tar_with(name="../out"), "leads out of its folder"),
        (tar_with(name="a/../../out"), "leads out of its folder"),
        (tar_with(name="a\\..\\out"), "leads out of its folder"),
        (tar_with(name="C:/out"), "leads out of its folder"),
        (tar_with(type=tarfile.SYMTYPE, linkname="/etc/passwd"), "a link or device"),
        (tar_with(type=tarfile.SYMTYPE, linkname="fine"), "a link or device"),
        (tar_with(type=tarfile.LNKTYPE, linkname="fine"), "a link or device"),
        (tar_with(type=tarfile.CHRTYPE), "a link or device"),
        (tar_with(type=tarfile.FIFOTYPE), "a link or device"),
        (zip_of({"fine": b"", "/tmp/out": b"x"}), "leads out of its folder"),
        (zip_of({"fine": b"", "../out": b"x"}), "leads out of its folder"),
        (zip_of({"link": b"/etc/passwd"}, stat.S_IFLNK | 0o777), "a link or device"),
        (zip_of({"fine": b"", "bomb": b"\0" * 5_000_000}), "holds more than 1000000 bytes"),
        (tar_of({"fine": b"", "bomb": b"\0" * 5_000_000}), "holds more than 1000000 bytes"),
        (b"neither tar nor zip", "cannot be unpacked"),
        (b"", "cannot be unpacked"),
        (tar_of({"fine": b"", "noise": DATA[:900_000]})[:-200_000], "cannot be unpacked"),
        (gzip.compress(b"x", mtime=0), "cannot be unpacked"),
    ],
)
def test_a_bad_archive_leaves_nothing(tmp_path, raw, message):
    folder = tmp_path / "inner"
    folder.mkdir()
    (folder / "archive").write_bytes(raw)
    with pytest.raises(InputError, match=message):
        unpack(folder / "archive", folder, most_bytes=1_000_000)
    assert os.listdir(folder) == ["archive"]
    assert os.listdir(tmp_path) == ["inner"]


def test_an_encrypted_zip_is_refused(tmp_path):
    raw = bytearray(zip_of({"secret": b"x" * 100}))
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(signature) + place] |= 1
    (tmp_path / "archive").write_bytes(raw)
    with pytest.raises(InputError, match="is encrypted"):
        unpack(tmp_path / "archive", tmp_path)


def test_dangerous_modes_are_taken_off(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo("tool")
        member.mode = 0o4777
        tar.addfile(member)
    (tmp_path / "archive").write_bytes(out.getvalue())
    unpack(tmp_path / "archive", tmp_path)
    assert not (tmp_path / "tool").stat().st_mode & (stat.S_ISUID | stat.S_IWOTH)
