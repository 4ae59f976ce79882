"""Where a party computes. What it sends is the same from any device."""

import torch

from fedora_vfl.errors import SettingsError


def device_for(name: str, *, origin: str) -> torch.device:
    """Return the device of this name, if this machine has it."""
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if not count:
            reason = "is not available: PyTorch finds no CUDA device on this machine"
            raise SettingsError(f"{origin}: device: {name} {reason}; use `device: cpu`")
        if device.index is not None and device.index >= count:
            raise SettingsError(f"{origin}: device: {name} is not available: there are cuda:0 to cuda:{count - 1}")
    return device
