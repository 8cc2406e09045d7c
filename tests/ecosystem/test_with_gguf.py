"""GGUF files: weights that stay packed, against gguf's own dequantization in float64."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from torch_webgpu import gguf as packed

gguf = pytest.importorskip("gguf")

KINDS = packed.TYPES
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
CLOSE = {torch.float32: 4e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
    np.random.seed(0)


def blocks(kind, rows, columns, factor=1.0):
    """The bytes of a matrix as in a file, (rows, bytes), and its values, times a factor."""
    qtype = gguf.GGMLQuantizationType[kind]
    if kind in ("Q4_0", "Q8_0"):
        data = gguf.quantize(np.random.randn(rows, columns).astype(np.float32) * factor, qtype)
    else:  # the package has no quantizer for these: any bytes are weights, if the scales are finite
        size, width = gguf.GGML_QUANT_SIZES[qtype]
        data = np.random.randint(0, 256, (rows * columns // size, width), dtype=np.uint8)
        places = (0, 2) if kind == "Q4_K" else (208,)
        for place in places:
            scale = (factor * np.random.uniform(0.01, 0.1, (len(data), 1))).astype(np.float16)
            data[:, place : place + 2] = scale.view(np.uint8)
        data = data.reshape(rows, -1)
    return data, torch.from_numpy(np.array(gguf.dequantize(data, qtype))).double()


def matrix(kind, rows, columns):
    data, values = blocks(kind, rows, columns)
    return packed.pack(torch.from_numpy(data).webgpu(), kind, rows, columns), values


def close(actual, expected, dtype):
    assert actual.device.type == "webgpu"
    assert actual.dtype == dtype
    assert actual.shape == expected.shape
    error = (actual.cpu().double() - expected).abs().max()
    assert error <= CLOSE[dtype] * expected.abs().max()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_values(kind, dtype):
    weight, values = matrix(kind, 5, 768)
    data, _ = blocks(kind, 5, 768)
    assert weight.data.numel() == data.size  # not a byte more than in the file
    close(weight.dequantize(dtype), values, dtype)
    # The same layout, made on the CPU.
    on_cpu = packed.pack(torch.from_numpy(data), kind, 5, 768)
    assert torch.equal(packed.pack(on_cpu.data.new_tensor(data), kind, 5, 768).data, on_cpu.data)
    assert torch.equal(
        packed.pack(torch.from_numpy(data).webgpu(), kind, 5, 768).data.cpu(), on_cpu.data
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("sizes", [(), (1,), (2, 3), (40,), (100,)], ids=str)
def test_linear(kind, dtype, sizes):
    weight, values = matrix(kind, 35, 1280)
    x, bias = torch.randn(*sizes, 1280).to(dtype), torch.randn(35)
    expected = x.double() @ values.t()
    close(packed.Linear(weight)(x.webgpu()), expected, dtype)
    layer = packed.Linear(weight, bias.webgpu())
    close(layer(x.webgpu()).detach(), expected + bias.to(dtype).double(), dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    weight, values = matrix(kind, 24, 256)
    layer = packed.Linear(weight, torch.randn(24).webgpu())
    x, gradient = torch.randn(2, 3, 256), torch.randn(2, 3, 24)
    ours = x.webgpu().requires_grad_()
    layer(ours).backward(gradient.webgpu())
    close(ours.grad, gradient.double() @ values, torch.float32)
    close(layer.bias.grad, gradient.double().sum((0, 1)), torch.float32)
    # Without a bias.
    alone = x.webgpu().requires_grad_()
    packed.Linear(weight)(alone).backward(gradient.webgpu())
    close(alone.grad, gradient.double() @ values, torch.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_embedding(kind, dtype):
    weight, values = matrix(kind, 11, 512)
    indices = torch.tensor([[3, 0, 10], [3, 3, 9]])
    close(packed.Embedding(weight, dtype)(indices.webgpu()), values[indices], dtype)

    def look_up(index):
        packed.Embedding(weight, dtype)(torch.tensor([index]).webgpu())
        torch.webgpu.synchronize()

    look_up(10)
    with pytest.raises((IndexError, RuntimeError), match="out of range"):
        look_up(11)


def test_a_file(tmp_path):
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    expected = {}
    for kind in KINDS:
        data, values = blocks(kind, 16, 256)
        qtype = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(f"{kind}.weight", data, raw_dtype=qtype)
        expected[f"{kind}.weight"] = values
    plain = {
        "norm": np.random.randn(7).astype(np.float32),
        "half": np.random.randn(3, 5).astype(np.float16),
    }
    for name, value in plain.items():
        writer.add_tensor(name, value)
    other = gguf.quantize(np.random.randn(4, 64).astype(np.float32), gguf.GGMLQuantizationType.Q5_1)
    writer.add_tensor("other", other, raw_dtype=gguf.GGMLQuantizationType.Q5_1)
    brain = gguf.quantize(np.random.randn(2, 6).astype(np.float32), gguf.GGMLQuantizationType.BF16)
    writer.add_tensor("brain", brain, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    tensors = packed.read(path)
    assert tensors.keys() == {*expected, *plain, "other", "brain"}
    x = torch.randn(3, 256)
    for name, values in expected.items():
        assert (tensors[name].rows, tensors[name].columns) == (16, 256)
        result = packed.Linear(tensors[name])(x.webgpu())
        close(result, x.double() @ values.t(), torch.float32)
    for name, value in plain.items():
        assert torch.equal(tensors[name].cpu(), torch.from_numpy(value))
    assert tensors["other"].shape == (4, 64)
    assert tensors["brain"].dtype == torch.bfloat16 and tensors["brain"].shape == (2, 6)
    # Onto the host, and to the device later; a state dict has the bytes.
    layer = packed.Linear(packed.read(path, "cpu")["Q4_K.weight"])
    result = packed.Linear(tensors["Q4_K.weight"])(x.webgpu())
    assert torch.equal(layer.to("webgpu")(x.webgpu()), result)
    again = packed.Linear(tensors["Q4_K.weight"].to("webgpu"))
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again(x.webgpu()), result)


@pytest.mark.parametrize("make", [packed.Linear, packed.Embedding])
def test_states_of_other_matrices(make, tmp_path):
    # These have as many bytes in all of these layouts.
    weight, values = matrix("Q4_0", 4, 512)
    layer = torch.nn.Sequential(make(weight))
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    state = torch.load(tmp_path / "layer.pt", weights_only=True, map_location="webgpu")
    for kind, rows, columns in (("Q4_K", 4, 512), ("Q4_0", 8, 256)):
        other, values = matrix(kind, rows, columns)
        assert other.data.shape == weight.data.shape
        wrong = torch.nn.Sequential(make(other))
        message = f"0.weight: the weight is packed as Q4_0 4 512, and .* {kind} {rows} {columns}"
        for strict in (True, False):
            with pytest.raises(RuntimeError, match=message):
                wrong.load_state_dict(state, strict=strict)
        with pytest.raises(RuntimeError, match="packed as Q4_0 4 512"):
            wrong[0].set_extra_state(state["0._extra_state"])
        close(wrong[0].packed().dequantize(), values, torch.float32)  # as it was
        with pytest.raises(RuntimeError, match=r"Missing key.*_extra_state"):
            wrong.load_state_dict({"0.weight": state["0.weight"]})
    same = torch.nn.Sequential(make(matrix("Q4_0", 4, 512)[0]))
    same.load_state_dict(state)
    assert torch.equal(same[0].weight, weight.data)


def small_file(path, endianess=None):
    """A file of two tensors. The bytes before the data, and all bytes."""
    settings = {} if endianess is None else {"endianess": endianess}
    writer = gguf.GGUFWriter(path, "llama", **settings)
    writer.add_array("numbers", [1.5, 2.5, 3.5])
    data, _ = blocks("Q4_0", 2, 64)
    writer.add_tensor("first", data, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("second", np.arange(24, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def test_a_file_of_the_other_byte_order(tmp_path):
    path = tmp_path / "big.gguf"
    small_file(path, gguf.GGUFEndian.BIG)
    with pytest.raises(ValueError, match=r"big\.gguf: the file has the other byte order"):
        packed.read(path)


def test_damaged_files(tmp_path):
    path = tmp_path / "small.gguf"
    content = small_file(path)
    reader = gguf.GGUFReader(path)
    second, alignment = reader.tensors[1], int(reader.alignment)
    assert packed.read(path, "cpu").keys() == {"first", "second"}

    def refuses(damaged, message=""):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"small\.gguf: .*" + message):
            packed.read(path, "cpu")

    def with_number(place, value):
        return content[:place] + int(value).to_bytes(8, "little") + content[place + 8 :]

    # What follows the last tensor is padding.
    end = second.data_offset + second.n_bytes
    for length in range(1, end):
        refuses(content[:length])
    path.write_bytes(content[:end])
    assert torch.equal(packed.read(path, "cpu")["second"], torch.arange(24.0))

    infos = content.index(b"second") + len(b"second")
    size, offset = infos + 4, infos + 4 + 8 + 4
    assert int.from_bytes(content[size : size + 8], "little") == 24
    refuses(with_number(offset, 4 + alignment), "'second' begins at offset 36, which is no mult")
    refuses(with_number(offset, 0), "tensors '(first|second)' and '(first|second)' overlap")
    refuses(with_number(offset, alignment), "tensors 'first' and 'second' overlap")
    refuses(with_number(offset, 1 << 40))
    refuses(with_number(offset, (1 << 64) - alignment))
    refuses(with_number(size, 25 + 24))
    refuses(with_number(size, 1 << 62))  # as many bytes as 64 bits cannot count
    # A count of an array's elements: as many as would be read for ever.
    count = content.index(b"numbers") + len(b"numbers") + 8
    assert int.from_bytes(content[count : count + 8], "little") == 3
    refuses(with_number(count, 1 << 60))
    with pytest.raises(FileNotFoundError):
        packed.read(tmp_path / "none.gguf")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_in_another_order(kind):
    weight, values = matrix(kind, 7, 512)
    indices = torch.tensor([6, 0, 0, 3])
    chosen = weight.select_rows(indices)
    assert (chosen.type, chosen.rows, chosen.columns) == (kind, 4, 512)
    close(chosen.dequantize(), values[indices], torch.float32)
    # The same bytes as those of a file with these rows.
    assert torch.equal(weight.select_rows(torch.arange(7)).data, weight.data)
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        weight.to("cpu").select_rows(torch.tensor([7]))
    # Lists, and indices that are none.
    assert torch.equal(weight.select_rows([6, 0, 0, 3]).data, chosen.data)
    assert weight.select_rows([]).rows == 0 and weight.select_rows([]).data.numel() == 0
    for wrong in ([0.0, 1.0], [True, False], [[0, 1]]):
        with pytest.raises((IndexError, RuntimeError)):
            weight.select_rows(wrong)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(6, 64)
        self.norm = nn.LayerNorm(64)
        self.layers = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 6, bias=False)])

    def forward(self, indices):
        x = self.norm(self.words(indices))
        for layer in self.layers:
            x = layer(x)
        return x


def test_load():
    model = Words().to("webgpu").eval()
    expected = Words().double().eval()
    bias = model.layers[0].bias
    words, values = matrix("Q4_0", 6, 64)
    first, first_values = matrix("Q8_0", 64, 64)
    plain = {
        "norm.weight": torch.randn(64),
        "norm.bias": torch.randn(64),
        "layers.0.bias": torch.randn(64),
    }
    # Layers with tied weights.
    tensors = {"words.weight": words, "layers.0.weight": first, "layers.1.weight": words, **plain}
    expected.load_state_dict(
        {"words.weight": values, "layers.0.weight": first_values, "layers.1.weight": values} | plain
    )
    assert not any(packed.load(model, tensors))
    assert [type(m) for m in (model.words, *model.layers)] == [
        packed.Embedding,
        *[packed.Linear] * 2,
    ]
    assert model.layers[0].bias is bias and not model.layers[0].training
    assert model.words.weight.data_ptr() == model.layers[1].weight.data_ptr()
    indices = torch.tensor([[3, 0, 5]])
    close(model(indices.webgpu()).detach(), expected(indices).detach(), torch.float32)
    # Again, into packed layers, and as a state dict.
    second, second_values = matrix("Q4_0", 64, 64)
    packed.load(model, {**tensors, "layers.0.weight": second})
    expected.layers[0].weight.data.copy_(second_values)
    close(model(indices.webgpu()).detach(), expected(indices).detach(), torch.float32)
    other = copy.deepcopy(model)
    model.norm.weight.data.zero_()
    model.load_state_dict(other.state_dict())
    close(model(indices.webgpu()).detach(), expected(indices).detach(), torch.float32)


def test_load_of_what_does_not_fit():
    model = Words().to("webgpu")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    words, _ = matrix("Q4_0", 6, 64)
    narrow, _ = matrix("Q4_0", 6, 32)

    def refuses(tensors, message, **options):
        with pytest.raises(RuntimeError, match=message):
            packed.load(model, tensors, **options)

    refuses(
        {"words.weight": words, "layers.1.weight": narrow},
        r"in loading state_dict for Words:\s+size mismatch for layers.1.weight: .*\[6, 32\]\) from "
        r"checkpoint, the shape in current model is torch.Size\(\[6, 64\]\)",
        strict=False,
    )
    refuses({"norm.weight": words}, "norm.weight is packed as Q4_0, .* it is in LayerNorm$")
    refuses({"layers.0.bias": words}, "layers.0.bias is packed as Q4_0")
    with pytest.raises(RuntimeError, match=r"weight is packed as Q4_0, .* within the module"):
        packed.load(nn.Linear(64, 6), {"weight": words})
    model.layers[1] = nn.modules.linear.NonDynamicallyQuantizableLinear(64, 6, bias=False)
    refuses({"layers.1.weight": words}, "it is in NonDynamicallyQuantizableLinear")
    model.words.max_norm = 1.0
    refuses({"words.weight": words}, "it is in Embedding with max_norm$")
    assert type(model.words) is nn.Embedding
    for name, value in before.items():
        if name != "layers.1.weight":
            assert torch.equal(model.state_dict()[name], value)
    # load_state_dict's own.
    model = Words().to("webgpu")
    refuses({"words.weight": words}, r"Missing key\(s\) in state_dict: .*\"layers.0.weight\"")
    refuses({"other.weight": words}, r"Unexpected key\(s\) in state_dict: .*\"other.weight\"")
    refuses({"layers.1": words}, r"Unexpected key\(s\) in state_dict: .*\"layers.1\"")
    refuses({"norm.weight": torch.ones(3)}, "size mismatch for norm.weight", strict=False)
    with pytest.raises(TypeError, match="Expected tensors to be dict-like, got <class 'list'>"):
        packed.load(model, [("words.weight", words)])
    result = packed.load(model, {"words.weight": words, "other": words}, strict=False)
    assert result.unexpected_keys == ["other"] and "words.weight" not in result.missing_keys
    # Packed embeddings have no float64, and the root's own parameter is in no layer within it.
    model = Words().double()
    model.own = nn.Parameter(torch.ones(6, 64))
    refuses({"words.weight": words}, r"it is in Embedding with dtype torch\.float64$")
    refuses({"own": words}, "own is packed as Q4_0, .* it is in Words$")


def test_load_takes_the_versions_of_a_state_dict():
    model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32)).to("webgpu")
    weight, _ = matrix("Q4_0", 32, 64)
    state = model.state_dict()
    del state["1.num_batches_tracked"]  # which only the first version has not
    state["0.weight"] = weight
    with pytest.raises(RuntimeError, match=r"Missing key.*\"1.num_batches_tracked\""):
        packed.load(model, state)
    assert packed.load(model, state, strict=False).missing_keys == ["1.num_batches_tracked"]
    assert not any(packed.load(model, dict(state)))  # of no version: as without the counter


def test_load_of_a_layer_with_several_names():
    def tied():
        first = nn.Linear(64, 64, bias=False)
        return nn.Sequential(first, nn.Linear(64, 64, bias=False), first).to("webgpu")

    shared, values = matrix("Q4_0", 64, 64)
    middle, middle_values = matrix("Q8_0", 64, 64)
    x = torch.randn(3, 64)
    expected = x.double() @ values.t() @ middle_values.t() @ values.t()
    model = tied()
    assert not any(packed.load(model, {"0.weight": shared, "1.weight": middle, "2.weight": shared}))
    assert model[0] is model[2] and model[0].weight is shared.data
    close(model(x.webgpu()), expected, torch.float32)
    # One of the names, as with load_state_dict.
    for name, other in (("0", "2"), ("2", "0")):
        model = tied()
        result = packed.load(model, {f"{name}.weight": shared, "1.weight": middle}, strict=False)
        assert result.missing_keys == [f"{other}.weight"] and not result.unexpected_keys
        assert model[0] is model[2] and type(model[0]) is packed.Linear
        close(model(x.webgpu()), expected, torch.float32)
    # Unlike tensors: the last of the model is taken, and no bytes of the first are changed.
    other, _ = matrix("Q4_0", 64, 64)
    before = other.data.clone()
    for names in (("0", "2"), ("2", "0")):
        model = tied()
        given = {"0": other, "2": shared}
        packed.load(
            model, {"1.weight": middle, **{f"{name}.weight": given[name] for name in names}}
        )
        close(model(x.webgpu()), expected, torch.float32)
        assert torch.equal(other.data, before)
    model = tied()
    with pytest.raises(RuntimeError, match=r"2\.weight is plain, and packed by another name"):
        packed.load(model, {"0.weight": shared, "2.weight": torch.ones(64, 64)}, strict=False)
    assert type(model[0]) is nn.Linear


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_a_language_model(tmp_path, tied):
    """From a file of a small LLaMA, as its programs quantize and name its tensors."""
    transformers = pytest.importorskip("transformers")
    heads, groups, layers = 4, 2, 2
    config = transformers.LlamaConfig(
        vocab_size=96,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        tie_word_embeddings=tied,
    )
    reference = transformers.LlamaForCausalLM(config).eval()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    in_file = {
        name: names.get_name(name, try_suffixes=(".weight",)) for name in reference.state_dict()
    }
    assert None not in in_file.values()
    kinds = {
        "q_proj": "Q4_K",
        "k_proj": "Q4_0",
        "v_proj": "Q6_K",
        "o_proj": "Q8_0",
        "gate_proj": "Q4_0",
        "up_proj": "Q4_K",
        "down_proj": "Q8_0",
        "embed_tokens": "Q4_K",
        "lm_head": "Q6_K",
    }
    # So that all weights are of about the same size.
    factors = {"Q4_0": 0.06, "Q8_0": 0.06, "Q4_K": 0.006, "Q6_K": 0.0015}

    def pairs(name, rows):
        """The model's row of each of the file's: halves of a head's rows become pairs."""
        count = {"q_proj": heads, "k_proj": groups}.get(name)
        order = torch.arange(rows)
        return order if count is None else order.reshape(count, 2, -1).transpose(1, 2).flatten()

    path = tmp_path / "llama.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    state = {}
    for name, value in reference.state_dict().items():
        layer = name.split(".")[-2]
        if tied and layer == "lm_head":  # such files have the embedding only
            state[name] = state["model.embed_tokens.weight"]
            continue
        if value.dim() == 1:
            value = 1 + 0.1 * torch.randn_like(value)
            writer.add_tensor(in_file[name], value.numpy())
        else:
            rows, columns = value.shape
            data, _ = blocks(kinds[layer], rows, columns, factors[kinds[layer]])
            qtype = gguf.GGMLQuantizationType[kinds[layer]]
            value = torch.from_numpy(np.array(gguf.dequantize(data, qtype)))
            writer.add_tensor(in_file[name], data[pairs(layer, rows)], raw_dtype=qtype)
        state[name] = value
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reference.load_state_dict(state)

    # What the module's documentation says.
    tensors = packed.read(path)
    tensors.setdefault("output.weight", tensors["token_embd.weight"])
    for number in range(layers):
        for letter, count in (("q", heads), ("k", groups)):
            name = f"blk.{number}.attn_{letter}.weight"
            rows = torch.arange(tensors[name].rows)
            order = rows.reshape(count, -1, 2).transpose(1, 2).flatten()
            assert torch.equal(order, pairs(f"{letter}_proj", len(rows)).argsort())
            tensors[name] = tensors[name].select_rows(order)
    model = transformers.LlamaForCausalLM(config).eval()
    packed.load(model, {name: tensors[other] for name, other in in_file.items()})
    model = model.to("webgpu")
    replaced = [layer for layer in model.modules() if isinstance(layer, packed.Linear)]
    assert len(replaced) == 7 * layers + 1
    embedding = model.get_input_embeddings()
    assert type(embedding) is packed.Embedding
    shares = embedding.weight.data_ptr() == model.lm_head.weight.data_ptr()
    assert shares == tied
    assert {layer.kind for layer in replaced} == set(KINDS)

    prompt = torch.tensor([[5, 17, 80, 3, 3, 41, 9], [60, 2, 2, 95, 11, 0, 33]])
    mask = torch.ones_like(prompt)
    with torch.no_grad():
        expected = reference(prompt).logits
        actual = model(prompt.webgpu()).logits
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-4 * expected.std())
    settings = {"max_new_tokens": 8, "do_sample": False}
    expected = reference.generate(prompt, attention_mask=mask, **settings)
    actual = model.generate(prompt.webgpu(), attention_mask=mask.webgpu(), **settings)
    assert actual.tolist() == expected.tolist()
    assert tied or len(set(expected[0, 7:].tolist())) > 2  # tied, it repeats one


