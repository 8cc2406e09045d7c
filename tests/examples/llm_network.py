"""Networks for tests of the language model, without training."""

import torch

from examples.llm.model import GPT


def network(layers: int = 2) -> GPT:
    """Its logits are far apart, unlike those of a network that has learned little, so that the most
    probable token is the same whatever rounding does; and it writes no single token for ever."""
    torch.manual_seed(1)
    model = GPT(layers, 32, 2, 16)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.2 if name.startswith("embed") else 0.5)
    return model
