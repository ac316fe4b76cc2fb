"""Settings of what an experiment is made from: the data set and the backbone."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from .settings import Count, Seed, Settings, Text


def _exactly_one(settings: BaseModel, names: tuple[str, ...]) -> None:
    given = [name for name in names if getattr(settings, name) is not None]
    if len(given) != 1:
        raise ValueError(f"give exactly one of {', '.join(names)}; found {', '.join(given) or 'none'}")


Users = Annotated[int, Field(ge=0)]


class Planted(Settings):
    """A made-up data set with known truth, see `readers.planted`."""

    rule_users: Count = Field(84, description="users whose label follows a rule that generalises")
    flipped_users: Users = Field(12, description="users whose label is the rule's opposite")
    arbitrary_users: Users = Field(12, description="users whose label is a coin toss")
    length_users: Users = Field(12, description="users who prefer whatever is longer")
    pairs_per_user: Count = Field(12, description="pairs of each user")
    seed: Seed = Field(7, description="seed of the texts and the labels")


class HhRlhf(Settings):
    """Transcripts of HH-RLHF: JSON lines with `chosen` and `rejected`, plain or gzipped."""

    files: Annotated[list[Text], Field(min_length=1)] = Field(description="`.jsonl` or `.jsonl.gz` files")
    limit: Count | None = Field(None, description="read only this many first rows of each file")


class Table(Settings):
    """A table of pairs: JSON lines (plain or gzipped), CSV or Parquet."""

    files: Annotated[list[Text], Field(min_length=1)] = Field(
        description="files with columns `prompt` (text, or a list of messages), `chosen`, `rejected` and, if the unit is the user, `user_id`; a column `stratum` groups results, others are kept in `extra`"
    )
    unit: Literal["user", "prompt"] = Field("user", description="what is held out as a whole")


class Source(Settings):
    """The data set: exactly one of the readers."""

    planted: Planted | None = Field(None, description="a made-up data set with known truth")
    hh_rlhf: HhRlhf | None = Field(None, description="HH-RLHF transcripts")
    table: Table | None = Field(None, description="a table of pairs")

    @model_validator(mode="after")
    def _one(self) -> Self:
        _exactly_one(self, ("planted", "hh_rlhf", "table"))
        return self

    @property
    def files(self) -> list[str]:
        """The source files."""
        reader = self.hh_rlhf or self.table
        return list(reader.files) if reader else []


class TinyLlama(Settings):
    """A small Llama with random weights and a byte-pair vocabulary learned from the pairs."""

    hidden_size: Count = Field(64, description="width, an even number for each head")
    layers: Count = Field(2, description="transformer layers")
    heads: Count = Field(4, description="attention heads")
    vocabulary: Annotated[int, Field(ge=300)] = Field(1200, description="largest number of tokens")
    seed: Seed = Field(0, description="seed of the weights")

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.hidden_size % (2 * self.heads):
            raise ValueError(
                f"hidden_size = {self.hidden_size} gives no even width to each of heads = {self.heads}; "
                f"rotary positions turn numbers in pairs"
            )
        return self


class BackboneSource(Settings):
    """Where the backbone comes from: exactly one of tiny, path, hub."""

    tiny: TinyLlama | None = Field(None, description="built here")
    path: Text | None = Field(None, description="a folder with safetensors, config and tokenizer")
    hub: Text | None = Field(
        None, description="a model on the Hugging Face hub, such as meta-llama/Llama-3.2-1B"
    )
    revision: str | None = Field(
        None, pattern="^[0-9a-f]{40}$", description="commit of the hub model: 40 hexadecimal digits"
    )
    pad_token: Text | None = Field(
        None, description="pad token, if the tokenizer has none or one that equals EOS"
    )
    chat_template: Text | None = Field(
        None, description="file with a chat template, if the tokenizer has none"
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        _exactly_one(self, ("tiny", "path", "hub"))
        if (self.hub is None) != (self.revision is None):
            raise ValueError("hub and revision go together: a hub model is pinned to a commit")
        return self
