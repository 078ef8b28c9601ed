"""The exceptions of semistream.

Each message states what was wrong, with what value, and what to do. The message is the only
attribute, so that errors can be pickled between Spark workers.
"""


class SemistreamError(Exception):
    """Base class of all errors of this library."""


class ConfigError(SemistreamError, ValueError):
    """An option has an invalid value."""


class SchemaError(SemistreamError, ValueError):
    """A column is missing, ambiguous, or has an unsupported type."""


class MasterTableError(SemistreamError):
    """The master table is missing, damaged, of another format, or changed by another writer."""


class BudgetError(SemistreamError):
    """The memory budget is too small for the join."""


class InternalError(SemistreamError):
    """An invariant of semistream is violated: a bug, please report it."""
