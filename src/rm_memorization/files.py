"""Files appear whole or not at all."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from .errors import UserError


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`; on success sync it and rename it into place.

    The name is unique, so that a twin job, on this host or another, cannot write into the same file; whichever
    renames last leaves a whole file. On failure the temporary file is removed and `path` keeps what it had.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with write_atomically(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        hint = "free some space, or check who may write there"
        raise UserError(str(path), f"cannot be written: {error.strerror or error}", hint=hint) from None
    finally:
        temporary.unlink(missing_ok=True)
