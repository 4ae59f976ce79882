"""Random flips and shifts of images, drawn from the shared seed so that all stripes of one image move alike."""

import torch
from torch import Tensor
from torch.nn import functional

from fedora_vfl.sampling.seeds import derive
from protos.fedora.v1.phase_pb2 import Augmentation


def augment(images: Tensor, augmentation: Augmentation, seed: int, step: int) -> Tensor:
    """Flip and shift a batch, N×C×H×W. The draw depends on seed, step and number of samples only."""
    count, _, height, width = images.shape
    generator = torch.Generator().manual_seed(derive(seed, "augmentation", step))
    # Both are always drawn, so that switching one off does not change the other.
    flips = torch.randint(0, 2, (count,), generator=generator, dtype=torch.bool)
    reach = augmentation.shift
    down, right = torch.randint(0, 2 * reach + 1, (2, count), generator=generator)
    if augmentation.flip:
        images = torch.where(flips[:, None, None, None], images.flip(3), images)
    if reach:
        padded = functional.pad(images, (reach, reach, reach, reach))
        lines = (down[:, None] + torch.arange(height))[:, None, :, None]
        columns = (right[:, None] + torch.arange(width))[:, None, None, :]
        samples = torch.arange(count)[:, None, None, None]
        channels = torch.arange(images.shape[1])[None, :, None, None]
        images = padded[samples, channels, lines, columns]
    return images
