"""Warm start: jobs on one machine fork from a process that has done the imports.

Importing torch, transformers, peft and TRL takes ten seconds of CPU, more than a tiny model trains. `start` brings up a
server that imports them once; `forward` hands a command to it, and the server forks a child that runs the command with
the caller's arguments, folder, environment and standard streams. Nothing else changes: without a server, or on another
machine, the command runs in its own process.

If the caller dies, its child is ended. If whoever started the server dies, it takes no more commands and leaves when its
children have.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

VARIABLE = "RM_MEMORIZATION_WARM"
PRELOADED = ("polars", "pandera.polars", "pyarrow.parquet", "scipy.stats", "matplotlib.figure", "datasets", "peft", "transformers.models.llama.modeling_llama",
             "trl.trainer.sft_trainer", "trl.trainer.reward_trainer")  # fmt: skip


def start() -> None:
    """Start a server for this process and its descendants."""
    address = Path(tempfile.mkdtemp(prefix="rm-memorization-")) / "warm.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.fspath(address))
    listener.listen(64)
    command = [sys.executable, "-m", "rm_memorization.warm", str(listener.fileno()), os.fspath(address)]
    subprocess.Popen(command, pass_fds=[listener.fileno()], start_new_session=True, stdin=subprocess.DEVNULL)
    listener.close()
    os.environ[VARIABLE] = os.fspath(address)


def forward(arguments: list[str]) -> int | None:
    """Have the server run a command.

    Parameters
    ----------
    arguments
        The command line without the program's name.

    Returns
    -------
    int or None
        The exit code; None if there is no server.
    """
    address = os.environ.get(VARIABLE)
    if not address:
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
    except OSError:
        return None
    request = json.dumps({"argv": arguments, "cwd": os.getcwd(), "env": dict(os.environ)}).encode()
    socket.send_fds(connection, [len(request).to_bytes(8, "little")], [0, 1, 2])
    connection.sendall(request)
    answer = connection.recv(4)
    return int.from_bytes(answer, "little") if answer else 1


class _Server:
    """Accepts commands, forks a child for each, reports exit codes."""

    def __init__(self, listener: socket.socket) -> None:
        self.parent = os.getppid()
        self.selector = selectors.DefaultSelector()
        self.listener = listener
        self.selector.register(listener, selectors.EVENT_READ, self._accept)
        self.children: dict[int, socket.socket] = {}

    def run(self) -> None:
        """Serve until the parent is gone and the last child has left."""
        accepting = True
        while accepting or self.children:
            for key, _ in self.selector.select(timeout=0.05 if self.children else 0.5):
                key.data(key.fileobj)
            self._reap()
            if accepting and os.getppid() != self.parent:
                accepting = False
                self.selector.unregister(self.listener)
                self.listener.close()

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        header, streams, _, _ = socket.recv_fds(connection, 8, 3)
        request = _receive(connection, int.from_bytes(header, "little"))
        pid = os.fork()
        if pid == 0:
            self.selector.close()
            listener.close()
            _become(request, streams)
        for stream in streams:
            os.close(stream)
        self.children[pid] = connection
        self.selector.register(connection, selectors.EVENT_READ, self._caller_left)

    def _caller_left(self, connection: socket.socket) -> None:
        """A caller sends nothing more: what can be read is its end."""
        self.selector.unregister(connection)
        for pid, caller in self.children.items():
            if caller is connection:
                os.kill(pid, signal.SIGTERM)

    def _reap(self) -> None:
        for pid in list(self.children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                connection = self.children.pop(pid)
                code = os.waitstatus_to_exitcode(status)
                with contextlib.suppress(OSError, KeyError, ValueError):
                    self.selector.unregister(connection)
                with contextlib.suppress(OSError):
                    connection.sendall((code if code >= 0 else 128 - code).to_bytes(4, "little"))
                connection.close()


def _receive(connection: socket.socket, size: int) -> dict[str, Any]:
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    request: dict[str, Any] = json.loads(data)
    return request


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Turn a fresh child into the requested command; never returns."""
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = ["rm-memorization", *request["argv"]]
        from .cli import main

        main()
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        if isinstance(leave.code, str):
            print(leave.code, file=sys.stderr)  # noqa: T201
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve(descriptor: int, address: Path) -> None:
    import importlib

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["POLARS_ALLOW_FORKING_THREAD"] = "1"  # no thread of polars runs before the fork
    server = _Server(socket.socket(fileno=descriptor))
    for module in PRELOADED:
        importlib.import_module(module)
    try:
        server.run()
    finally:
        address.unlink(missing_ok=True)
        address.parent.rmdir()


def main() -> None:
    """Run a command, warm where a server is up."""
    code = forward(sys.argv[1:])
    if code is not None:
        sys.exit(code)
    from .cli import main as cold

    cold()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]))
