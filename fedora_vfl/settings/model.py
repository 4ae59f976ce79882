"""The model section of a job: which networks, by name, and their sizes."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from fedora_vfl.settings.bounds import Embedding, Layer

MODEL_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"  # names of saved models: nothing that could lead to another folder
ModelName = Annotated[str, Field(pattern=f"^{MODEL_NAME}$")]


class Model(BaseModel):
    """Names and sizes of the networks. Further settings belong to the bottom model named here; parties check them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    bottom: str = "mlp"
    embedding: Embedding = 64
    top: Annotated[list[Layer], Field(max_length=16)] = Field(default=[128])

    @property
    def bottom_settings(self) -> dict[str, Any]:
        """The settings that belong to the bottom model."""
        return dict(self.model_extra or {})
