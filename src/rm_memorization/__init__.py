"""Which preference pairs does a reward model memorize, and which does it only generalise to?"""

__version__ = "0.1.0"
