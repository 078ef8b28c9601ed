"""The parts of ``lab.bench_shedding``."""
