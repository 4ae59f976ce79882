"""How the values of embeddings and gradients are written: one class for each encoding, found by name or by number."""

import warnings

from fedora_vfl.wire.encodings.base import ENCODINGS, TensorEncoding, encoding_named, encoding_numbered, register
from fedora_vfl.wire.encodings.plain import BFloat16, Float16, Float32
from fedora_vfl.wire.encodings.quantised import Int2, Int3, Int4, Int8
from fedora_vfl.wire.encodings.sparse import RandomTopK, TopK
from protos.fedora.v1.tensor_pb2 import Encoding

__all__ = [
    "ENCODINGS",
    "BFloat16",
    "Float16",
    "Float32",
    "Int2",
    "Int3",
    "Int4",
    "Int8",
    "RandomTopK",
    "TensorEncoding",
    "TopK",
    "encoding_named",
    "encoding_numbered",
    "register",
]

# Received bytes are never written to, which is what torch warns about.
warnings.filterwarnings("ignore", message="The given buffer is not writable", category=UserWarning)

if {one.name.upper(): one.number for one in ENCODINGS.entries} != dict(Encoding.items()[1:]):
    raise ImportError("an encoding of the wire contract is not implemented, or is called otherwise")
