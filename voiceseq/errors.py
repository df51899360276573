"""What voiceseq raises: each message says what came, what was wanted and what to do."""


class VoiceseqError(Exception):
    """The parent of every error that is the input's fault and not a bug of the package."""


class InputError(VoiceseqError, ValueError):
    """A tensor, text or argument that cannot be worked on."""


class ConfigError(VoiceseqError, ValueError):
    """A configuration with unknown, missing or contradictory settings."""


class BundleError(VoiceseqError):
    """A bundle that is damaged, foreign, or made by a newer voiceseq."""


class AudioError(VoiceseqError):
    """Audio that cannot be read or written."""


class DeviceError(VoiceseqError):
    """A microphone or other device that is missing, busy or gone."""


class MissingDependencyError(VoiceseqError, ImportError):
    """An optional package that this call needs and that is not installed."""
