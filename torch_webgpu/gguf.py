"""Weights of GGUF files that stay packed on the device.

    tensors = gguf.read("model-Q4_K_M.gguf")
    layer = gguf.Linear(tensors["blk.0.ffn_up.weight"])
    y = layer(x)  # x: float32, float16 or bfloat16

A whole model, whose linear layers and embeddings become packed ones. The package `gguf` knows how
files call the tensors of a model of transformers:

    names = get_tensor_name_map(MODEL_ARCH.QWEN2, layers)  # from gguf
    tensors = gguf.read("qwen2-Q4_K_M.gguf")
    tensors.setdefault("output.weight", tensors["token_embd.weight"])  # tied embeddings
    gguf.load(model, {
        name: tensors[names.get_name(name, try_suffixes=(".weight", ".bias"))]
        for name in model.state_dict()
    })

Files of the architecture LLAMA, which are those of Mistral too, interleave the two halves of each
head's query and key rows, and of their biases. Before `load`, rows get the model's order:

    for layer in range(layers):
        for part, heads in (("q", attention_heads), ("k", key_value_heads)):
            name = f"blk.{layer}.attn_{part}.weight"
            rows = torch.arange(tensors[name].rows)
            order = rows.reshape(heads, -1, 2).transpose(1, 2).flatten()
            tensors[name] = tensors[name].select_rows(order)

Files are read with the package `gguf <https://pypi.org/project/gguf/>`_. Matrices of the types
Q4_0, Q8_0, Q4_K and Q6_K take as many bytes on the device as in the file; the products' kernels
unpack them where they use them. Tensors of these types that are no matrices, and those of all other
quantized types, are read as plain tensors, dequantized on the host.
"""

import itertools
import math
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import _IncompatibleKeys

__all__ = ["TYPES", "Embedding", "Linear", "PackedTensor", "load", "pack", "read"]


@dataclass(frozen=True)
class _Block:
    weights: int
    parts: tuple[int, ...]  # bytes of each part, in the order of `pack`

    @property
    def bytes(self) -> int:
        return sum(self.parts)


_BLOCKS = {
    "Q4_0": _Block(32, (16, 2)),
    "Q8_0": _Block(32, (32, 2)),
    "Q4_K": _Block(256, (128, 12, 4)),
    "Q6_K": _Block(256, (192, 16, 2)),
}

TYPES = tuple(_BLOCKS)
"""The types that have kernels."""

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _check(data: torch.Tensor, type: str, rows: int, columns: int) -> None:
    """Raises what `pack` says."""
    block = _BLOCKS.get(type)
    if block is None:
        raise NotImplementedError(f"GGUF type {type} has no kernels; {', '.join(TYPES)} have")
    if rows < 0 or columns < 0:
        raise ValueError(f"expected sizes of at least 0, got {rows} rows of {columns} weights")
    if columns % block.weights:
        raise ValueError(f"rows of {columns} weights are no whole {type} blocks of {block.weights}")
    size = rows * columns // block.weights * block.bytes
    if data.dtype != torch.uint8 or data.numel() != size:
        raise ValueError(
            f"{rows} rows of {columns} weights are {size} bytes of {type}, got {data.numel()} of "
            f"{data.dtype}"
        )


@dataclass(frozen=True)
class PackedTensor:
    """A packed matrix.

    ``data``: uint8, one dimension: the codes of all blocks, then the scales of parts of blocks,
    then those of blocks, in the order of `pack`. ``type``: one of `TYPES`. ``rows``, ``columns``:
    its sizes in weights; a matrix of a `Linear` has a row for each output.

    Raises NotImplementedError and ValueError as `pack` does.
    """

    data: torch.Tensor
    type: str
    rows: int
    columns: int

    def __post_init__(self) -> None:
        _check(self.data, self.type, self.rows, self.columns)
        if self.data.dim() != 1:
            raise ValueError(f"expected data of one dimension, got sizes {list(self.data.shape)}")

    def to(self, device: torch.device | str) -> "PackedTensor":
        """The matrix on another device. Kernels are webgpu's."""
        return PackedTensor(self.data.to(device), self.type, self.rows, self.columns)

    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """All weights, of sizes (rows, columns), in float32, float16 or bfloat16."""
        result: torch.Tensor = torch.ops.torch_webgpu.gguf_dequantize(
            self.data, self.type, self.rows, self.columns, dtype
        )
        return result

    def select_rows(self, indices: torch.Tensor | Sequence[int]) -> "PackedTensor":
        """The rows of these indices, as ``index_select(0, indices)`` of the weights.

        For files whose rows have another order than the model's. Files of the architecture LLAMA
        interleave the two halves of each head's query and key rows. With ``heads``, which for keys
        is the number of the key-value heads, this is the model's order:

            order = torch.arange(t.rows).reshape(heads, -1, 2).transpose(1, 2).flatten()
            t = t.select_rows(order)
        """
        block = _BLOCKS[self.type]
        blocks = self.columns // block.weights
        parts = self.data.split([self.rows * blocks * size for size in block.parts])
        if not isinstance(indices, torch.Tensor):  # the dtype of none cannot be guessed
            indices = torch.as_tensor(indices, dtype=None if len(indices) else torch.int64)
        indices = indices.to(self.data.device)
        chosen = [
            part.reshape(self.rows, blocks * size).index_select(0, indices).reshape(-1)
            for part, size in zip(parts, block.parts, strict=True)
        ]
        return PackedTensor(torch.cat(chosen), self.type, indices.numel(), self.columns)