def test_refusals():
    data, _ = blocks("Q4_0", 2, 64)
    with pytest.raises(NotImplementedError, match="GGUF type Q2_K has no kernels"):
        packed.pack(torch.from_numpy(data), "Q2_K", 2, 64)
    with pytest.raises(ValueError, match="no whole Q4_0 blocks"):
        packed.pack(torch.from_numpy(data), "Q4_0", 2, 65)
    for rows, columns in ((-2, 64), (2, -64), (-2, -64)):
        with pytest.raises(ValueError, match="expected sizes of at least 0"):
            packed.pack(torch.from_numpy(data), "Q4_0", rows, columns)
    with pytest.raises(ValueError, match="are 108 bytes of Q4_0, got 72"):
        packed.pack(torch.from_numpy(data), "Q4_0", 3, 64)
    weight = packed.pack(torch.from_numpy(data).webgpu(), "Q4_0", 2, 64)
    for sizes, message in (
        (("Q9", 2, 64), "GGUF type Q9 has no kernels"),
        (("Q4_0", 3, 64), "3 rows of 64 weights are 108 bytes of Q4_0, got 72"),
        (("Q4_0", 2, 65), "no whole Q4_0 blocks"),
    ):
        with pytest.raises((NotImplementedError, ValueError), match=message):
            packed.PackedTensor(weight.data, *sizes)
    with pytest.raises(ValueError, match=r"one dimension, got sizes \[2, 36\]"):
        packed.PackedTensor(weight.data.reshape(2, 36), "Q4_0", 2, 64)
    layer = packed.Linear(weight)
    with pytest.raises(RuntimeError, match="but weight has 72"):
        layer(torch.randn(1, 128).webgpu())
    with pytest.raises(RuntimeError, match="expected x to be float32, float16 or bfloat16"):
        layer(torch.ones(1, 64, dtype=torch.int32).webgpu())
    with pytest.raises(RuntimeError, match="same device"):
        layer(torch.randn(1, 64))
    with pytest.raises(NotImplementedError, match="no kernels for type 'Q9'"):
        torch.ops.torch_webgpu.gguf_dequantize(weight.data, "Q9", 2, 64, torch.float32)
