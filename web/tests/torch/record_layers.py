"""Records what layers of torch.nn compute, with their gradients: web/tests/files/torch/layers.pt.

A row has the name of a layer, its arguments (a last dict is the options of TypeScript), and the
shapes of its inputs.
"""

import operator
import pathlib
import warnings

import torch

OUT = pathlib.Path(__file__).parents[1] / "files" / "torch"
LAYERS = [
    ("LSTM", [3, 4], [(5, 2, 3)]),
    ("LSTM", [3, 4, {"num_layers": 2, "bidirectional": True, "batch_first": True}], [(2, 5, 3)]),
    ("LSTM", [3, 4, {"bias": False}], [(5, 3)]),
    ("GRU", [3, 4], [(5, 2, 3)]),
    ("GRU", [3, 4, {"num_layers": 2, "bidirectional": True}], [(4, 2, 3), (4, 2, 4)]),
    ("GRU", [3, 4, {"batch_first": True}], [(5, 3), (1, 4)]),
    ("RNN", [3, 4, {"nonlinearity": "relu", "num_layers": 2}], [(5, 2, 3)]),
    ("LSTM", [3, 5, {"proj_size": 2, "num_layers": 2, "bidirectional": True}], [(4, 2, 3)]),
    ("LSTM", [3, 5, {"proj_size": 2, "bias": False}], [(4, 2, 3), (1, 2, 2), (1, 2, 5)]),
    ("LSTMCell", [3, 4], [(2, 3)]),
    ("LSTMCell", [3, 4, {"bias": False}], [(3,), (4,), (4,)]),
    ("GRUCell", [3, 4], [(2, 3), (2, 4)]),
    ("RNNCell", [3, 4, {"nonlinearity": "relu"}], [(2, 3)]),
    ("Conv1d", [2, 3, 3, {"padding": 2, "padding_mode": "circular", "stride": 2}], [(2, 2, 5)]),
    ("Conv2d", [2, 3, 3, {"padding": [2, 1], "padding_mode": "reflect"}], [(2, 2, 5, 4)]),
    ("Conv2d", [1, 3, [2, 3], {"padding": "same", "padding_mode": "replicate"}], [(1, 4, 5)]),
    ("Conv3d", [2, 4, [2, 3, 1], {"groups": 2, "stride": [1, 2, 1]}], [(2, 2, 3, 5, 4)]),
    ("Conv3d", [1, 2, 2, {"padding": "same", "padding_mode": "circular"}], [(1, 1, 3, 4, 2)]),
    ("ConvTranspose3d", [2, 3, 2, {"stride": 2, "output_padding": 1}], [(1, 2, 2, 3, 2)]),
    ("MaxPool3d", [2], [(1, 2, 4, 4, 5)]),
    ("AvgPool3d", [[2, 3, 2], 1, 1], [(1, 2, 4, 4, 5)]),
    ("AdaptiveAvgPool3d", [[2, 1, 3]], [(1, 2, 4, 4, 5)]),
    ("AdaptiveMaxPool3d", [2], [(2, 3, 4, 5)]),
    ("BatchNorm3d", [2], [(2, 2, 3, 2, 2)]),
    ("InstanceNorm3d", [2, {"affine": True}], [(2, 2, 3, 2, 2)]),
    ("ConstantPad1d", [[1, 2], 3.5], [(2, 2, 4)]),
    ("ZeroPad2d", [1], [(2, 2, 3, 4)]),
    ("ReflectionPad1d", [3], [(2, 2, 4)]),
    ("ReflectionPad3d", [1], [(1, 1, 2, 3, 2)]),
    ("ReplicationPad2d", [[0, 3, 2, 1]], [(2, 3, 4)]),
    ("CircularPad2d", [[2, 1, 0, 3]], [(2, 2, 3, 4)]),
    ("Upsample", [{"scale_factor": 2}], [(1, 2, 3, 4)]),
    ("Upsample", [{"size": [5, 3], "mode": "bilinear"}], [(1, 2, 3, 4)]),
    (
        "Upsample",
        [{"scale_factor": 1.5, "mode": "bilinear", "align_corners": True}],
        [(1, 2, 4, 4)],
    ),
    (
        "Upsample",
        [{"scale_factor": 1.7, "mode": "trilinear", "recompute_scale_factor": True}],
        [(1, 1, 3, 2, 4)],
    ),
    ("UpsamplingNearest2d", [{"scale_factor": 3}], [(1, 2, 3, 4)]),
    ("UpsamplingBilinear2d", [{"size": [7, 5]}], [(1, 2, 3, 4)]),
    ("ConvTranspose1d", [2, 3, 3, {"stride": 2, "padding": 1, "output_padding": 1}], [(2, 2, 5)]),
    ("Conv1d", [2, 4, 4, {"padding": "same", "dilation": 3, "groups": 2}], [(2, 2, 12)]),
    ("Conv2d", [2, 3, [2, 3], {"padding": "same"}], [(2, 2, 5, 4)]),
    ("Conv2d", [2, 3, 3, {"padding": "valid", "stride": 2}], [(2, 2, 7, 6)]),
    ("MaxPool1d", [3, 2, 1], [(2, 2, 9)]),
    ("AvgPool1d", [3, 2, 1], [(2, 2, 9)]),
    ("AdaptiveAvgPool1d", [4], [(2, 3, 10)]),
    ("AdaptiveMaxPool1d", [4], [(2, 3, 10)]),
    ("AdaptiveMaxPool2d", [[3, 2]], [(2, 3, 7, 5)]),
    ("PReLU", [], [(2, 3, 4)]),
    ("PReLU", [{"num_parameters": 3, "init": 0.5}], [(2, 3, 4)]),
    ("GLU", [1], [(2, 6, 3)]),
    ("InstanceNorm1d", [3], [(2, 3, 5)]),
    ("InstanceNorm1d", [3, {"affine": True}], [(3, 5)]),
    ("InstanceNorm2d", [3, {"affine": True, "track_running_stats": True}], [(2, 3, 4, 5)]),
    ("BatchNorm1d", [3, {"affine": False, "momentum": 0.5}], [(4, 3)]),
    ("GroupNorm", [2, 4, {"affine": False}], [(2, 4, 3)]),
    ("KLDivLoss", [{"reduction": "batchmean", "log_target": True}], [(4, 3), (4, 3)]),
    ("TripletMarginLoss", [{"swap": True}], [(4, 3), (4, 3), (4, 3)]),
    ("Unflatten", [1, [2, 3]], [(2, 6)]),
    *(
        (name, [], [(3, 4)])
        for name in ("CELU", "Hardtanh", "LogSigmoid", "Softsign", "Tanhshrink")
    ),
    *((name, [], [(3, 4)]) for name in ("Hardshrink", "Softshrink")),
    ("Threshold", [0.25, -1.5], [(3, 4)]),
    ("Softmin", [1], [(3, 4)]),
]

