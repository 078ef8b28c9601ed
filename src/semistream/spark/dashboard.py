"""``ss.dashboard``: the live page of a session's enriched queries."""

from __future__ import annotations

from types import TracebackType

from pyspark.sql import SparkSession

from semistream.live.page import LivePage
from semistream.spark.listener import Metrics


class Dashboard:
    """A page on 127.0.0.1 that shows a session's queries; see :func:`dashboard`.

    In a notebook it is displayed as a frame.
    """

    def __init__(self, metrics: Metrics, page: LivePage, owns_metrics: bool) -> None:
        self.metrics = metrics
        self.url = page.url
        self._page = page
        self._owns_metrics = owns_metrics

    def close(self) -> None:
        self._page.close()
        if self._owns_metrics:
            self.metrics.close()

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<live page: {self.url}>"

    def _repr_html_(self) -> str:
        return (
            f'<p>live page: <a href="{self.url}" target="_blank">{self.url}</a></p>'
            f'<iframe src="{self.url}" style="width:100%;height:720px;border:0"></iframe>'
        )


def dashboard(
    spark: SparkSession, port: int | None = None, metrics: Metrics | None = None
) -> Dashboard:
    """Serve a live page with the figures of all enriched queries of a session.

    Parameters
    ----------
    spark
        A classic session; Spark Connect clients have no metrics.
    port
        Default: 4141, or a free one if it is in use. The page is served only on 127.0.0.1 of the
        driver: from another machine, ``ssh -L 4141:127.0.0.1:4141 driver``.
    metrics
        Show these, which are collected already. Default: new ones, from now on.

    >>> page = dashboard(spark)  # doctest: +SKIP
    >>> page  # doctest: +SKIP
    <live page: http://127.0.0.1:4141/>
    >>> page.close()  # doctest: +SKIP
    """
    collected = Metrics(spark) if metrics is None else metrics
    try:
        page = LivePage(collected.feed, port)
    except BaseException:
        if metrics is None:
            collected.close()
        raise
    return Dashboard(collected, page, owns_metrics=metrics is None)
