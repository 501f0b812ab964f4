"""An MCP server that never answers the request that its first argument names, ignores the end of its input, and writes
its process id to the file of the second argument as soon as it hangs."""

import json
import os
import sys
import time

hangs_at, pid_file = sys.argv[1:]
for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == hangs_at:
        with open(pid_file + ".new", "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
        os.rename(pid_file + ".new", pid_file)
        while True:
            time.sleep(1)
    if "id" in request:
        result = {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "hanging", "version": "1"},
        }
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
