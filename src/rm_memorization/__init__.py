"""Finds the preference pairs that a reward model memorizes and those to which it only generalises."""

__version__ = "0.1.0"
