"""Warm start: jobs on one machine fork from a process that has done the imports.

Importing torch, transformers, peft and TRL takes ten seconds of CPU, more than a tiny model trains. `start` brings up a
server that imports them once; `forward` hands a command to it, and the server forks a child that runs the command with
the caller's arguments, folder, environment and standard streams. Nothing else changes: without a server of the same
Python installation, or on another machine, the command runs in its own process.

If the caller dies, its child is ended. If whoever started the server dies, it takes no more commands and leaves when its
children have.

A caller sends one byte with its three streams, then its request, and waits for two bytes: that the child has taken over,
and its exit code. Before the first, whatever goes wrong sends the caller back to its own process.
"""

import atexit
import contextlib
import gc
import hashlib
import importlib
import io
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

VARIABLE = "RM_MEMORIZATION_WARM"
PRELOADED = ("polars", "pandera.polars", "pyarrow.parquet", "scipy.stats", "matplotlib.figure", "datasets", "peft", "transformers.models.llama.modeling_llama",
             "trl.trainer.sft_trainer", "trl.trainer.reward_trainer")  # fmt: skip
# Read when a library is loaded: numpy gets one thread, as Snakemake has it (torch is told its number later), and neither
# a pool of threads nor a CUDA context is made before a fork.
ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1") | {
    "TOKENIZERS_PARALLELISM": "false",
    "POLARS_ALLOW_FORKING_THREAD": "1",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}
PR_SET_PDEATHSIG = 1
TAKEN_OVER = b"\xff"  # no exit code of a child that fails before


def start(modules: Sequence[str] = PRELOADED) -> "subprocess.Popen[bytes] | None":
    """Start a server for this process and its descendants.

    Parameters
    ----------
    modules
        What it imports.

    Returns
    -------
    subprocess.Popen or None
        The server; None where no socket can be made, and commands start cold.
    """
    folder = Path(tempfile.mkdtemp(prefix="rm-memorization-"))
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(_address(folder))
        except OSError:  # the name of the temporary folder is too long for a socket
            folder.rmdir()
            return None
        listener.listen(64)
        # -P: what lies in the working folder must not be imported for a library.
        command = [
            sys.executable,
            "-P",
            "-m",
            __name__,
            str(listener.fileno()),
            str(os.getpid()),
            os.fspath(folder),
        ]
        server = subprocess.Popen(
            [*command, *modules],
            pass_fds=[listener.fileno()],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            env=os.environ | ENVIRONMENT,
        )
    os.environ[VARIABLE] = os.fspath(folder)
    return server


def _address(folder: Path) -> str:
    """Name the socket after the Python installation: a job in another environment finds none, and starts cold."""
    return os.fspath(folder / f"{hashlib.sha256(os.fsencode(sys.prefix)).hexdigest()[:8]}.sock")


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
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        if not _taken_over(connection, Path(folder), arguments):
            return None
        # Ctrl-C ends this process without a word, and so its child.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        answer = connection.recv(1)
    if not answer:
        print("error: the warm start's server died", file=sys.stderr)  # noqa: T201
        return 1
    return answer[0]


def _taken_over(connection: socket.socket, folder: Path, arguments: list[str]) -> bool:
    request = {"argv": arguments, "cwd": os.fspath(Path.cwd()), "env": dict(os.environ)}
    try:
        connection.connect(_address(folder))
        socket.send_fds(connection, [b" "], [0, 1, 2])
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(1) == TAKEN_OVER
    except OSError:
        return False


class _Server:
    """Accepts commands, forks a child for each, reports exit codes.

    Parameters
    ----------
    listener
        Where callers connect.
    parent
        Process that started the server.
    """

    def __init__(self, listener: socket.socket, parent: int) -> None:
        self.listener, self.parent = listener, parent
        self.callers: dict[int, socket.socket] = {}
        self.poll = select.poll()
        self.poll.register(listener, select.POLLIN)

    def run(self) -> socket.socket | None:
        """Serve until the parent is gone and the last child has left.

        Returns
        -------
        socket.socket or None
            In a child, the connection to its caller.
        """
        while self.parent or self.callers:
            for descriptor, _ in self.poll.poll(50 if self.callers else 500):
                if descriptor != self.listener.fileno():
                    self._caller_left(descriptor)
                elif connection := self._fork():
                    return connection
            self._reap()
            if self.parent and os.getppid() != self.parent:
                self.parent = 0
                self.poll.unregister(self.listener)
                self.listener.close()
        return None

    def _fork(self) -> socket.socket | None:
        """Accept a caller; only its child reads from it, so that no caller can keep the server waiting."""
        connection, _ = self.listener.accept()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self.listener.close()
            for other in self.callers.values():
                other.close()
            return connection
        self.callers[pid] = connection
        self.poll.register(connection, 0)  # tells of the caller's end alone
        return None

    def _caller_left(self, descriptor: int) -> None:
        self.poll.unregister(descriptor)
        for pid, connection in self.callers.items():
            if connection.fileno() == descriptor:
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        for pid in list(self.callers):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                with self.callers.pop(pid) as connection:
                    with contextlib.suppress(KeyError):
                        self.poll.unregister(connection)
                    with contextlib.suppress(OSError):
                        connection.sendall(bytes([code if code >= 0 else 128 - code]))


def _become(connection: socket.socket, server: int) -> None:
    """Turn a fresh child into the caller's command; leave if the caller or the server is gone."""
    _end_with(server)
    try:
        with connection:
            _, streams, _, _ = socket.recv_fds(connection, 1, 3)
            request: dict[str, Any] = json.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))
            connection.sendall(TAKEN_OVER)
    except (OSError, ValueError):
        os._exit(1)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    tempfile.tempdir = None  # read from the environment again
    sys.argv = ["rm-memorization", *request["argv"]]


def _end_with(server: int) -> None:
    """Have the kernel end this process when the server dies."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)


def _serve(descriptor: int, parent: int, folder: str, modules: list[str]) -> None:
    """Serve, and remove the socket's folder afterwards; a child goes on from here as the command that it became."""
    server, connection = os.getpid(), None
    try:
        for module in modules:
            importlib.import_module(module)
        gc.freeze()  # a collection in a child would copy every page that holds an object
        connection = _Server(socket.socket(fileno=descriptor), parent).run()
    except ImportError:
        return  # commands start cold, and those that need the module say so
    finally:
        if os.getpid() == server:
            shutil.rmtree(folder, ignore_errors=True)
    if connection:
        _become(connection, server)
        _run()


def _run() -> NoReturn:
    """Run the command and leave as the interpreter would, but for the seconds that it takes to unload all modules."""
    code = 1
    try:
        _cold()
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        if isinstance(leave.code, str):
            print(leave.code, file=sys.stderr)  # noqa: T201
    except BaseException:  # noqa: BLE001 - whatever it is, it is shown
        sys.excepthook(*sys.exc_info())
    try:
        atexit._run_exitfuncs()  # noqa: SLF001 - libraries remove their temporary files there
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _cold() -> None:
    from .cli import main

    main()


def main() -> None:
    """Run a command, warm where a server is up."""
    code = forward(sys.argv[1:])
    if code is not None:
        sys.exit(code)
    _cold()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
