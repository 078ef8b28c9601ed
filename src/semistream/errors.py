"""Every error that semistream raises on purpose.

Each message says what was wrong, with what value, and what to do. The errors carry
nothing but their message, so they pickle across Spark workers as they are.
"""


class SemistreamError(Exception):
    """Base of all errors of this library."""


class ConfigError(SemistreamError, ValueError):
    """An option has a value that cannot work."""


class SchemaError(SemistreamError, ValueError):
    """A column is missing, ambiguous, or of a type that does not fit."""


class MasterTableError(SemistreamError):
    """The master table is missing, damaged, foreign, or was changed by someone else."""


class BudgetError(SemistreamError):
    """The memory budget cannot hold what the join needs."""


class InternalError(SemistreamError):
    """An invariant of semistream itself is broken: a bug, please report it."""
