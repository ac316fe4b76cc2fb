"""The warm start: a command does the same as in its own process, and nobody is left behind."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rm_memorization import warm

HERE = os.fspath(Path(__file__).parent)
CLIENT = [sys.executable, "-c", "import warm_probe; from rm_memorization.warm import main; main()", "probe"]
PARENT = """
import sys
from rm_memorization import warm
server = warm.start(sys.argv[1:])
print(server.pid, warm.os.environ[warm.VARIABLE], flush=True)
sys.stdin.read()
"""
PATIENCE = 15.0


def environment(**more: str) -> dict[str, str]:
    without = (warm.VARIABLE, "PYTHONUNBUFFERED")
    path = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))
    return (
        {name: value for name, value in os.environ.items() if name not in without}
        | {"PYTHONPATH": path}
        | more
    )


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


def eventually(condition) -> bool:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


class Server:
    """A server and the process that started it."""

    def __init__(self, *modules: str, cwd: Path | None = None, **variables: str) -> None:
        self.parent = subprocess.Popen(
            [sys.executable, "-P", "-c", PARENT, *modules], cwd=cwd,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**variables),
        )  # fmt: skip
        pid, self.folder = self.parent.stdout.readline().split()
        self.pid = int(pid)

    def env(self, **more: str) -> dict[str, str]:
        return environment(**more) | {warm.VARIABLE: self.folder}

    def run(self, *arguments: str, **options) -> subprocess.CompletedProcess[str]:
        return run(*arguments, env=self.env(), **options)

    def popen(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*CLIENT, *arguments], env=self.env(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    @property
    def children(self) -> list[int]:
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def close(self) -> str:
        """End the parent, wait for the server, and give what either wrote to standard error."""
        with contextlib.suppress(OSError):
            self.parent.stdin.close()
        if not eventually(lambda: not alive(self.pid)):
            os.kill(self.pid, signal.SIGKILL)
        self.parent.wait(PATIENCE)
        self.parent.stdout.close()
        with self.parent.stderr as stream:
            return stream.read()


def run(*arguments: str, env: dict[str, str], **options) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True, "text": True, "timeout": 60} | options
    return subprocess.run([*CLIENT, *arguments], env=env, check=False, **options)


@pytest.fixture(scope="module")
def shared():
    server = Server("warm_probe")
    yield server
    assert server.close() == ""


@pytest.fixture
def server():
    server = Server("warm_probe")
    yield server
    server.close()
    shutil.rmtree(server.folder, ignore_errors=True)  # a server that a test kills leaves it


def outcome(done: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (0, ["show", "a", "b c", "--", "-x", "ü\n", ""]),
        (1, ["user_error"]),
        (0, ["leave", "0"]),
        (7, ["leave", "7"]),
        (1, ["say", "a last word"]),
        (0, ["mix"]),
        (2, ["--nonsense"]),
        (0, ["--help"]),
        (2, []),
    ],
)
def test_it_does_what_a_cold_run_does(shared, code, arguments, tmp_path):
    cold = outcome(run(*arguments, env=environment(PROBE="1"), cwd=tmp_path))
    warmed = outcome(run(*arguments, env=shared.env(PROBE="1"), cwd=tmp_path))
    assert warmed == cold
    assert cold[0] == code


def test_output_into_one_file_comes_in_the_same_order(shared, tmp_path):
    texts = []
    for env in (environment(), shared.env()):
        with (tmp_path / "log").open("w+") as log:
            run("mix", env=env, capture_output=False, stdout=log, stderr=subprocess.STDOUT)
            log.seek(0)
            texts.append(log.read())
    assert texts[0] == texts[1]
    assert len(texts[0].splitlines()) == 6


def test_it_runs_in_the_server_s_child(shared, tmp_path):
    client = shared.popen("wait", str(tmp_path / "started"), str(tmp_path / "finish"))
    assert eventually((tmp_path / "started").exists)
    pid = int((tmp_path / "started").read_text())
    assert shared.children == [pid]
    (tmp_path / "finish").touch()
    assert client.communicate(timeout=PATIENCE) == ("finished\n", "")
    assert client.returncode == 0


def test_a_crash_keeps_its_traceback(shared):
    cold, warmed = run("crash", env=environment()), shared.run("crash")
    assert (warmed.returncode, warmed.stdout) == (cold.returncode, cold.stdout) == (1, "before\n")
    for done in (cold, warmed):
        assert done.stderr.startswith("Traceback (most recent call last):\n")
        assert done.stderr.endswith("RuntimeError: on purpose\n")
        assert ", in _crash\n" in done.stderr


def test_a_child_that_is_killed(shared):
    assert outcome(shared.run("killed")) == (128 + 9, "", "")


def test_folder_environment_and_arguments_are_the_caller_s(shared, tmp_path):
    env = shared.env(PROBE="caller", TMPDIR=str(tmp_path))
    done = run("show", "x", env=env, cwd=tmp_path)
    shown = json.loads(done.stdout)
    assert shown["argv"] == ["probe", "show", "x"]
    assert (shown["cwd"], shown["tmp"], shown["PROBE"]) == (str(tmp_path), str(tmp_path), "caller")
    for name in ("OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HOME"):
        assert shown[name] == os.environ.get(name)


def test_arguments_that_are_no_unicode(shared, tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9"
    done = subprocess.run([*CLIENT, "at_exit", path], env=shared.env(), check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert os.path.exists(path)  # noqa: PTH110 - the name is bytes


def test_standard_input_is_the_caller_s(shared):
    assert shared.run("echo", input="from the caller").stdout == "from the caller"


def test_what_is_registered_for_the_exit_is_done(shared, tmp_path):
    assert shared.run("at_exit", str(tmp_path / "done")).returncode == 0
    assert (tmp_path / "done").exists()


def test_many_arguments(shared):
    many = [f"{number:0100d}" for number in range(3000)]
    assert json.loads(shared.run("show", *many).stdout)["rest"] == many


def test_commands_run_side_by_side(shared, tmp_path):
    clients = [shared.popen("meet", str(tmp_path), str(number), "8") for number in range(8)]
    assert [client.communicate(timeout=60)[0] for client in clients] == [f"{number}\n" for number in range(8)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_caller_that_is_killed_takes_its_child_with_it(shared, tmp_path, number):
    other = shared.popen("wait", str(tmp_path / "other"), str(tmp_path / "finish"))
    client = shared.popen("wait", str(tmp_path / "started"))
    assert eventually(lambda: (tmp_path / "started").exists() and (tmp_path / "other").exists())
    pid = int((tmp_path / "started").read_text())
    client.send_signal(number)
    assert client.communicate(timeout=PATIENCE) == ("", "")
    assert client.returncode == -number
    assert eventually(lambda: not alive(pid))
    (tmp_path / "finish").touch()
    assert other.communicate(timeout=PATIENCE) == ("finished\n", "")


def test_rude_callers_hold_up_nobody(shared):
    address = warm._address(Path(shared.folder))
    silent, half = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    with silent, half:
        silent.connect(address)
        half.connect(address)
        socket.send_fds(half, [b" "], [0, 1, 2])
        half.sendall(b'{"argv": [')
        for rude in (b"", b"\0" * 100, b"no json", b"[]", b"{}"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(address)
                connection.sendall(rude)
        assert shared.run("leave", "3").returncode == 3
        assert len(shared.children) == 2
    assert eventually(lambda: shared.children == [])
    assert shared.run("leave", "4").returncode == 4


def test_the_socket_is_private(server):
    assert Path(server.folder).stat().st_mode & 0o777 == 0o700
    assert Path(warm._address(Path(server.folder))).is_socket()


def gone(server: Server) -> bool:
    return not alive(server.pid) and not Path(server.folder).exists()


def test_the_server_leaves_with_its_parent(server):
    server.parent.stdin.close()
    assert eventually(lambda: gone(server))


def test_the_server_leaves_when_its_parent_is_killed_and_its_children_are_done(server, tmp_path):
    client = server.popen("wait", str(tmp_path / "started"), str(tmp_path / "finish"))
    assert eventually((tmp_path / "started").exists)
    server.parent.kill()
    server.parent.wait(PATIENCE)
    time.sleep(0.3)
    assert alive(server.pid)
    assert server.run("leave", "5").returncode == 5  # in its own process
    assert len(server.children) == 1
    (tmp_path / "finish").touch()
    assert client.communicate(timeout=PATIENCE) == ("finished\n", "")
    assert client.returncode == 0
    assert eventually(lambda: gone(server))


def test_a_parent_that_dies_while_the_server_still_imports(tmp_path):
    (tmp_path / "slow_module.py").write_text("import time; time.sleep(1)")
    server = Server("slow_module", PYTHONPATH=os.fspath(tmp_path))
    server.parent.kill()
    server.close()
    assert eventually(lambda: gone(server))


def test_a_killed_server_takes_its_children_with_it(server, tmp_path):
    client = server.popen("wait", str(tmp_path / "started"))
    assert eventually((tmp_path / "started").exists)
    os.kill(server.pid, signal.SIGKILL)
    assert client.communicate(timeout=PATIENCE) == ("", "error: the warm start's server died\n")
    assert client.returncode == 1
    assert eventually(lambda: not alive(int((tmp_path / "started").read_text())))
    assert server.run("leave", "6").returncode == 6  # in its own process, past a stale socket


def test_a_module_that_is_missing_leaves_commands_cold():
    server = Server("no_such_module")
    assert server.run("leave", "3").returncode == 3
    assert eventually(lambda: gone(server))
    assert server.close() == ""


def test_a_module_in_the_working_folder_is_not_taken_for_a_library(tmp_path):
    (tmp_path / "selectors.py").write_text("raise SystemExit('imported by mistake')")
    server = Server("warm_probe", cwd=tmp_path)
    assert server.run("leave", "3").returncode == 3
    assert alive(server.pid)
    assert server.close() == ""


def test_without_a_server_there_is_nothing_to_forward_to(monkeypatch, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.delenv(warm.VARIABLE, raising=False)
    assert warm.forward(["--help"]) is None
    for folder in (str(tmp_path), "/nowhere", "x" * 500):
        monkeypatch.setenv(warm.VARIABLE, folder)
        assert warm.forward(["--help"]) is None
    assert signal.getsignal(signal.SIGINT) is before


def test_another_python_installation_starts_cold(shared, monkeypatch):
    monkeypatch.setenv(warm.VARIABLE, shared.folder)
    monkeypatch.setattr(sys, "prefix", "/another/environment")
    assert warm.forward(["--help"]) is None


def test_where_no_socket_can_be_made_commands_start_cold(monkeypatch, tmp_path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(warm.tempfile, "tempdir", str(deep))
    monkeypatch.setenv(warm.VARIABLE, "")
    assert warm.start(()) is None
    assert os.environ[warm.VARIABLE] == ""
    assert list(deep.iterdir()) == []


def test_what_is_preloaded_can_be_imported():
    assert all(warm.importlib.util.find_spec(name.partition(".")[0]) for name in warm.PRELOADED)
