"""Runs a command at a terminal, for `tests/run.rs`: `terminal.py [["wait for", "type"], ...] COMMAND...`; prints what stood there."""

import json
import os
import pty
import select
import signal
import sys
import time

steps = json.loads(sys.argv[1])
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
shown, read, until = b"", 0, time.monotonic() + 120
while time.monotonic() < until:
    ready, _, _ = select.select([terminal], [], [], 0.1)
    if ready:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    if steps:
        at = shown.find(steps[0][0].encode(), read)
        if at >= 0:
            read = at + len(steps[0][0].encode())
            time.sleep(0.2)
            os.write(terminal, steps.pop(0)[1].encode())
else:
    os.kill(child, signal.SIGKILL)
sys.stdout.buffer.write(shown)
sys.stdout.flush()
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
