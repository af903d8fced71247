"""The error type for problems that a user can fix."""


class UserError(ValueError):
    """Says in one line what came, what was wanted and what to do; shown without a traceback."""

    in_all_processes = False
    """Whether all processes of a group raise it, so that one of them may say it for all."""
