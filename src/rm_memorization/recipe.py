"""Settings of the two trainings, and the version of the recipe.

Bump `RECIPE` by hand when a change makes trainings give other weights: trainings run again then. A test compares the
losses of five steps and a digest of the recipe's code with committed ones and says so.
"""

from typing import Annotated, Literal

from pydantic import Field

from .settings import Count, Seed, Settings, Text

RECIPE = 1

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Lora(Settings):
    """Low-rank adapters."""

    rank: Count = Field(16, description="rank of each adapter")
    alpha: Count = Field(32, description="an adapter adds alpha / rank · B A")
    target_modules: Annotated[list[Text], Field(min_length=1)] = Field(
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        description="the decoder's linear layers that get an adapter",
    )


class Training(Settings):
    """What both trainings share."""

    lora: Lora | None = Field(Lora(), description="adapter settings; null trains all weights")
    epochs: Count = Field(1, description="passes over the data")
    batch_size: Count = Field(32, description="examples a device holds at once")
    accumulation: Count = Field(1, description="batches to an optimizer step")
    learning_rate: Positive = Field(1.0e-4, description="peak of the AdamW learning rate")
    schedule: Literal["linear", "cosine", "constant"] = Field("linear", description="decay after the warm-up")
    warmup_ratio: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.03, description="share of the steps spent warming up"
    )
    weight_decay: NotNegative = Field(0.0, description="AdamW weight decay")
    max_grad_norm: Positive = Field(1.0, description="gradient norm is clipped to this")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="of the decoder's arithmetic; weights, head and rewards are float32"
    )
    gradient_checkpointing: bool = Field(default=False, description="recompute activations to save memory")
    init_seed: Seed = Field(1, description="seed of the new weights")
    data_seed: Seed = Field(1, description="seed of the batch order")


class RewardTraining(Training):
    """Bradley–Terry training of the reward model."""

    epochs: Count = Field(3, description="passes over the data")
    head_std: NotNegative = Field(
        0.02, description="standard deviation of the head's initial weights; 0 starts at zero"
    )
