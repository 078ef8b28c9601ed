"""A real Kafka broker (KRaft, one node) on a free loopback port, from Maven's artifacts."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

JARS = Path(os.environ.get("SEMISTREAM_KAFKA_JARS", ".data/kafka"))
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/logs
num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=120000
"""
# The last one: on a busy machine a heartbeat is late, and the only broker would be fenced.


def jars() -> Path:
    """The broker's jars, fetched once by Maven; skips, with the reason, if that is impossible."""
    return _fetched("pom.xml", JARS / "broker", "kafka_2.13-*.jar")


def connector() -> dict[str, str]:
    """Settings that give a session Spark's Kafka connector, by its coordinates.

    A repository may be behind: then the newest connector that it has is fetched instead.
    """
    import pyspark

    version = pyspark.__version__
    parts = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13")
    if all(_maven_has(f"org.apache.spark:{part}:{version}:pom") for part in parts):
        return {"spark.jars.packages": f"org.apache.spark:{parts[0]}:{version}"}
    folder = _fetched("connector.xml", JARS / "connector", f"{parts[0]}-*.jar")
    wanted = (*parts, "kafka-clients", "commons-pool2")
    return {"spark.jars": ",".join(str(j) for w in wanted for j in folder.glob(f"{w}-*.jar"))}


def maven_answers() -> bool:
    return _maven_has("org.apache.kafka:kafka_2.13:4.1.0:pom")


def _maven_has(artifact: str) -> bool:
    """Whether Maven, as it is set up on this machine, can get this artifact."""
    if shutil.which("mvn") is None:
        return False
    get = ["dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false"]
    done = subprocess.run(["mvn", "-q", "-B", *get], capture_output=True, timeout=300, check=False)
    return done.returncode == 0


def _fetched(pom: str, folder: Path, proof: str) -> Path:
    folder = folder.absolute()
    if any(folder.glob(proof)):
        return folder
    for tool in ("mvn", "java"):
        if shutil.which(tool) is None:
            # In CI a test that could run and does not is a failure, not a skip.
            give_up = pytest.fail if os.environ.get("CI_REQUIRES_KAFKA") else pytest.skip
            give_up(f"no {tool} on this machine: Kafka cannot be fetched")
    if not maven_answers():
        pytest.skip("Maven reaches no repository: Kafka cannot be fetched")
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    command = ["mvn", "-q", "-B", "-f", str(Path(__file__).with_name(pom))]
    done = subprocess.run(
        [*command, "dependency:copy-dependencies", *options],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"Maven answers, but mvn failed:\n{done.stdout}{done.stderr}"
    return folder


@contextlib.contextmanager
def kafka_broker() -> Iterator[str]:
    """``host:port`` of a broker; it and its data are removed afterwards."""
    path = f"{jars().absolute()}/*"
    folder = Path(tempfile.mkdtemp(prefix="kafka-"))
    port, controller = _free_ports(2)
    settings = folder / "server.properties"
    settings.write_text(SETTINGS.format(port=port, controller=controller, folder=folder))
    java = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-cp", path]
    tool = [*java, "kafka.tools.StorageTool", "format", "--standalone"]
    try:
        subprocess.run(
            [*tool, "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(settings)],
            check=True,
            capture_output=True,
            timeout=120,
        )
        with open(folder / "broker.log", "w") as log:
            broker = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
        try:
            _wait_for(port, broker, folder / "broker.log")
            yield f"127.0.0.1:{port}"
        finally:
            broker.terminate()
            try:
                broker.wait(30)
            except subprocess.TimeoutExpired:
                broker.kill()
                broker.wait(10)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _wait_for(port: int, broker: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if broker.poll() is not None:
            raise AssertionError(f"the broker died:\n{log.read_text()[-3000:]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.3)
    raise AssertionError(f"the broker does not listen:\n{log.read_text()[-3000:]}")