LAYERS += [
    ("Bilinear", [3, 4, 2], [(5, 3), (5, 4)]),
    ("ChannelShuffle", [2], [(2, 4, 3)]),
    ("CosineSimilarity", [1], [(3, 4), (3, 4)]),
    ("PairwiseDistance", [2, 1e-6, True], [(3, 4), (3, 4)]),
    ("PixelShuffle", [2], [(1, 8, 2, 3)]),
    ("PixelUnshuffle", [2], [(2, 4, 6)]),
    ("LocalResponseNorm", [2], [(2, 5, 3, 2)]),
    ("LPPool1d", [2, 2], [(1, 2, 6)]),
    ("LPPool2d", [2, [3, 2], 1], [(1, 2, 4, 5)]),
    ("Fold", [[4, 5], [2, 3]], [(1, 12, 9)]),
    ("Unfold", [[2, 3], 1, 1, 2], [(1, 2, 4, 5)]),
    ("Softmax2d", [], [(2, 3, 2, 2)]),
    ("TripletMarginWithDistanceLoss", [{"swap": True}], [(4, 3), (4, 3), (4, 3)]),
]

TRANSFORMER = {"dim_feedforward": 16, "dropout": 0.0, "batch_first": True}
LAYERS += [
    ("TransformerEncoderLayer", [8, 2, TRANSFORMER], [(2, 5, 8)]),
    (
        "TransformerEncoderLayer",
        [8, 4, {**TRANSFORMER, "norm_first": True, "activation": "gelu", "bias": False}],
        [(2, 5, 8)],
    ),
    ("TransformerDecoderLayer", [8, 2, TRANSFORMER], [(2, 5, 8), (2, 4, 8)]),
    (
        "Transformer",
        [
            {
                "d_model": 8,
                "nhead": 2,
                "num_encoder_layers": 2,
                "num_decoder_layers": 1,
                **TRANSFORMER,
            }
        ],
        [(2, 5, 8), (2, 4, 8)],
    ),
]

