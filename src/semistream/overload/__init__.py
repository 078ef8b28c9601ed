"""Overload and late rows: tuples that cannot be served now are kept durably, and come back."""