def _nibbles(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Codes of 4 bits in their order, two in a byte: all of `low`, then all of `high`."""
    codes = torch.cat([low, high], -1)
    return codes[..., ::2] | (codes[..., 1::2] << 4)


def pack(data: torch.Tensor, type: str, rows: int, columns: int) -> PackedTensor:
    """A matrix from its bytes in a file.

    ``data``: uint8, rows * columns / weights of a block * bytes of a block elements, on any device,
    where the result lies too. In a file, codes lie far from their neighbours and blocks between
    words; here codes follow one another, and equal parts of all blocks do. No byte is added.

    Raises NotImplementedError for a type that is not in `TYPES`, and ValueError for sizes that are
    negative or do not go together.
    """
    _check(data, type, rows, columns)
    block = _BLOCKS[type]
    count = rows * columns // block.weights
    raw = data.reshape(count, block.bytes)
    if type == "Q8_0":
        parts = [raw[:, 2:], raw[:, :2]]
    elif type == "Q4_0":
        codes = raw[:, 2:]
        parts = [_nibbles(codes & 15, codes >> 4), raw[:, :2]]
    elif type == "Q4_K":
        codes = raw[:, 16:].reshape(count, 4, 32)
        parts = [_nibbles(codes & 15, codes >> 4), raw[:, 4:16], raw[:, :4]]
    else:
        low = raw[:, :128].reshape(count, 2, 64)
        high = raw[:, 128:192].reshape(count, 2, 32)
        pairs = torch.cat([(high >> shift) & 3 for shift in (0, 2, 4, 6)], -1)
        bits = pairs[..., ::4]
        for place in (1, 2, 3):
            bits = bits | (pairs[..., place::4] << (2 * place))
        codes = torch.cat(
            [_nibbles(low & 15, low >> 4).reshape(count, 128), bits.reshape(count, 64)], 1
        )
        parts = [codes, raw[:, 192:208], raw[:, 208:]]
    return PackedTensor(torch.cat([part.reshape(-1) for part in parts]), type, rows, columns)


def read(
    path: str | os.PathLike[str], device: torch.device | str = "webgpu"
) -> dict[str, PackedTensor | torch.Tensor]:
    """The tensors of a GGUF file, by name.

    Matrices of the types `TYPES` are `PackedTensor`. Tensors of float and integer types have their
    dtype. All other quantized tensors are dequantized to float32: those of other types, and those
    of one or of three and more dimensions, such as the stacked weights of experts. Sizes are in
    PyTorch's order, the reverse of the file's.

    Raises ImportError without the package `gguf`; OSError if the file cannot be opened; and
    ValueError, with the path, if it is truncated or damaged, has the other byte order (big-endian
    files on common machines), or has tensors whose places are not aligned as the file says, overlap
    or reach over its end.
    """
    import gguf

    result: dict[str, PackedTensor | torch.Tensor] = {}
    for tensor in _checked_tensors(os.fspath(path)):
        kind = tensor.tensor_type
        sizes = [int(size) for size in reversed(tensor.shape)]
        if kind.name in _BLOCKS and len(sizes) == 2:
            data = _on(device, tensor.data.reshape(-1))
            result[tensor.name] = pack(data, kind.name, sizes[0], sizes[1])
        elif kind.name == "BF16":
            bits = _on(device, tensor.data.reshape(-1).view("int16"))
            result[tensor.name] = bits.view(torch.bfloat16).reshape(sizes)
        elif tensor.data.dtype.name == "uint8":
            values = gguf.dequantize(tensor.data, kind)
            result[tensor.name] = _on(device, values).reshape(sizes)
        else:
            result[tensor.name] = _on(device, tensor.data).reshape(sizes)
    return result


def _checked_tensors(path: str) -> list[Any]:
    """The reader's tensors, all of which lie in the file. Nothing of their data is read."""
    import gguf
    import numpy as np

    class Reader(gguf.GGUFReader):  # type: ignore[misc]
        # The library's slices of the file are shorter at its end, and a damaged count of elements
        # that take no bytes would keep it busy for ever.
        def _get(self, offset: Any, dtype: Any, count: Any = 1, *args: Any, **options: Any) -> Any:
            end = int(offset) + int(count) * np.dtype(dtype).itemsize
            if end > len(self.data):
                raise ValueError(f"byte {end} is needed, and it has {len(self.data)}")
            return super()._get(offset, dtype, count, *args, **options)

    try:
        # Sums of damaged sizes may wrap around; they are checked below.
        with np.errstate(over="ignore"):
            reader = Reader(path)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: no GGUF file, or a damaged one: {error}") from error
    if reader.byte_order != "I":
        raise ValueError(
            f"{path}: the file has the other byte order than this machine (big-endian, on a "
            "little-endian one); convert it, for example with the script gguf-convert-endian"
        )
    size, alignment = len(reader.data), int(reader.alignment)
    places = []
    for tensor in reader.tensors:
        # The library computes these in 64 bits; these integers have as many as they need.
        offset = int(tensor.field.parts[-1][0])
        sizes = [int(length) for length in tensor.shape]
        begin = int(reader.data_offset) + offset
        block, block_bytes = gguf.GGML_QUANT_SIZES[tensor.tensor_type]
        end = begin + math.prod(sizes) * block_bytes // block
        if offset % alignment:
            raise ValueError(
                f"{path}: tensor {tensor.name!r} begins at offset {offset}, which is no multiple "
                f"of the file's alignment of {alignment}"
            )
        if end > size:
            raise ValueError(
                f"{path}: tensor {tensor.name!r} lies in bytes {begin} to {end}, but the file has "
                f"{size}"
            )
        if begin < end:
            places.append((begin, end, tensor.name))
    for (_, end, first), (begin, _, second) in itertools.pairwise(sorted(places)):
        if begin < end:
            raise ValueError(f"{path}: tensors {first!r} and {second!r} overlap")
    return list(reader.tensors)


def _on(device: torch.device | str, array: Any) -> torch.Tensor:
    # The file is mapped and read-only: a copy on the host only if the tensor stays there.
    import numpy as np

    return torch.from_numpy(np.array(array)).to(device)


class _Packed(nn.Module):
    """A layer with a packed matrix. It is a buffer: bytes have no gradient. ``kind``: its type.

    A state dict has the bytes, and as ``_extra_state`` the type and the sizes: matrices of several
    types and sizes have equally many bytes. Those of another matrix are refused.
    """

    weight: torch.Tensor

    def __init__(self, weight: PackedTensor) -> None:
        super().__init__()
        self.kind, self.rows, self.columns = weight.type, weight.rows, weight.columns
        self.register_buffer("weight", weight.data)

    def _layout(self) -> str:
        return f"{self.kind} {self.rows} {self.columns}"

    def get_extra_state(self) -> torch.Tensor:
        """The type and the sizes as text in ASCII, uint8: formats of files keep tensors only."""
        return torch.tensor(list(self._layout().encode()), dtype=torch.uint8, device="cpu")

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Raises RuntimeError if the state is one of another type or other sizes."""
        problem = self._difference(state)
        if problem:
            raise RuntimeError(problem)

    def _difference(self, state: torch.Tensor) -> str:
        given = bytes(state.tolist()).decode(errors="replace")
        own = self._layout()
        return "" if given == own else f"the weight is packed as {given}, and the layer's as {own}"

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *others: Any, **options: Any
    ) -> None:
        # Before a byte is copied: a refused state leaves the layer as it was.
        state = state_dict.get(f"{prefix}_extra_state")
        problem = "" if state is None else self._difference(state)
        if problem:
            # The arguments' last is the list of what load_state_dict raises.
            errors = options["error_msgs"] if "error_msgs" in options else others[-1]
            errors.append(f"While loading {prefix}weight: {problem}")
            return
        super()._load_from_state_dict(state_dict, prefix, *others, **options)

    def packed(self) -> PackedTensor:
        """The matrix."""
        return PackedTensor(self.weight, self.kind, self.rows, self.columns)


class Linear(_Packed):
    """``y = x @ weight.T + bias`` with a packed weight of sizes (outputs, inputs).

    ``x``: (..., inputs) in float32, float16 or bfloat16, on the device of the weight. The result
    is (..., outputs) in the same dtype; sums are float32. Gradients reach ``x`` and ``bias``; the
    weight is frozen. ``bias``: a tensor of (outputs) elements, converted to the dtype of ``x``.
    """

    bias: nn.Parameter | None

    def __init__(self, weight: PackedTensor, bias: torch.Tensor | None = None) -> None:
        super().__init__(weight)
        self.bias = None if bias is None else nn.Parameter(bias)

    @property
    def in_features(self) -> int:
        return self.columns

    @property
    def out_features(self) -> int:
        return self.rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        result: torch.Tensor = torch.ops.torch_webgpu.gguf_linear(
            x, self.weight, self.kind, self.rows, bias
        )
        return result

    def extra_repr(self) -> str:
        return f"{self.columns}, {self.rows}, {self.kind}, bias={self.bias is not None}"


class Embedding(_Packed):
    """Rows of a packed matrix of sizes (entries, features).

    ``indices``: int32 or int64 of any sizes. The result is (..., features) in ``dtype``: float32,
    float16 or bfloat16. An index that is out of range is an error at the next synchronization.
    """

    def __init__(self, weight: PackedTensor, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(weight)
        self.dtype = dtype

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.torch_webgpu.gguf_embedding(
            indices, self.weight, self.kind, self.rows, self.columns, self.dtype
        )
        return result

    def extra_repr(self) -> str:
        return f"{self.rows}, {self.columns}, {self.kind}, {self.dtype}"


def load(
    module: nn.Module,
    tensors: Mapping[str, PackedTensor | torch.Tensor],
    strict: bool = True,
    assign: bool = False,
) -> _IncompatibleKeys:
    """Loads packed and plain tensors into a module, by the names of its state dict.

    Each `nn.Linear` and `nn.Embedding` whose weight is given as a `PackedTensor` is replaced by a
    `Linear` or an `Embedding` of it, on the device of the packed tensor. A linear layer keeps its
    bias, an embedding the dtype of its weight; hooks are not kept. Plain tensors, ``strict``,
    ``assign`` and the result are as in ``module.load_state_dict``.

    Rows are taken as they are. Files of the architecture LLAMA interleave the two halves of each
    head's query and key rows: without `PackedTensor.select_rows` such a model computes something
    else, and nothing raises.

    Packed bytes are shared with ``tensors``, not copied: what is loaded into a layer later changes
    the `PackedTensor`, and all layers of it. Two names may have the same packed tensor, as layers
    with tied weights do; each of them has to be given. A layer that has several names is replaced
    at all of them, as soon as one is given. If these are given unlike tensors it has the last in
    the order of the module's state dict, as with ``load_state_dict``.

    Raises RuntimeError, before anything is changed, for a packed tensor of other sizes than the
    weight's, or for a layer of another kind: subclasses of these two may use their weight in a way
    of their own, and packed embeddings have float32, float16 and bfloat16 only. The same for a
    layer with several names of which one is given a packed tensor and another a plain one. For all
    else it raises what ``load_state_dict`` does.
    """
    if not isinstance(tensors, Mapping):
        raise TypeError(f"Expected tensors to be dict-like, got {type(tensors)}.")
    state: OrderedDict[str, Any] = OrderedDict(
        (name, tensor.data if isinstance(tensor, PackedTensor) else tensor)
        for name, tensor in tensors.items()
    )
    if hasattr(tensors, "_metadata"):  # the versions of the layers, which load_state_dict reads
        state._metadata = tensors._metadata  # type: ignore[attr-defined]
    names_of: dict[nn.Module, list[str]] = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        names_of.setdefault(owner, []).append(path)
    layers: dict[nn.Module, Linear | Embedding] = {}
    problems = []
    for name, own in module.state_dict().items():
        tensor = tensors.get(name)
        if not isinstance(tensor, PackedTensor):
            continue
        path, _, parameter = name.rpartition(".")
        old = module.get_submodule(path)
        layer = _packed_layer(old, tensor) if path and parameter == "weight" else None
        if layer is None:
            problems.append(
                f"{name} is packed as {tensor.type}, which replaces an nn.Linear or an "
                f"nn.Embedding within the module by a packed one, and it is in {_described(old)}"
            )
            continue
        sizes = (old.rows, old.columns) if isinstance(old, _Packed) else own.shape
        if tuple(sizes) != (tensor.rows, tensor.columns):
            problems.append(
                f"size mismatch for {name}: copying a param with shape "
                f"{torch.Size((tensor.rows, tensor.columns))} from checkpoint, the shape in "
                f"current model is {torch.Size(sizes)}."
            )
        else:
            layers[old] = layer
    for old, layer in layers.items():
        for path in names_of[old]:
            name = f"{path}.weight"
            if name in tensors and not isinstance(tensors[name], PackedTensor):
                problems.append(f"{name} is plain, and packed by another name of its layer")
            elif name in tensors:
                # A packed matrix is its layer's already: this copies a tensor to itself.
                state[name] = layer.weight
            state.setdefault(f"{path}._extra_state", layer.get_extra_state())
    if problems:
        text = "\n\t".join(
            [f"Error(s) in loading state_dict for {type(module).__name__}:", *problems]
        )
        raise RuntimeError(text)
    for old, layer in layers.items():
        for path in names_of[old]:
            module.set_submodule(path, layer)
    return module.load_state_dict(state, strict=strict, assign=assign)


def _packed_layer(old: nn.Module, weight: PackedTensor) -> Linear | Embedding | None:
    """What takes the layer's place; None if nothing can."""
    layer: Linear | Embedding
    if type(old) is nn.Embedding and not _obstacles(old):
        layer = Embedding(weight, old.weight.dtype)
    elif type(old) is Embedding:
        layer = Embedding(weight, old.dtype)
    elif type(old) is nn.Linear or type(old) is Linear:
        layer = Linear(weight)
        layer.bias = old.bias  # the same parameter, which an optimizer may have
    else:
        return None
    return layer.train(old.training)


def _obstacles(old: nn.Embedding) -> list[str]:
    """What of it a packed embedding cannot have."""
    found = [] if old.max_norm is None else ["max_norm"]  # which would change the weight
    return found if old.weight.dtype in _FLOATS else [*found, f"dtype {old.weight.dtype}"]


def _described(old: nn.Module) -> str:
    name = type(old).__name__
    obstacles = _obstacles(old) if type(old) is nn.Embedding else []
    return f"{name} with {' and '.join(obstacles)}" if obstacles else name


def _fake_linear(
    x: torch.Tensor, weight: torch.Tensor, type: str, rows: int, bias: torch.Tensor | None = None
) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], rows))


