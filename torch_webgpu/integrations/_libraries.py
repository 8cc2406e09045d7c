"""Which module of a library is adapted by which function. Imports none of the libraries.

Read at `import torch`: the modules of this package that do the work are imported only when the
library is.
"""

# For each library the name of its module here, and for each of its modules the function there. The
# function gets the module as soon as that has been executed, before others import from it.
LIBRARIES: dict[str, tuple[str, dict[str, str]]] = {
    "accelerate": (
        "accelerate",
        {
            "accelerate.state": "adapt_state",
            "accelerate.utils.modeling": "adapt_modeling",
            "accelerate.utils.memory": "adapt_memory",
            "accelerate.utils.dataclasses": "adapt_dataclasses",
            "accelerate.checkpointing": "adapt_checkpointing",
            "accelerate.accelerator": "adapt_accelerator",
            "accelerate.commands.launch": "adapt_launch",
            "accelerate.launchers": "adapt_launchers",
        },
    ),
    "transformers": (
        "transformers",
        {
            "transformers.utils.import_utils": "adapt_import_utils",
            "transformers.training_args": "adapt_training_args",
            "transformers.trainer": "adapt_trainer",
            "transformers.pipelines.base": "adapt_pipelines",
            "transformers.quantizers.quantizer_bnb_4bit": "adapt_quantizer",
            "transformers.quantizers.quantizer_bnb_8bit": "adapt_quantizer",
        },
    ),
    "sentence_transformers": (
        "sentence_transformers",
        {
            "sentence_transformers.util.environment": "adapt_environment",
            "sentence_transformers.base.model": "adapt_model",
        },
    ),
    "lightning": (
        "lightning",
        {
            f"{package}.{module}": function
            for pytorch, fabric in (
                ("lightning.pytorch", "lightning.fabric"),
                ("pytorch_lightning", "lightning_fabric"),
            )
            for package, module, function in (
                (pytorch, "trainer.connectors.accelerator_connector", "adapt_trainer_connector"),
                (fabric, "connector", "adapt_fabric_connector"),
                (pytorch, "trainer.setup", "adapt_trainer_setup"),
                (pytorch, "strategies.ddp", "adapt_trainer_ddp"),
                (fabric, "strategies.ddp", "adapt_fabric_ddp"),
                (fabric, "utilities.distributed", "adapt_distributed"),
            )
        },
    ),
    "bitsandbytes": ("bitsandbytes", {"bitsandbytes": "adapt_package"}),
    "torchao": (
        "torchao",
        {
            "torchao.quantization.quantize_.workflows.int4.int4_tile_packed_to_4d_tensor": (
                "adapt_int4_tile_packed"
            ),
            "torchao.quantization.quant_api": "adapt_quant_api",
        },
    ),
    "safetensors": ("safetensors", {"safetensors": "adapt_package"}),
    "ultralytics": (
        "ultralytics",
        {
            "ultralytics.utils.torch_utils": "adapt_torch_utils",
            "ultralytics.engine.trainer": "adapt_trainer",
        },
    ),
}
