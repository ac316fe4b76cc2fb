"""Lets the tests here and in the folders below import the helpers that lie here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
