"""Measurements that run from Python: `python -m flowgate.bench.agentdojo --help`."""
