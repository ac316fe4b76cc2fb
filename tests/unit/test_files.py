"""Files appear whole or not at all."""

import multiprocessing
import stat
import threading

import pytest

from rm_memorization.errors import UserError
from rm_memorization.files import write_atomically

SIZE = 2_000_000


def write_letter(path, letter, rounds):
    for _ in range(rounds):
        with write_atomically(path) as temporary, temporary.open("wb") as file:
            for _ in range(20):
                file.write(letter * (SIZE // 20))


def assert_one_whole_file(folder, path):
    content = path.read_bytes()
    assert content in (b"a" * SIZE, b"b" * SIZE)
    assert list(folder.iterdir()) == [path]


def test_makes_the_folder_and_the_file(tmp_path):
    path = tmp_path / "deep" / "er" / "a.txt"
    with write_atomically(path) as temporary:
        temporary.write_text("whole")
        assert not path.exists()
        assert temporary.parent == path.parent
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failure_keeps_the_old_file_and_leaves_no_temporary(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail():
        with write_atomically(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_writes_nothing_fails_and_keeps_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(UserError, match=r"a\.txt: cannot be written: No such file"), write_atomically(path):
        pass
    assert path.read_text() == "old"


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    ordinary, path = tmp_path / "ordinary", tmp_path / "a.txt"
    ordinary.write_text("x")
    with write_atomically(path) as temporary:
        temporary.write_text("x")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)


def test_nested_writers_of_one_path_do_not_meet(tmp_path):
    path = tmp_path / "a.txt"
    with write_atomically(path) as outer:
        outer.write_text("outer")
        with write_atomically(path) as inner:
            assert inner != outer
            inner.write_text("inner")
        assert path.read_text() == "inner"
    assert path.read_text() == "outer"


def test_two_threads_leave_one_whole_file(tmp_path):
    path = tmp_path / "a.bin"
    errors = []

    def work(letter):
        try:
            write_letter(path, letter, rounds=10)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(letter,)) for letter in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert_one_whole_file(tmp_path, path)


def test_two_processes_leave_one_whole_file(tmp_path):
    path = tmp_path / "a.bin"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write_letter, args=(path, letter, 10)) for letter in (b"a", b"b")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert_one_whole_file(tmp_path, path)
