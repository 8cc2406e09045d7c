"""sentence-transformers: models without a device."""

import types
from typing import Any

from torch_webgpu.integrations import _choice, _patching


def adapt_environment(environment: types.ModuleType) -> None:
    """`get_device_name`, which SentenceTransformer, CrossEncoder and SparseEncoder ask."""

    def make(get_device_name: Any) -> Any:
        def get_name() -> str:
            name = str(get_device_name())
            if name == "cpu" and _choice.chosen_or_told(
                "sentence_transformers", "sentence_transformers"
            ):
                return str(_choice.device())
            return name

        return get_name

    _patching.replace(environment, "get_device_name", make)
