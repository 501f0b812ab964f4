"""Starts a gateway for a test, and stops it afterwards."""

import contextlib
import os
import re
import subprocess
import time

KEY = "the-key-of-this-agent"


@contextlib.contextmanager
def running(folder, config):
    """The address of a gateway with this configuration, whose clients have `key-from = "AGENT_KEY"`."""
    file, log = folder / "gateway.toml", folder / "log"
    file.write_text(config)
    command = [os.environ["FLOWGATE_BIN"], "serve", "--listen", "127.0.0.1:0", "--config", str(file)]
    process = subprocess.Popen(command, env={**os.environ, "AGENT_KEY": KEY}, stderr=log.open("w"))
    try:
        for _ in range(600):
            if found := re.search(r"listening on (http://\S+:\d+)", log.read_text()):
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        else:
            raise AssertionError(f"the gateway did not start: {log.read_text()}")
        yield found.group(1)
    finally:
        process.terminate()
        assert process.wait(20) == 0
