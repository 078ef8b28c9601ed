"""Read, validate and describe a YAML pipeline; ``semistream.spark`` runs it."""

from semistream.pipeline.check import check, claim_checkpoint
from semistream.pipeline.document import Document, read_document
from semistream.pipeline.following import Following
from semistream.pipeline.grants import Grants, grants, with_memory
from semistream.pipeline.load import load
from semistream.pipeline.model import Pipeline
from semistream.pipeline.plan import describe

__all__ = [
    "Document",
    "Following",
    "Grants",
    "Pipeline",
    "check",
    "claim_checkpoint",
    "describe",
    "grants",
    "load",
    "read_document",
    "with_memory",
]
