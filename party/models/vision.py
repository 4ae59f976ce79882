"""ResNet and DenseNet for stripes of small images."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.optional_packages import extra
from party.models.registry import BOTTOMS, Bottom

if TYPE_CHECKING:
    from torch import nn

    from party.models.image_networks import Size


class _Vision(Bottom):
    """What networks for images have in common."""

    name: ClassVar[str]  # in errors

    def build(self, shape: tuple[int, ...], embedding: int) -> "nn.Module":
        """Return the network for images of C×H×W."""
        if len(shape) != 3:
            raise SettingsError(
                f"model.bottom: `{self.name}` needs images, but this party's rows are a table: use `mlp`"
            )
        channels, height, width = shape
        return self._network(channels, (height, width), embedding)

    @abstractmethod
    def _network(self, channels: int, size: "Size", embedding: int) -> "nn.Module": ...

    def _torchvision(self, module: str) -> Any:
        return extra(f"torchvision.models.{module}", needed_by=f"model.bottom: `{self.name}`")


class _ResNet(_Vision):
    """A residual network: a stem, four stages of blocks, the mean of every channel, one linear layer."""

    width: Annotated[int, Field(ge=1, le=512)] = 64  # channels of the first stage; the others double it
    block: ClassVar[str]
    stages: ClassVar[tuple[int, ...]]  # blocks in each

    def _network(self, channels: int, size: "Size", embedding: int) -> "nn.Module":
        from party.models.image_networks import residual

        block = getattr(self._torchvision("resnet"), self.block)
        return residual(block, self.stages, self.width, channels, size, embedding)


@BOTTOMS.register("resnet18")
class ResNet18(_ResNet):
    """ResNet-18."""

    name: ClassVar[str] = "resnet18"
    block: ClassVar[str] = "BasicBlock"
    stages: ClassVar[tuple[int, ...]] = (2, 2, 2, 2)


@BOTTOMS.register("resnet50")
class ResNet50(_ResNet):
    """ResNet-50."""

    name: ClassVar[str] = "resnet50"
    block: ClassVar[str] = "Bottleneck"
    stages: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)


@BOTTOMS.register("densenet121")
class DenseNet121(_Vision):
    """DenseNet-121: every layer sees the outputs of all before it in its block."""

    name: ClassVar[str] = "densenet121"
    # Channels of the stem; every layer adds half as many.
    width: Annotated[int, Field(ge=2, le=512, multiple_of=2)] = 64
    blocks: ClassVar[tuple[int, ...]] = (6, 12, 24, 16)  # layers in each

    def _network(self, channels: int, size: "Size", embedding: int) -> "nn.Module":
        from party.models.image_networks import dense

        kind = self._torchvision("densenet").DenseNet
        return dense(kind, self.blocks, self.width, channels, size, embedding)
