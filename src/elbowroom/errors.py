"""The errors a user may meet. Each message says what was wrong, where, and what to do about it."""


class ElbowroomError(Exception):
    """Base class of every error raised on purpose by this package."""


class InputError(ElbowroomError, ValueError):
    """Something the caller passed in cannot be used as it is: a shape, a value, an option."""


class UnsupportedError(ElbowroomError):
    """A model holds operations that have no sound bound here; the message lists all of them."""