# Functions without samples in op_db, or with large ones: a name, the shapes of its tensors, and
# what follows them.
CALLS = [
    ("kron", [(2, 3), (3, 2)], []),
    ("kron", [(3,), (2, 2)], []),
    ("slice_scatter", [(4, 6), (4, 2)], [1, 1, 5, 2]),
    ("slice_scatter", [(4, 6), (2, 6)], [0, -2]),
    ("matrix_power", [(2, 3, 3)], [5]),
    ("cdist", [(2, 3, 4), (5, 4)], []),
    ("cdist", [(3, 4), (5, 4)], [1]),
    ("unflatten", [(2, 6)], [1, [2, 3]]),
    ("nn.functional.affine_grid", [(2, 2, 3)], [[2, 1, 3, 4], False]),
    ("nn.functional.affine_grid", [(1, 2, 3)], [[1, 1, 2, 2], True]),
    ("nn.functional.lp_pool3d", [(1, 1, 4, 4, 4)], [2, 2]),
    ("Tensor.unfold", [(3, 7)], [1, 3, 2]),
]

EINSUMS = [
    ("bij,bjk", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("i...,i...->...", [(3, 2, 4), (3, 4)]),
    ("...a,b->b...", [(2, 3, 4), (5,)]),
    ("ii->i", [(3, 3)]),
    ("iij->j", [(3, 3, 2)]),
    ("ii", [(3, 3)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("i,i->", [(4,), (4,)]),
    ("a,b,c->cba", [(2,), (3,), (4,)]),
    ("ij,ij->ij", [(1, 3), (2, 3)]),
    ("ij,ij->", [(2, 1), (2, 3)]),
    ("ijk,k->ij", [(2, 3, 4), (1,)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("ij,kl->", [(2, 3), (4, 5)]),
    ("ij,jk->ik", [(2, 0), (0, 3)]),
    ("abc->cab", [(2, 3, 4)]),
    ("Ab,bC->AC", [(2, 3), (3, 4)]),
    ("ba,ca", [(2, 3), (4, 3)]),
    (",ij->ji", [(), (2, 3)]),
]


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for part in value for one in flat(part)]


def einsums():
    result = []
    for equation, shapes in EINSUMS:
        operands = [torch.randn(shape, requires_grad=True) for shape in shapes]
        output = torch.einsum(equation, *operands)
        weight = torch.rand_like(output)
        gradients = torch.autograd.grad(output, operands, weight)
        result.append(
            {
                "equation": equation,
                "operands": [one.detach() for one in operands],
                "output": output.detach(),
                "weight": weight,
                "gradients": list(gradients),
            }
        )
    return result


def calls():
    result = []
    for name, shapes, args in CALLS:
        inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
        output = operator.attrgetter(name)(torch)(*inputs, *args)
        weight = torch.rand_like(output)
        gradients = torch.autograd.grad(output, inputs, weight, materialize_grads=True)
        result.append(
            {
                "name": name,
                "inputs": [one.detach() for one in inputs],
                "args": args,
                "output": output.detach(),
                "weight": weight,
                "gradients": list(gradients),
            }
        )
    return result


def main():
    warnings.filterwarnings("ignore", message="Using padding=.same.")
    warnings.filterwarnings("ignore", message="LSTM with projections")
    torch.manual_seed(0)
    result = []
    for name, args, shapes in LAYERS:
        *plain, last = args or [{}]
        plain, options = (plain, last) if isinstance(last, dict) else (args, {})
        layer = getattr(torch.nn, name)(*plain, **options)
        before = {key: value.clone() for key, value in layer.state_dict().items()}
        inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
        # Both states of an LSTM are one argument.
        states = name.startswith("LSTM") and len(inputs) > 1
        outputs = flat(layer(inputs[0], inputs[1:]) if states else layer(*inputs))
        weights = [torch.rand_like(one) for one in outputs]
        leaves = [*inputs, *layer.parameters()]
        gradients = torch.autograd.grad(outputs, leaves, weights)
        result.append(
            {
                "name": name,
                "args": args,
                "state": before,
                "inputs": [one.detach() for one in inputs],
                "outputs": [one.detach() for one in outputs],
                "weights": weights,
                "gradients": list(gradients),
                "after": layer.state_dict(),
            }
        )
    OUT.mkdir(parents=True, exist_ok=True)
    torch.save({"layers": result, "einsums": einsums(), "calls": calls()}, OUT / "layers.pt")


if __name__ == "__main__":
    main()
