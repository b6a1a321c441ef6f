"""The errors a user may meet. Each message says what was wrong, where, and what to do about it."""

import sys
import warnings


class ElbowroomError(Exception):
    """Base class of every error raised on purpose by this package."""


class InputError(ElbowroomError, ValueError):
    """Something the caller passed in cannot be used as it is: a shape, a value, an option."""


class ShapeError(InputError):
    """Inputs have a shape that the model does not take."""


class NotEnoughMemoryError(InputError, MemoryError):
    """What was asked for takes more memory than there is, at least all at once."""


class UnsupportedError(ElbowroomError):
    """A model holds operations that have no sound bound here; the message lists all of them."""


class DataWarning(UserWarning):
    """Data were not quite what the network takes, or look as if they were something else; what was done about it, or
    what to look at."""


def warn(message: str) -> None:
    """Gives a `DataWarning` to whoever called this package from outside."""
    level, frame = 2, sys._getframe(1)
    inside = ("elbowroom", "torch")  # whose decorators stand between
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in inside:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, DataWarning, stacklevel=level)
