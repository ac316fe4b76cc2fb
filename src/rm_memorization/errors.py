"""The one kind of error that a user's input can cause."""


class UserError(Exception):
    """A mistake in an input, told in one line.

    Parameters
    ----------
    where : str
        File, row, column, key or pair.
    found : str
        What was found there, with the offending value.
    why : str, optional
        Why it matters.
    hint : str, optional
        What to do next.

    Examples
    --------
    >>> print(UserError("pairs.jsonl:3", "no column 'chosen'", hint="rename the preferred reply's column"))
    pairs.jsonl:3: no column 'chosen'. Hint: rename the preferred reply's column
    """

    def __init__(self, where: str, found: str, why: str = "", hint: str = "") -> None:
        self.where, self.found, self.why, self.hint = where, found, why, hint
        super().__init__(where, found, why, hint)

    def __str__(self) -> str:
        parts = [f"{self.where}: {self.found}", self.why, f"Hint: {self.hint}" if self.hint else ""]
        return " ".join(". ".join(part for part in parts if part).split())
