"""The one exception for what a user can mend: the command line prints it as a single line."""


class InputError(ValueError):
    """What was given cannot be used; the message names the culprit and what to do."""
