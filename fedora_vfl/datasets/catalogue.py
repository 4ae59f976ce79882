"""All data sources that come with the software: to import this is to make them known."""

from fedora_vfl.datasets import cifar, images, medical_images, own_files, own_tables, tiny_imagenet
from fedora_vfl.datasets.income import loading as income
from fedora_vfl.datasets.registry import SOURCES, DataSource

__all__ = [
    "SOURCES",
    "DataSource",
    "cifar",
    "images",
    "income",
    "medical_images",
    "own_files",
    "own_tables",
    "tiny_imagenet",
]
