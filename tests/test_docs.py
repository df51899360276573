"""What the pages say of the tree is true."""

import re
import tomllib
from pathlib import Path

from places import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def test_the_map_names_every_room_and_no_other() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    tree = re.search(r"## Rooms\n\n```\n(.*?)```", page, re.DOTALL)
    assert tree
    named = set(re.findall(r"^  (\w+)/", tree[1], re.MULTILINE))
    assert named == {path.parent.name for path in (ROOT / "voiceseq").glob("*/__init__.py")}
    top = set(re.findall(r"^(\w+)/", tree[1], re.MULTILINE))
    assert all((ROOT / folder).is_dir() for folder in top)


def test_the_core_table_names_every_file() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`(\w+\.py)`", page.partition("## The core")[2].partition("Three contracts")[0]))
    assert named == {path.name for path in (ROOT / "voiceseq" / "core").glob("*.py")} - {"__init__.py"}


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_library_example_of_the_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (library,) = [block for block in blocks if "voiceseq.core" in block]
    exec(compile(library, "README.md", "exec"), {})


def test_every_experiment_named_in_the_pages_exists() -> None:
    ours = {path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")} | {"NAME", "reverse"}
    for page in PAGES:
        assert set(re.findall(r"experiment=([\w-]+)", page.read_text())) <= ours, page.name


def test_nothing_names_a_folder_of_somebodys_machine() -> None:
    home = re.compile(r"/(home|root|Users)/\w")
    for page in [*PAGES, *ROOT.glob("conf/**/*.yaml"), *ROOT.glob("data/**/*.json"), *ROOT.glob("data/**/*.md")]:
        assert not home.search(Path(page).read_text()), page


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    page = (ROOT / "docs" / "dependencies.md").read_text()
    names = {re.split(r"[<>=!~\[; ]", one)[0] for one in wanted}
    assert {name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", page)} == set()
