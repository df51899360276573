"""``voiceseq train experiment=NAME [key=value ...]``: a Hydra-configured training run.

example: voiceseq train experiment=dates
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from voiceseq.cli.options import print_json

if TYPE_CHECKING:
    from omegaconf import DictConfig

HELP = """usage: voiceseq train experiment=NAME [key=value ...]

Train a model; the run folder runs/NAME/TIME gets the resolved config, logs, checkpoints and at the end bundle/.

  experiment=NAME     what to train: {experiments}
  debug=fast|overfit  a few steps through the whole path | one batch learned by heart
  resume=RUN_FOLDER   go on with a run that was stopped or killed
  -m key=a,b          one run for each value (Hydra's sweep)
  --cfg job           show the configuration and stop
  --config-dir DIR    your own configs beside ours: DIR/experiment/NAME.yaml
  --json              print the result as JSON

example: voiceseq train experiment=dates trainer.max_epochs=3 model.size=96
"""

# Hydra's own flags that take a word
VALUED = ("--cfg", "-c", "--info", "-i", "--package", "-p", "--config-name", "-cn", "--config-path", "-cp")


def run(args: argparse.Namespace) -> int:
    # imported here: these bring torch and Lightning, which `voiceseq --help` must not wait for
    from voiceseq.training.config import compose_config, experiments

    overrides, flags, own = sort_words(args.overrides)
    if not args.overrides or "-h" in flags or "--help" in flags:
        print(HELP.format(experiments=", ".join(experiments())))
        return 0
    machine = "--json" in flags
    flags = [flag for flag in flags if flag != "--json"]
    resume = [word.partition("=")[2] for word in overrides if word.startswith("resume=")]
    if resume:
        return _resume(Path(resume[-1]), [word for word in overrides if not word.startswith("resume=")], machine)
    config = compose_config(overrides, own)
    if flags:
        return _hydra_main([*flags, *overrides, *([] if own is None else ["--config-dir", str(own)])])
    return _train(config, machine=machine)


def sort_words(words: list[str]) -> tuple[list[str], list[str], Path | None]:
    """Overrides, Hydra's flags with their values, and the value of ``--config-dir``."""
    from voiceseq.errors import ConfigError

    overrides: list[str] = []
    flags: list[str] = []
    own = None
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in ("--config-dir", "-cd"):
            value = value if equals else next(rest, "")
            if not value:
                raise ConfigError("--config-dir came without a folder; give one with experiment/NAME.yaml in it")
            own = Path(value)
        elif not word.startswith("-"):
            overrides.append(word)
        else:
            flags += [word, next(rest, "")] if word in VALUED else [word]
    return overrides, flags, own


def _train(config: "DictConfig", folder: Path | None = None, machine: bool = False) -> int:
    from voiceseq.training.run import first_process, train

    run = train(config, folder)
    if not first_process():
        return 0
    if machine:
        print_json({"run": str(run.folder), "bundle": str(run.bundle), "metrics": run.metrics})
        return 0
    metrics = "  ".join(f"{name} {value:.4f}" for name, value in sorted(run.metrics.items()))
    print(f"bundle  {run.bundle}\nmetrics {metrics}")
    return 0


def _resume(folder: Path, overrides: list[str], machine: bool) -> int:
    from voiceseq.training.config import check_config
    from voiceseq.training.run import resume_config

    config = resume_config(folder, overrides)
    check_config(config)
    return _train(config, folder, machine)


def _hydra_main(words: list[str]) -> int:
    """-m, --cfg, --info and so on are Hydra's own business; each job of a sweep comes back to ``_train``."""
    import hydra

    from voiceseq.training.config import CONFIG_MODULE

    main = hydra.main(f"pkg://{CONFIG_MODULE}", "train", version_base="1.3")(_train)
    sys.argv = ["voiceseq train", *words]
    main()
    return 0
