"""Join keys as 64-bit codes; see :mod:`semistream.keys.codec`."""

from semistream.keys.codec import KeyCodec
from semistream.keys.values import Codes, Mask, int64_of, int64_view
from semistream.keys.widen import canonical_type

__all__ = ["Codes", "KeyCodec", "Mask", "canonical_type", "int64_of", "int64_view"]
