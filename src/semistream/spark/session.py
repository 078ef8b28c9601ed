"""Starts the Spark session of a pipeline."""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from semistream.errors import SemistreamError
from semistream.pipeline import Pipeline
from semistream.spark.versions import KAFKA
from semistream.warmup.background import warm_up_in_background

LOG_LEVEL = "spark.log.level"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def open_session(pipeline: Pipeline) -> SparkSession:
    """A session with the pipeline's settings; the environment's Spark master takes precedence.

    Spark logs nothing unless ``spark.log.level`` is set: an error that ends the query is raised.
    """
    warm_up_in_background()  # while the JVM starts
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = _settings(pipeline)
    builder: Any = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        if not (is_remote() or "spark.remote" in settings):
            _start_context(settings)
        session: SparkSession = builder.getOrCreate()
    except Exception as error:
        raise SemistreamError(_no_session(error, settings.get("spark.jars.packages"))) from error
    level = settings.get(LOG_LEVEL, "OFF")
    session.sparkContext.setLogLevel(level)
    if level == "OFF":  # pyspark logs what it raises as one line of JSON, with Java's traceback
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return session


def _settings(pipeline: Pipeline) -> dict[str, str]:
    settings: dict[str, Any] = {
        "spark.app.name": f"semistream {pipeline.name}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    packages = list(pipeline.packages)
    given = " ".join([*packages, str(pipeline.spark.get("spark.jars", ""))])
    if pipeline.source.format == "kafka" and "sql-kafka" not in given:
        packages.append(KAFKA)
    if packages:
        settings["spark.jars.packages"] = ",".join(packages)
    settings.update(pipeline.spark)
    if "spark.master" not in settings and "SPARK_REMOTE" not in os.environ:
        settings["spark.master"] = f"local[{os.cpu_count() or 1}]"
    if str(settings.get("spark.master", "")).startswith("local"):
        settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
        settings.setdefault("spark.driver.host", "127.0.0.1")
    if LOG_LEVEL not in settings:
        quiet = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
        settings[_JAVA_OPTIONS] = f"{quiet} {settings.get(_JAVA_OPTIONS, '')}".strip()
    return {name: _text(value) for name, value in settings.items()}


def _start_context(settings: dict[str, str]) -> None:
    """Start the JVM and Spark in a thread: in the main thread, pyspark would handle Ctrl-C."""
    failed: list[Exception] = []

    def start() -> None:
        try:
            SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=start, name="start-spark", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def _no_session(error: Exception, packages: Any) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    hint = (
        f"; perhaps Maven cannot be reached, or does not have {packages}: give a release that it "
        "has, as in packages: [org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0], or local jars "
        "with spark.jars under spark (docs/tutorial.md)"
        if packages
        else "; check that Java 17 is installed, and the settings under spark"
    )
    return f"Spark cannot be started: {lines[0]}{hint}"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