def _fake_dequantize(
    weight: torch.Tensor, type: str, rows: int, columns: int, dtype: torch.dtype
) -> torch.Tensor:
    return weight.new_empty((rows, columns), dtype=dtype)


def _fake_embedding(
    indices: torch.Tensor,
    weight: torch.Tensor,
    type: str,
    rows: int,
    columns: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    return weight.new_empty((*indices.shape, columns), dtype=dtype)


torch.library.register_fake("torch_webgpu::gguf_linear", _fake_linear)
torch.library.register_fake("torch_webgpu::gguf_dequantize", _fake_dequantize)
torch.library.register_fake("torch_webgpu::gguf_embedding", _fake_embedding)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, weight, ctx.type, ctx.rows, _ = inputs
    ctx.columns = x.shape[-1]
    ctx.save_for_backward(weight)


def _gradients(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    (weight,) = ctx.saved_tensors
    of_x = of_bias = None
    if ctx.needs_input_grad[0]:
        of_x = gradient @ torch.ops.torch_webgpu.gguf_dequantize(
            weight, ctx.type, ctx.rows, ctx.columns, gradient.dtype
        )
    # The dispatcher passes no trailing argument that has its default: there may be no fifth.
    if any(ctx.needs_input_grad[4:]):
        of_bias = gradient.reshape(-1, ctx.rows).sum(0)
    return of_x, None, None, None, of_bias


torch.library.register_autograd("torch_webgpu::gguf_linear", _gradients, setup_context=_keep)
