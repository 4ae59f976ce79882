"""A small convolutional network for image stripes."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from fedora_vfl.errors import SettingsError
from party.models.registry import BOTTOMS, Bottom

if TYPE_CHECKING:
    from torch import nn

Channels = Annotated[int, Field(ge=1, le=2048)]  # eight such layers have about MOST_PARAMETERS


@BOTTOMS.register("cnn")
class Cnn(Bottom):
    """Blocks of a 3×3 convolution, ReLU and, while the image is large enough, 2×2 pooling; then one linear layer."""

    channels: Annotated[tuple[Channels, ...], Field(min_length=1, max_length=8)] = (16, 32)

    def build(self, shape: tuple[int, ...], embedding: int) -> "nn.Module":
        """Return the network for images of C×H×W."""
        from torch import nn

        if len(shape) != 3:
            raise SettingsError("model.bottom: `cnn` needs images, but this party's rows are a table: use `mlp`")
        inputs, height, width = shape
        layers: list[nn.Module] = []
        for outputs in self.channels:
            layers += [nn.Conv2d(inputs, outputs, kernel_size=3, padding=1), nn.ReLU()]
            # Narrow stripes (an 8×8 image among eight parties is one column wide) are pooled along the other side only.
            pool = (2 if height > 1 else 1, 2 if width > 1 else 1)
            if pool != (1, 1):
                layers.append(nn.MaxPool2d(pool))
                height, width = height // pool[0], width // pool[1]
            inputs = outputs
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs * height * width, embedding))
