"""The parts of the benchmark of tables that change while joins run."""
