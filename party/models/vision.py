"""ResNet and DenseNet, made of torchvision's parts, for stripes of small images."""

from abc import abstractmethod
from collections import OrderedDict
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.optional_packages import extra
from party.models.registry import BOTTOMS, Bottom

SMALL, MEDIUM = 40, 80  # pixels of the longer side, up to which a stem keeps or halves the image
Size = tuple[int, int]  # height and width


class _Vision(Bottom):
    """What networks for images have in common."""

    name: ClassVar[str]  # in errors

    def build(self, shape: tuple[int, ...], embedding: int) -> nn.Module:
        """Return the network for images of C×H×W."""
        if len(shape) != 3:
            raise SettingsError(
                f"model.bottom: `{self.name}` needs images, but this party's rows are a table: use `mlp`"
            )
        channels, height, width = shape
        return _forgiving(self._network(channels, (height, width), embedding))

    @abstractmethod
    def _network(self, channels: int, size: Size, embedding: int) -> nn.Module: ...

    def _torchvision(self, module: str) -> Any:
        return extra(f"torchvision.models.{module}", needed_by=f"model.bottom: `{self.name}`")


class _ResNet(_Vision):
    """A residual network: a stem, four stages of blocks, the mean of every channel, one linear layer."""

    width: Annotated[int, Field(ge=1, le=512)] = 64  # channels of the first stage; the others double it
    block: ClassVar[str]
    stages: ClassVar[tuple[int, ...]]  # blocks in each

    def _network(self, channels: int, size: Size, embedding: int) -> nn.Module:
        block = getattr(self._torchvision("resnet"), self.block)
        convolution, pool = _stem(channels, self.width, _reduction(size))
        # Names are torchvision's, so that a state dict reads like one of its own.
        parts: dict[str, nn.Module] = {"conv1": convolution, "bn1": nn.BatchNorm2d(self.width), "relu": nn.ReLU()}
        parts["maxpool"] = pool
        inputs = self.width
        for number, count in enumerate(self.stages):
            planes = self.width << number
            parts[f"layer{number + 1}"] = _stage(block, inputs, planes, count, stride=2 if number else 1)
            inputs = planes * block.expansion
        parts |= {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(inputs, embedding)}
        network = nn.Sequential(OrderedDict(parts))
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        return network


def _stage(block: Any, inputs: int, planes: int, count: int, *, stride: int) -> nn.Sequential:
    """Return the blocks of one stage; the first brings the shortcut to the stage's size and channels."""
    outputs = planes * block.expansion
    shortcut = None
    if stride != 1 or inputs != outputs:
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
    return nn.Sequential(block(inputs, planes, stride, shortcut), *(block(outputs, planes) for _ in range(count - 1)))


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

    def _network(self, channels: int, size: Size, embedding: int) -> nn.Module:
        kind = self._torchvision("densenet").DenseNet
        network: nn.Module = kind(self.width // 2, self.blocks, self.width, num_classes=embedding)
        features: Any = network.features
        reduction = _reduction(size)
        features.conv0, features.pool0 = _stem(channels, self.width, reduction)
        nn.init.kaiming_normal_(features.conv0.weight)
        height, width = (-(-side // reduction) for side in size)  # rounded up
        for number in range(1, len(self.blocks)):
            # Torchvision halves both sides, which a side of one pixel cannot bear.
            pool = (2 if height > 1 else 1, 2 if width > 1 else 1)
            features.get_submodule(f"transition{number}").pool = nn.AvgPool2d(pool)
            height, width = height // pool[0], width // pool[1]
        return network


def _reduction(size: Size) -> int:
    """Say how often smaller the stem makes each side, so that the first stage sees about 32 pixels."""
    longer = max(size)
    return 1 if longer <= SMALL else 2 if longer <= MEDIUM else 4


def _stem(inputs: int, outputs: int, reduction: int) -> tuple[nn.Module, nn.Module]:
    """Return the first convolution and what pools its outputs: the original ones for large images alone."""
    if reduction == 4:
        return nn.Conv2d(inputs, outputs, 7, 2, padding=3, bias=False), nn.MaxPool2d(3, 2, padding=1)
    return nn.Conv2d(inputs, outputs, 3, reduction, padding=1, bias=False), nn.Identity()


class _BatchNorm(nn.BatchNorm2d):
    """Batch norm that also takes a batch with one value per channel, as the last of an epoch may be.

    Such a value has no deviation, and torch refuses it: it is normalised by the running statistics, which stay.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise a batch."""
        if not self.training or input.numel() > self.num_features:
            return super().forward(input)
        return functional.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
        )


def _forgiving(network: nn.Module) -> nn.Module:
    """Put our batch norm, fresh, in the place of every one of torch's."""
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.BatchNorm2d:
                setattr(parent, name, _BatchNorm(child.num_features))
    return network
