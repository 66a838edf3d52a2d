"""The errors that a user can correct; the command line prints each as a single line."""


class InputError(ValueError):
    """What was given cannot be used; the message names the culprit and what to do."""


class FormatError(InputError):
    """A file is damaged, hostile or of a newer version; the message says which and where."""


class DivergedError(InputError):
    """Loss or weights are no longer finite; the model holds the last good state."""


LONGEST = 300


def one_line(error: BaseException) -> str:
    """An error of somebody else's code by its kind and its message, whole, on a single line.

    >>> one_line(KeyError("weights"))
    "KeyError: 'weights'"
    """
    kind, message = type(error).__name__, " ".join(str(error).split())
    if len(message) > LONGEST:
        message = f"{message[:LONGEST]} …"
    return f"{kind}: {message}" if message else kind
