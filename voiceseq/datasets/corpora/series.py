"""Series of numbers: a file with a value a line, or those that the package statsmodels carries."""

import numpy as np

from voiceseq.errors import InputError, MissingDependencyError
from voiceseq.text.files import read_text

CARRIED = ("sunspots", "co2")


def read_series(name: str) -> np.ndarray:
    """``(values,)``: yearly ``sunspots`` (1700-2008), monthly means of ``co2`` (1958-2001), or a file's numbers.

    Raises InputError for what is no number, MissingDependencyError where the package is not installed.
    """
    if name in CARRIED:
        try:
            from statsmodels import datasets
        except ImportError as error:
            raise MissingDependencyError(f"{name} is in the package statsmodels: pip install statsmodels") from error
        if name == "sunspots":
            return datasets.sunspots.load_pandas().data["SUNACTIVITY"].to_numpy(float)
        weekly = datasets.co2.load_pandas().data["co2"].interpolate()
        return weekly.resample("MS").mean().to_numpy(float)
    values = []
    for number, line in enumerate(read_text(name).split(), 1):
        try:
            values.append(float(line))
        except ValueError as error:
            raise InputError(f"{name}, value {number}: {line[:30]!r} is no number") from error
    return check_series(np.array(values))


def check_series(values: np.ndarray, least: int = 3) -> np.ndarray:
    """The values; InputError for fewer than ``least`` and for NaN."""
    if len(values) < least or not np.isfinite(values).all():
        raise InputError(f"{len(values)} values came; at least {least} finite ones were wanted")
    return values
