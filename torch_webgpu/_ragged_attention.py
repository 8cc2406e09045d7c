"""Attention of sequences of different lengths, which PyTorch writes with kernels of CUDA alone:
`torch.nn.attention.varlen`, and jagged nested tensors with ``is_causal=True``.

The sequences are padded to the longest for `scaled_dot_product_attention`, whose kernel needs no
memory for scores. So the lengths are not read by the host.
"""

import inspect
import types
from typing import Any

import torch
from torch.nn import functional

from torch_webgpu import _torch_versions
from torch_webgpu.integrations import _patching

Tensor = torch.Tensor


def adapt_sdpa(sdpa: types.ModuleType) -> None:
    """`is_causal=True` of jagged tensors, whose queries and keys have the same lengths."""

    def make(attend: Any) -> Any:
        signature = inspect.signature(attend)

        def attend_causally(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            named = given.arguments
            if not named["is_causal"] or not _is_simple(named):
                return attend(*args, **kwargs)
            query = named["query"]
            q, k, v = (named[name].transpose(1, 2) for name in ("query", "key", "value"))
            begins, longest = q.offsets(), q._get_max_seqlen()
            out = _attention(
                q.values(),
                k.values(),
                v.values(),
                begins,
                begins,
                longest,
                longest,
                window=(-1, 0),
                dropout_p=named["dropout_p"],
                scale=named["scale"],
                enable_gqa=named.get("enable_gqa", False),
            )
            view = torch.nested._internal.nested_tensor.nested_view_from_values_offsets_lengths
            limits = {"min_seqlen": query._maybe_min_seqlen, "max_seqlen": query._maybe_max_seqlen}
            return view(out, begins, None, **limits).transpose(1, 2)

        return attend_causally

    _patching.replace(sdpa, "jagged_scaled_dot_product_attention", make)


def _is_simple(named: dict[str, Any]) -> bool:
    """Whether the tensors are of shape (batch, heads, lengths, width), without gaps, and of equal
    lengths."""
    tensors = [named[name] for name in ("query", "key", "value")]
    nested = torch.nested._internal.nested_tensor.NestedTensor
    return named["attn_mask"] is None and all(
        isinstance(x, nested)
        and x.device.type == "webgpu"
        and x.dim() == 4
        and x._ragged_idx == 2
        and x.lengths() is None
        and x.offsets() is tensors[0].offsets()
        for x in tensors
    )


def adapt_varlen(varlen: types.ModuleType) -> None:
    """`varlen_attn`, with windows, groups of heads and gradients, and `varlen_attn_out`."""
    signature = inspect.signature(varlen.varlen_attn)

    def make(attend: Any) -> Any:
        def varlen_attn(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            if given.arguments["query"].device.type != "webgpu":
                return attend(*args, **kwargs)
            named = dict(given.arguments)
            return _varlen(**_torch_versions.without_new_arguments(named, attend, _varlen))

        return varlen_attn

    def make_out(attend: Any) -> Any:
        def varlen_attn_out(out: Tensor, *args: Any, **kwargs: Any) -> Any:
            if out.device.type != "webgpu":
                return attend(out, *args, **kwargs)
            return out.copy_(varlen.varlen_attn(*args, **kwargs))

        return varlen_attn_out

    _patching.replace(varlen, "varlen_attn", make)
    if _torch_versions.has_varlen_out(varlen):
        _patching.replace(varlen, "varlen_attn_out", make_out)


def _varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    is_causal: bool = False,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,  # of CUDA's kernel: decides nothing but the speed
) -> Tensor:
    aux = return_aux is not None and return_aux.lse
    if aux or block_table is not None or cu_seq_k is None:
        what = "`return_aux`" if aux else "`block_table`, or without `cu_seq_k`,"
        raise NotImplementedError(
            f"torch.nn.attention.varlen.varlen_attn with {what} is not supported on webgpu: "
            f"PyTorch has a kernel for CUDA alone. torch.nn.attention.flex_attention computes both."
        )
    if not enable_gqa and query.size(1) != key.size(1):
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got "
            f"Hq={query.size(1)} and Hkv={key.size(1)}. Try setting enable_gqa=True for GQA."
        )
    return _attention(
        query,
        key,
        value,
        cu_seq_q,
        cu_seq_k,
        max_q,
        max_k,
        window=(-1, 0) if is_causal else (window_size[0], window_size[1]),
        used=seqused_k,
        scale=scale,
        enable_gqa=enable_gqa,
    )


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    begins_q: Tensor,
    begins_k: Tensor,
    longest_q: int,
    longest_k: int,
    *,
    window: tuple[int, int],
    used: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Attention of tensors of (all elements, heads, width), where sequences begin at `begins`.

    `window` counts elements to the left and to the right, -1 for all. The last query of a sequence
    stands at its last key, as for PyTorch's kernel. `used` is how many keys a sequence has.
    """
    places_q, places_k = _places(begins_q, query, longest_q), _places(begins_k, key, longest_k)
    count = begins_q.numel() - 1
    q = _pad(query, places_q, count, longest_q)
    k, v = (_pad(x, places_k, count, longest_k) for x in (key, value))
    if begins_q is begins_k and window == (-1, 0) and used is None:
        # What is added stands behind the elements, where a query does not look.
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, **options)
    else:
        lengths_k = (begins_k.diff() if used is None else used)[:, None, None, None]
        column = torch.arange(longest_k, device=query.device)
        mask = column < lengths_k
        if window != (-1, -1):
            ahead = lengths_k - begins_q.diff()[:, None, None, None]
            row = torch.arange(longest_q, device=query.device)[:, None] + ahead
            left, right = window
            mask = mask & (column >= row - left) if left >= 0 else mask
            mask = mask & (column <= row + right) if right >= 0 else mask
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
    return out.transpose(1, 2).flatten(0, 1).index_select(0, places_q)


def _places(begins: Tensor, elements: Tensor, longest: int) -> Tensor:
    """Where each element is among the padded ones."""
    numbers = torch.arange(elements.size(0), device=elements.device)
    sequence = torch.bucketize(numbers, begins[1:].to(torch.int64), right=True)
    return numbers - begins.to(torch.int64)[sequence] + longest * sequence


def _pad(elements: Tensor, places: Tensor, count: int, longest: int) -> Tensor:
    """The padded sequences: (sequences, heads, longest, width)."""
    rows = elements.new_zeros(count * longest, *elements.shape[1:])
    return rows.index_copy(0, places, elements).unflatten(0, (count, longest)).transpose(1, 2)
