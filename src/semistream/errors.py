"""Every error that semistream raises on purpose.

Each message states what was wrong, with what value, and what to do. The errors have no attributes
besides their message, so they pickle across Spark workers.
"""


class SemistreamError(Exception):
    """Base of all errors of this library."""


class ConfigError(SemistreamError, ValueError):
    """An option has an invalid value."""


class SchemaError(SemistreamError, ValueError):
    """A column is missing, ambiguous, or has an unsupported type."""


class MasterTableError(SemistreamError):
    """The master table is missing, damaged, foreign, or was changed by another writer."""


class BudgetError(SemistreamError):
    """The memory budget is too small for the join."""


class InternalError(SemistreamError):
    """An invariant of semistream itself is broken: a bug, please report it."""
