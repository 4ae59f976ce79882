"""ResNet and DenseNet of any width, made of torchvision's parts, for stripes of small images."""

from collections import OrderedDict
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

SMALL, MEDIUM = 40, 80  # pixels of the longer side, up to which a stem keeps or halves the image
Size = tuple[int, int]  # height and width


def residual(block: Any, stages: tuple[int, ...], width: int, channels: int, size: Size, embedding: int) -> nn.Module:
    """Return a residual network: a stem, stages of blocks, the mean of every channel, one linear layer."""
    convolution, pool = _stem(channels, width, _reduction(size))
    # Names are torchvision's, so that a state dict reads like one of its own.
    parts: dict[str, nn.Module] = {"conv1": convolution, "bn1": nn.BatchNorm2d(width), "relu": nn.ReLU()}
    parts["maxpool"] = pool
    inputs = width
    for number, count in enumerate(stages):
        planes = width << number
        parts[f"layer{number + 1}"] = _stage(block, inputs, planes, count, stride=2 if number else 1)
        inputs = planes * block.expansion
    parts |= {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(inputs, embedding)}
    network = nn.Sequential(OrderedDict(parts))
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return _forgiving(network)


def dense(kind: Any, blocks: tuple[int, ...], width: int, channels: int, size: Size, embedding: int) -> nn.Module:
    """Return torchvision's DenseNet with a stem for images of this size."""
    network: nn.Module = kind(width // 2, blocks, width, num_classes=embedding)
    features: Any = network.features
    reduction = _reduction(size)
    features.conv0, features.pool0 = _stem(channels, width, reduction)
    nn.init.kaiming_normal_(features.conv0.weight)
    height, breadth = (-(-side // reduction) for side in size)  # rounded up
    for number in range(1, len(blocks)):
        # Torchvision halves both sides, which a side of one pixel cannot bear.
        pool = (2 if height > 1 else 1, 2 if breadth > 1 else 1)
        features.get_submodule(f"transition{number}").pool = nn.AvgPool2d(pool)
        height, breadth = height // pool[0], breadth // pool[1]
    return _forgiving(network)


def _stage(block: Any, inputs: int, planes: int, count: int, *, stride: int) -> nn.Sequential:
    """Return the blocks of one stage; the first brings the shortcut to the stage's size and channels."""
    outputs = planes * block.expansion
    shortcut = None
    if stride != 1 or inputs != outputs:
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
    return nn.Sequential(block(inputs, planes, stride, shortcut), *(block(outputs, planes) for _ in range(count - 1)))


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
