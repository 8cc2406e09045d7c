"""torchao: `Int4WeightOnlyConfig(int4_packing_format="tile_packed_to_4d")`, and products of float8.

The tensor subclasses multiply by `aten::_weight_int4pack_mm` and `aten::_scaled_mm`, which the
device has. Only their making asks for CUDA; here weights on webgpu are quantized without that.
"""

import types
from contextvars import ContextVar
from typing import Any

import torch

from torch_webgpu.integrations import _patching

_INNER_TILES = 8  # of 16 columns, in torchao's layout
_PADDED_COLUMNS = 1024


def adapt_int4_tile_packed(module: types.ModuleType) -> None:
    """`Int4TilePackedTo4dTensor.from_hp` takes weights on the device."""
    subclass = module.Int4TilePackedTo4dTensor
    from_hp = vars(subclass)["from_hp"].__func__

    def convert(
        cls: Any, hp_tensor: torch.Tensor, block_size: list[int], *args: Any, **kw: Any
    ) -> Any:
        if hp_tensor.device.type != "webgpu":
            return from_hp(cls, hp_tensor, block_size, *args, **kw)
        return quantize(cls, hp_tensor, block_size, *args, **kw)

    def quantize(
        cls: Any,
        weight: torch.Tensor,
        block_size: list[int],
        int4_choose_qparams_algorithm: Any = module.Int4ChooseQParamsAlgorithm.TINYGEMM,
        ntile_size: int = 8,
    ) -> Any:
        if weight.dim() != 2 or block_size[0] != 1:
            raise NotImplementedError(
                f"webgpu: int4 weights are matrices in groups along rows, got sizes "
                f"{list(weight.shape)} in blocks of {block_size}"
            )
        algorithms = module.Int4ChooseQParamsAlgorithm
        if int4_choose_qparams_algorithm not in (algorithms.TINYGEMM, algorithms.HQQ):
            raise NotImplementedError(
                f"webgpu: int4 weights are quantized by 'tinygemm' or 'hqq', not by "
                f"{int4_choose_qparams_algorithm}"
            )
        if weight.dtype != torch.bfloat16:
            raise NotImplementedError(
                f"webgpu: torchao's packed int4 weights are made of bfloat16, got {weight.dtype}"
            )
        rows, columns = weight.shape
        padded = torch.nn.functional.pad(
            weight, (0, -columns % _PADDED_COLUMNS, 0, -rows % ntile_size)
        )
        if int4_choose_qparams_algorithm == algorithms.HQQ:
            codes, scale, zero_point, _ = module._choose_qparams_and_quantize_affine_hqq(
                padded,
                nbits=4,
                group_size=block_size[-1],
                axis=1,
                compute_dtype=weight.dtype,
                device=weight.device,
                raw_output=False,  # zero points as the product takes them
            )
            codes = codes.to(torch.int32)
        else:
            scale, zero_point = module._choose_qparams_affine_tinygemm(
                padded,
                mapping_type=module.MappingType.ASYMMETRIC,
                block_size=tuple(block_size),
                target_dtype=torch.int32,
                quant_min=0,
                quant_max=15,
                scale_dtype=weight.dtype,
                zero_point_dtype=weight.dtype,
            )
            codes = module._quantize_affine_tinygemm(
                padded, block_size, scale, zero_point, torch.int32, quant_min=0, quant_max=15
            )
        pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
        packed = torch.ops.aten._convert_weight_to_int4pack(pairs.contiguous(), _INNER_TILES)
        scales = scale.reshape(len(codes), -1)
        zeros = zero_point.reshape(len(codes), -1)
        return cls(
            qdata=packed,
            scale_and_zero=module.pack_tinygemm_scales_and_zeros(scales, zeros, scales.dtype),
            block_size=block_size,
            shape=weight.shape,
            act_pre_scale=None,
        )

    for name in (
        "_choose_qparams_affine_tinygemm",
        "_choose_qparams_and_quantize_affine_hqq",
        "_quantize_affine_tinygemm",
    ):
        getattr(module, name)  # AttributeError where the library has changed
    convert.__doc__ = from_hp.__doc__
    subclass.from_hp = classmethod(convert)


def adapt_quant_api(module: types.ModuleType) -> None:
    """`Float8DynamicActivationFloat8WeightConfig` takes weights on the device.

    Its check of the hardware, which knows CUDA and XPU, is not told which weight it is for.
    """
    kinds = (module.PerRow, module.PerTensor)
    weights: ContextVar[torch.Tensor | None] = ContextVar("weights", default=None)

    def make_quantize(quantize: Any) -> Any:
        def quantize_tensor(weight: torch.Tensor, config: Any) -> Any:
            token = weights.set(weight)
            try:
                return quantize(weight, config)
            finally:
                weights.reset(token)

        return quantize_tensor

    def make_check(check: Any) -> Any:
        def check_support(granularities: Any) -> None:
            weight = weights.get()
            if weight is None or weight.device.type != "webgpu":
                check(granularities)
            elif weight.dim() != 2:
                # The library's convolutions and batches of products have kernels for CUDA only.
                raise NotImplementedError(
                    f"webgpu: float8 weights are matrices, got sizes {list(weight.shape)}"
                )
            elif not any(all(isinstance(g, kind) for g in granularities) for kind in kinds):
                raise NotImplementedError(
                    f"webgpu: float8 matrices have scales per tensor or per row, got "
                    f"{list(granularities)}"
                )

        return check_support

    name = "_float8_dynamic_activation_float8_weight_quantize_tensor"
    _patching.replace(module, name, make_quantize)
    _patching.replace(module, "_check_hardware_support", make_check)
