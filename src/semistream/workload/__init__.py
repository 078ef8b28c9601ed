"""Realistic streams and relations: skewed, bursty, local, with gaps and nulls.

>>> from semistream import workload
>>> keys = workload.zipf(1_000, domain=1_000_000, exponent=1.0, seed=7, scattered=True)
>>> catalogue = workload.products(rows=10_000)
>>> stream = workload.sales(n=100_000, products=10_000, scattered=True)
"""

from semistream.workload import arrivals, locality
from semistream.workload.relations import price_of, product_rows, products
from semistream.workload.stream import sales
from semistream.workload.zipfian import scatter, zipf, zipf_at

__all__ = [
    "arrivals",
    "locality",
    "price_of",
    "product_rows",
    "products",
    "sales",
    "scatter",
    "zipf",
    "zipf_at",
]
