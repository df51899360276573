"""The frame of ``voiceseq``: help, exit codes, one-line errors, pipes, locales; and bundle, tasks, doctor."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import types

import pytest

import voiceseq
from voiceseq.bundles import save_bundle
from voiceseq.cli import doctor, main
from voiceseq.cli.tasks import TASKS
from voiceseq.errors import BundleError, ConfigError, InputError
from voiceseq.text.vocabulary import Vocabulary

VOICESEQ = [sys.executable, "-m", "voiceseq"]
# with PYTHONUNBUFFERED nothing is left to flush at the end, which is where the trouble with pipes comes from
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def command(*words: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([*VOICESEQ, *words], capture_output=True, text=True, encoding="utf-8", check=False, **options)


@pytest.fixture
def stub(monkeypatch):
    """A command ``stub`` that does what the test wants."""

    def install(action, raw: bool = False, add_arguments=lambda parser: None):
        module = types.ModuleType("stub_command")
        module.run, module.add_arguments = action, add_arguments
        monkeypatch.setitem(sys.modules, "stub_command", module)
        monkeypatch.setitem(main.COMMANDS, "stub", main.Command("stub_command", "does it", "voiceseq stub", raw=raw))

    return install


@pytest.fixture
def bundle(tmp_path):
    path = tmp_path / "modèle"
    vocabularies = {"characters": list("aé☃")}
    settings = {"kind": "language-model", "config": {"width": 4}, "licence": "CC-BY, © Zoë ☃"}
    return save_bundle(path, vocabularies=vocabularies, files={"lm": b"x" * 9}, **settings)


def raising(error: BaseException):
    def run(*args):
        raise error

    return run


# --- the frame -------------------------------------------------------------------------------------------------------


def test_help_lists_every_command(capsys):
    assert main.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {name}" in said and command.help in said for name, command in main.COMMANDS.items())
    assert "example:" in said


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_has_help_with_an_example(name, capsys):
    assert main.main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"usage: voiceseq {name}" in said
    assert "example: voiceseq" in said


@pytest.mark.parametrize("name", [name for name, command in main.COMMANDS.items() if not command.raw])
def test_every_example_of_the_table_is_a_valid_command_line(name):
    import importlib
    import shlex

    words = shlex.split(main.COMMANDS[name].example)
    assert words[:2] == ["voiceseq", name]
    parser = main.command_parser(name, main.COMMANDS[name])
    importlib.import_module(main.COMMANDS[name].module).add_arguments(parser)
    parsed = parser.parse_args(words[2:])
    assert getattr(parsed, "model", main.COMMANDS[name].bundle) == main.COMMANDS[name].bundle


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "usage: voiceseq"),
        (["trian"], "no command 'trian'; did you mean 'train'?"),
        (["xyzzy"], "no command 'xyzzy' (voiceseq --help lists all)"),
        (["--bogus"], "unrecognized arguments: --bogus"),
        (["tasks", "--bogus"], "unrecognized arguments: --bogus"),
        (["bundle"], "arguments are required"),
        (["bundle", "shwo", "x"], "invalid choice: 'shwo'"),
    ],
)
def test_wrong_usage_is_2_on_stderr(words, message, capsys):
    assert main.main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (BundleError("bad bundle"), 1, "voiceseq: error: bad bundle\n"),
        (InputError("first\n  second\n\nthird"), 1, "voiceseq: error: first; second; third\n"),
        (ConfigError("bad key"), 2, "voiceseq: error: bad key\n"),
        (KeyError("k"), 1, "voiceseq: error: unexpected KeyError: 'k'; run again with -v for the details\n"),
        (SystemExit(3), 3, ""),
        (SystemExit("words"), 1, "words\n"),
        (KeyboardInterrupt(), 130, "voiceseq: stopped\n"),
    ],
)
def test_each_error_is_one_line_and_its_code(stub, capsys, error, code, line):
    stub(raising(error))
    assert main.main(["stub"]) == code
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize("words", [["-v", "stub"], ["stub", "-v"], ["stub", "--verbose"]])
@pytest.mark.parametrize("raw", [False, True])
def test_verbose_shows_the_traceback(stub, capsys, words, raw):
    stub(raising(BundleError("bad bundle")), raw=raw)
    assert main.main(words) == 1
    said = capsys.readouterr().err
    assert "Traceback (most recent call last)" in said
    assert said.endswith("voiceseq: error: bad bundle\n")


def test_a_commands_own_code_and_options_pass_through(stub):
    seen = {}

    def run(args: argparse.Namespace) -> int:
        seen.update(vars(args))
        return 1

    stub(run, add_arguments=lambda parser: parser.add_argument("--beam", type=int))
    assert main.main(["stub", "--beam", "3"]) == 1
    assert seen["beam"] == 3


def test_a_raw_command_gets_every_word_but_verbose(stub):
    seen = []
    stub(lambda args: seen.extend(args.overrides) or 0, raw=True)
    assert main.main(["stub", "experiment=x", "-v", "-m", "--help", "+a.b=[1,2]"]) == 0
    assert seen == ["experiment=x", "-m", "--help", "+a.b=[1,2]"]


def test_module_script_and_version_agree():
    script = os.path.join(os.path.dirname(sys.executable), "voiceseq")
    by_script = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    assert by_script == command("--version").stdout == f"voiceseq {voiceseq.__version__}\n"


# --- the world outside -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
)
def test_utf8_in_any_locale(bundle, locale):
    ran = command("bundle", "show", str(bundle), env={**os.environ, **locale})
    assert ran.returncode == 0, ran.stderr
    assert "CC-BY, © Zoë ☃" in ran.stdout


def test_a_name_that_is_not_utf8_is_escaped_in_valid_json(tmp_path):
    target = os.fsencode(tmp_path) + b"/m\xff"
    save_bundle(os.fsdecode(target), kind="test", config={})
    ran = subprocess.run(
        [*map(os.fsencode, VOICESEQ), b"bundle", b"show", b"--json", target], capture_output=True, check=True
    )
    assert json.loads(ran.stdout.decode("utf-8"))["path"].endswith("m\udcff")


def test_a_closed_pipe_is_141_and_quiet():
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [*VOICESEQ, "tasks"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False, env=BUFFERED
    )
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_behind_stdout_is_one_line():
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [*VOICESEQ, "tasks"], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=BUFFERED
        )
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert "No space left on device" in ran.stderr


INTERRUPTED = """
import sys, types, time
from voiceseq.cli import main
module = types.ModuleType("stub_command")
module.add_arguments = lambda parser: None
module.run = lambda args: print("ready", flush=True) or time.sleep(60) or 0
sys.modules["stub_command"] = module
main.COMMANDS["stub"] = main.Command("stub_command", "sleeps", "voiceseq stub")
sys.exit(main.main(["stub"]))
"""


def test_ctrl_c_ends_a_running_command_with_130():
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert (child.returncode, errors) == (130, "voiceseq: stopped\n")


# --- bundle, tasks, doctor -------------------------------------------------------------------------------------------


def test_bundle_show(bundle, capsys):
    assert main.main(["bundle", "show", str(bundle), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["kind"], facts["config"], facts["vocabularies"]) == (
        "language-model",
        {"width": 4},
        {"characters": 3},
    )
    assert facts["files"]["lm"] == 9
    assert main.main(["bundle", "show", str(bundle)]) == 0
    said = capsys.readouterr().out
    assert "language-model" in said
    assert re.search(r"^config\n  width +4$", said, re.MULTILINE)


def test_bundle_show_of_what_training_writes(tmp_path, capsys):
    """Vocabularies count their symbols; nested settings stand one a line, without Hydra's marks."""
    source = Vocabulary.from_text([chr(ord("a") + i) for i in range(20)], specials=("unknown",))
    target = Vocabulary.from_text("0123456789-", specials=("bos", "eos"))
    model = {"_target_": "voiceseq.models.seq2seq.Seq2SeqConfig", "cell": "gru", "size": 9600, "embedding": None}
    training = {
        "data": [{"name": "generated dates", "licence": "Apache-2.0"}, {"name": "more", "licence": "CC0"}],
        "settings": {
            "seed": 1,
            "overfit": False,
            "model": model,
            "learning_rate": 0.1,
            "betas": [0.9, 0.99],
            "callbacks": {},
        },
    }
    vocabularies = {"source": source.to_json(), "target": target.to_json(), "old": ["a", "b"]}
    save_bundle(tmp_path / "b", kind="transducer", config={}, vocabularies=vocabularies, training=training)
    assert main.main(["bundle", "show", str(tmp_path / "b"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["vocabularies"] == {"source": 21, "target": 13, "old": 2}
    assert facts["training"] == training
    assert main.main(["bundle", "show", str(tmp_path / "b")]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    start = lines.index("training")
    assert lines[start : start + 14] == [
        "training",
        "data",
        "- name generated dates",
        "licence Apache-2.0",
        "- name more",
        "licence CC0",
        "settings",
        "seed 1",
        "overfit False",
        "model",
        "cell gru",
        "size 9,600",
        "learning_rate 0.1",
        "betas 0.9 0.99",
    ]
    assert not any("_target_" in line for line in lines)
    assert lines[lines.index("vocabularies") + 1] == "source 21 symbols"


def test_bundle_help_names_paths_that_exist(capsys):
    assert main.main(["bundle", "verify", "--help"]) == 0
    assert "latest" not in capsys.readouterr().out


def test_bundle_verify_tells_good_from_damaged(bundle, capsys):
    assert main.main(["bundle", "verify", str(bundle)]) == 0
    assert "lm" in capsys.readouterr().out
    (bundle / "lm").write_bytes(b"y" * 9)
    (bundle / "notes").write_bytes(b"")
    assert main.main(["bundle", "verify", str(bundle)]) == 1
    said = capsys.readouterr()
    assert "lm does not match its sha256" in said.out
    assert "notes is not of the bundle" in said.err
    assert main.main(["bundle", "verify", str(bundle), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert (facts["ok"], list(facts["problems"]), facts["unlisted"]) == (False, ["lm"], ["notes"])
    assert main.main(["bundle", "show", str(bundle)]) == 1
    assert capsys.readouterr().err.startswith("voiceseq: error: ")


def test_bundle_export_makes_a_zip_that_opens(bundle, tmp_path, capsys):
    assert main.main(["bundle", "export", str(bundle), str(tmp_path / "out.zip")]) == 0
    written = capsys.readouterr().out.strip()
    assert main.main(["bundle", "verify", written]) == 0


def test_tasks_lists_every_command_with_example(capsys):
    assert main.main(["tasks", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["task"] for row in rows] == [*main.COMMANDS, *TASKS]
    assert {row["command"] for row in rows} == set(main.COMMANDS)
    assert all(row["example"].startswith("voiceseq ") for row in rows)
    assert main.main(["tasks"]) == 0
    said = capsys.readouterr().out
    assert all(row["example"] in said for row in rows)


def test_doctor_reports_this_machine(capsys):
    assert main.main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["healthy"]
    assert facts["python"]["voiceseq"] == voiceseq.__version__
    assert {"torch", "safetensors"} <= facts["packages"]["installed"].keys()
    assert "wav" in facts["codecs"]["soundfile_reads"]
    assert main.main(["doctor"]) == 0
    assert "torchaudio" in capsys.readouterr().out


def test_doctor_outlives_a_broken_machine(monkeypatch, capsys):
    monkeypatch.setitem(doctor.CHECKS, "torch", raising(OSError("libgomp.so.1 is missing")))
    monkeypatch.setitem(doctor.CHECKS, "audio", raising(RuntimeError("PortAudio fell over")))
    assert main.main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "torch does not work: libgomp.so.1 is missing" in said
    assert "audio does not work: PortAudio fell over" in said


@pytest.mark.parametrize(
    ("sound", "advice"),
    [
        ("raise OSError('PortAudio library not found')", "apt-get install libportaudio2"),
        ("raise ModuleNotFoundError('sounddevice')", "pip install 'voiceseq[mic]'"),
        ("query_devices = lambda: []", "no microphone found"),
        ("query_devices = lambda: [dict(name='Mic', max_input_channels=1, max_output_channels=0)]", None),
    ],
)
def test_doctor_says_what_the_microphone_needs(tmp_path, monkeypatch, sound, advice):
    (tmp_path / "sounddevice.py").write_text(sound)
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    facts, found = doctor.look_at_audio()
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    assert found == [] if advice is None else advice in found[0]
    assert advice or facts["microphones"] == ["Mic"]


def test_doctor_names_missing_packages(monkeypatch):
    wanted = ["torch>=2", "no-such-package>=1", 'no-such-extra>=1; extra == "serve"']
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: wanted)
    facts, advice = doctor.look_at_packages()
    assert facts["missing"] == ["no-such-package"]
    assert facts["optional_and_absent"] == {"serve": ["no-such-extra"]}
    assert advice == ["no-such-package missing: pip install no-such-package"]
