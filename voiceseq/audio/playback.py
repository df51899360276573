"""Sound to the loudspeaker, where there is one: sounddevice (PortAudio) and numpy, no torch."""

import numpy as np
from numpy.typing import NDArray

from voiceseq.audio.resample import resample


def play(samples: NDArray[np.float32], sample_rate: int) -> bool:
    """Play ``samples (frames,)`` to their end on the default output; False where nothing can be played."""
    try:
        import sounddevice
    except (ImportError, OSError):  # the package, or the library under it
        return False
    try:
        own = round(sounddevice.query_devices(kind="output")["default_samplerate"])
        sounddevice.play(resample(samples, sample_rate, own), own, blocking=True)
    except (sounddevice.PortAudioError, ValueError):  # no loudspeaker, or one that does not open
        return False
    except BaseException:  # Ctrl-C
        sounddevice.stop()
        raise
    return True
