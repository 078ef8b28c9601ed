"""Spark sessions for the tests: one at a time per process, reused as long as possible."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from spark_compat import add_missing_methods

LOCAL = "local[2,4]"  # two tasks at once, four attempts each
CLUSTER = "local-cluster[2,1,1024]"
TWO_HOSTS = "two hosts"

# A test is over before optimised machine code or a concurrent collector pays off.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

INJECT = Path(__file__).parent / "sinks" / "inject"

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.timeType.enabled": "true",
    "spark.task.maxFailures": "4",
}
# An unstable cluster: slow tasks are run twice, executors are added and removed.
RESTLESS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "3",
    "spark.speculation.minTaskRuntime": "5s",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "2",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "20s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "20s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.decommission.enabled": "true",
    "spark.master.rest.enabled": "false",
}


def start_jvms_quickly() -> None:
    """Also those of executors and of jobs in processes of their own; they print this option."""
    os.environ.setdefault("JAVA_TOOL_OPTIONS", QUICK_JVM)


class Sessions:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.faults = folder / "faults"  # where sinks/inject looks for requested faults
        self.master: str | None = None
        self.session: Any = None
        self._hosts: list[Any] = []

    def get(self, master: str) -> Any:
        if self.master != master:
            self.stop()
            self.session = self._start(master)
            self.master = master
        return self.session

    def stop(self) -> None:
        if self.session is not None:
            self.session.stop()
        for host in self._hosts:
            host.shutdown()
        self._hosts = []
        self.master = self.session = None

    def _start(self, master: str) -> Any:
        from pyspark.sql import SparkSession

        add_missing_methods()
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        settings = {
            **SETTINGS,
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.local.dir": str(self.folder / "local"),
        }
        if master == TWO_HOSTS:
            self.faults.mkdir(parents=True, exist_ok=True)
            settings |= RESTLESS
            settings["spark.executorEnv.PYTHONPATH"] = str(INJECT)
            settings["spark.executorEnv.SEMISTREAM_MARKERS"] = str(self.faults)
            master = self._start_hosts(settings)
        builder = SparkSession.builder.master(master).appName("semistream-tests")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        return session

    def _start_hosts(self, settings: dict[str, str]) -> str:
        """A standalone cluster inside the driver's JVM, as ``local-cluster`` is, but with two
        addresses: Spark runs a speculative copy of a task only on another host."""
        from pyspark import SparkConf, SparkContext

        conf = SparkConf()
        for name, value in settings.items():
            conf.set(name, value)
        SparkContext._ensure_initialized(conf=conf)
        jvm, gateway = SparkContext._jvm, SparkContext._gateway
        assert jvm is not None
        assert gateway is not None
        shared = jvm.org.apache.spark.SparkConf()
        for name, value in settings.items():
            shared.set(name, value)
        deploy = jvm.org.apache.spark.deploy
        master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, shared)._1()
        address = master.address()
        urls = gateway.new_array(jvm.java.lang.String, 1)
        urls[0] = f"spark://{address.host()}:{address.port()}"
        start = deploy.worker.Worker.startRpcEnvAndEndpoint
        none, work = jvm.scala.Option.empty(), str(self.folder / "work")
        workers = [
            start(f"127.0.0.{n}", 0, 0, 1, 512, urls, work, jvm.scala.Some(n), shared, none)
            for n in (2, 3)
        ]
        self._hosts = [*workers, master]
        return str(urls[0])
