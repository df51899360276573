"""``voiceseq train experiment=NAME [key=value ...]``: a Hydra-configured training run.

example: voiceseq train experiment=dates
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omegaconf import DictConfig

HELP = """usage: voiceseq train experiment=NAME [key=value ...]

Train a model; the run folder runs/NAME/TIME gets the resolved config, logs, checkpoints and at the end bundle/.

  experiment=NAME     what to train: {experiments}
  debug=fast|overfit  a few steps through the whole path | one batch learned by heart
  resume=RUN_FOLDER   go on with a run that was stopped or killed
  -m key=a,b          one run for each value (Hydra's sweep)
  --config-dir DIR    your own configs beside ours: DIR/experiment/NAME.yaml
  --cfg job           show the configuration and stop

example: voiceseq train experiment=dates trainer.max_epochs=3 model.size=96
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> int:
    # imported here: these bring torch and Lightning, which `voiceseq --help` must not wait for
    from voiceseq.training.config import compose_config, experiments

    words, own = _config_dir(args.overrides)
    if not words or words[0] in ("-h", "--help"):
        print(HELP.format(experiments=", ".join(experiments())))
        return 0
    resume = [word.partition("=")[2] for word in words if word.startswith("resume=")]
    if resume:
        return _resume(Path(resume[-1]), [word for word in words if not word.startswith("resume=")])
    config = compose_config([word for word in words if not word.startswith("-")], own)
    if any(word.startswith("-") for word in words):
        return _hydra_main(words if own is None else [*words, "--config-dir", str(own)])
    return _train(config)


def _config_dir(words: list[str]) -> tuple[list[str], Path | None]:
    """Take ``--config-dir DIR`` out of the words."""
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--config-dir=") else [word])]
    if "--config-dir" not in words:
        return words, None
    place = words.index("--config-dir")
    return words[:place] + words[place + 2 :], Path(*words[place + 1 : place + 2])


def _train(config: "DictConfig", folder: Path | None = None) -> int:
    from voiceseq.training.run import new_run_folder, train

    run = train(config, folder or new_run_folder(config))
    metrics = "  ".join(f"{name} {value:.4f}" for name, value in sorted(run.metrics.items()) if "/" in name)
    print(f"run     {run.folder}\nbundle  {run.bundle}\nmetrics {metrics}", file=sys.stderr)
    return 0


def _resume(folder: Path, overrides: list[str]) -> int:
    from voiceseq.training.config import check_config
    from voiceseq.training.run import resume_config

    config = resume_config(folder, overrides)
    check_config(config)
    return _train(config, folder)


def _hydra_main(words: list[str]) -> int:
    """Flags (-m, --cfg, --info ...) are Hydra's own business; each job of a sweep comes back to ``_train``."""
    import hydra

    from voiceseq.training.config import CONFIG_MODULE

    main = hydra.main(f"pkg://{CONFIG_MODULE}", "train", version_base="1.3")(_train)
    sys.argv = ["voiceseq train", *words]
    main()
    return 0
