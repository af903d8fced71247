"""The one kind of error that a user can mend."""


class UserError(ValueError):
    """Says in one line what came, what was wanted and what to do; shown without a traceback."""
