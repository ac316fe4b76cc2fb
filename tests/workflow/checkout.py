"""A copy of the workflow to run in, and ways to call Snakemake there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
PARTS = ("Snakefile", "workflow", "config", "profiles", "envs")


class Checkout:
    """A copy of the workflow's files, whose results are its own.

    Parameters
    ----------
    folder
        An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for part in PARTS:
            source = ROOT / part
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / part)
        (folder / "a100").symlink_to("profiles/a100")
        shutil.copy(Path(__file__).parent / "small.yaml", folder / "config" / "small.yaml")

    def call(self, *command: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in the folder."""
        program = [os.fspath(BIN / command[0]), *command[1:]]
        return subprocess.run(
            program, cwd=self.folder, capture_output=True, text=True, timeout=timeout, check=False
        )

    def snakemake(
        self, *arguments: str, config: str = "config/small.yaml"
    ) -> subprocess.CompletedProcess[str]:
        """Run Snakemake on a config; it must succeed."""
        done = self.call("snakemake", *arguments, "--cores", "2", "--configfile", config)
        assert done.returncode == 0, done.stdout + done.stderr
        return done
