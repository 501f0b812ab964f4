"""A server that returns the original's outcomes in Flowgate's format, to test the comparison itself.

Without repairs every pair must agree. With repairs, every difference must be explained by some of them. With --lie, a
part of the findings is dropped, and the comparison must say so.
"""

import argparse
import http.server
import json
import os
import threading

import generate
from original import Pool
from render import TEXT_FIXES


def answer(pool, texts, options, body):
    """Returns the status and the body for one request."""
    policy = body["policy"]
    if options.repairs:
        policy = texts.get(policy, policy)
    request = {"policy": policy, "messages": body["messages"], "parameters": body.get("parameters") or {}}
    found = pool.ask({**request, "repairs": options.repairs})
    if found["refused"]:
        return 400, {"detail": found["refused"]["text"]}
    errors = [{name: error[name] for name in ("key", "args", "kwargs", "ranges")} for error in found["errors"]]
    if options.lie and len(json.dumps(errors)) % options.lie == 0:
        errors = errors[1:]
    failures = [{"message": "a rule failed"}] * found.get("failures", 0)
    return 200, {"errors": errors, "failures": failures}


def handler(pool, texts, options):
    """Returns the class that handles requests."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, reply = answer(pool, texts, options, body)
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    return Handler


def repaired_texts(repairs):
    """Returns the intended policies by the plain policies."""
    fixes = [fix for fix in TEXT_FIXES if fix in repairs]
    texts = {}
    for pair in generate.pairs(1, 14):
        matter = "+".join(fix for fix in fixes if fix in pair["variants"])
        texts[pair["policy"]] = pair["variants"].get(matter, pair["policy"])
    return texts


def main():
    """Serves until the process is stopped."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repairs", type=lambda text: text.split(","), default=[], help="defects to repair, as D1,D2")
    parser.add_argument("--lie", type=int, default=0, help="drop a finding of about one in so many answers")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that run the original")
    # It is started like the real server, whose other arguments it ignores.
    options, _ = parser.parse_known_args()
    texts = repaired_texts(options.repairs)
    with Pool(options.workers, 20) as pool:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(pool, texts, options))
        print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        thread.join()


if __name__ == "__main__":
    main()
