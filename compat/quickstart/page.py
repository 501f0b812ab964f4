"""Reads transcripts out of Markdown, runs their commands as they are printed, and compares the output."""

import os
import re
import signal
import socket
import subprocess
import time

PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+|(?<=model\.py )\d+")
# For a command, and for a server to listen. Nothing is measured: only what hangs takes as long.
SECONDS = 300


class PortTaken(Exception):
    """Another program has taken a port that was free."""


def blocks(page, heading, language):
    """Returns the code blocks of a language in the section of a heading."""
    sections = re.split(r"^#+ +(.*)$", page, flags=re.MULTILINE)
    found = [text for title, text in zip(sections[1::2], sections[2::2]) if title == heading]
    assert len(found) == 1, f"the page has {len(found)} sections {heading!r}"
    return re.findall(rf"^```{language}\n(.*?)^```$", found[0], re.MULTILINE | re.DOTALL)


def steps(transcript):
    """Returns the commands of a transcript, each with the lines that are printed after it."""
    found = []
    for line in transcript.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def pattern(lines):
    """Returns an expression for printed lines: `...` is anything, and as a line any number of lines."""
    parts = [r"(?:.*\n)*" if line == "..." else r".*".join(map(re.escape, line.split("..."))) + "\n" for line in lines]
    return re.compile("".join(parts))


def with_free_ports(transcript):
    """Returns the transcript with ports that are free on this machine."""
    ports, sockets = {}, []
    for port in sorted(set(PORT.findall(transcript))):
        sockets.append(socket.create_server(("127.0.0.1", 0)))
        ports[port] = str(sockets[-1].getsockname()[1])
    for one in sockets:
        one.close()
    return PORT.sub(lambda match: ports[match.group()], transcript)


class Shell:
    """Runs commands in a folder; what runs in the background ends with it."""

    def __init__(self, folder, environment):
        self.folder, self.environment, self.background = folder, environment, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, log in self.background:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            log.close()

    def start(self, command, **more):
        return subprocess.Popen(
            ["bash", "-c", command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, start_new_session=True, **more
        )

    def run(self, command):
        """Runs a command to its end, and returns what it printed."""
        process = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            printed, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"`{command}` does not end") from None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        assert process.returncode == 0, f"`{command}` ends with {process.returncode}:\n{printed}{errors}\n{self.logs()}"
        return printed

    def serve(self, command):
        """Starts a command in the background, and waits until it listens on the last port that it names."""
        log = open(self.folder / f"{len(self.background)}.log", "w+")
        process = self.start(command, stdout=log, stderr=log)
        self.background.append((process, log))
        port = int(PORT.findall(command)[-1])
        until = time.monotonic() + SECONDS
        while process.poll() is None:
            if listens(port):
                return
            assert time.monotonic() < until, f"`{command}` does not listen:\n{self.logs()}"
            time.sleep(0.05)
        said = self.logs()
        raise PortTaken(said) if "in use" in said else AssertionError(f"`{command}` ends:\n{said}")

    def logs(self):
        return "\n".join((self.folder / f"{number}.log").read_text() for number in range(len(self.background)))


def listens(port):
    """Returns whether a server takes connections at a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def play(transcript, shell):
    """Runs the commands of a transcript, and compares what each prints."""
    for command, lines in steps(with_free_ports(transcript)):
        if command.endswith(" &"):
            assert not lines, f"the page prints lines after `{command}`"
            shell.serve(command.removesuffix(" &"))
            continue
        printed = shell.run(command)
        expected = "\n".join(lines)
        assert pattern(lines).fullmatch(printed), f"`{command}` prints\n\n{printed}\nand the page says\n\n{expected}\n{shell.logs()}"
