"""What a user can mend: the command line prints it as a single line."""


class InputError(ValueError):
    """What was given cannot be used; the message names the culprit and what to do."""


class FormatError(InputError):
    """A file is damaged, hostile or of a newer version; the message says which and where."""
