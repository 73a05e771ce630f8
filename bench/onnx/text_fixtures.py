"""Writes small text towers, a tokenizer, and what onnxruntime and Hugging Face's tokenizers compute with them: the fixtures
`text*` of the crate gallerist-onnx.

    python bench/onnx/text_fixtures.py crates/gallerist-onnx/fixtures

Needs onnx, onnxruntime, tokenizers and NumPy. The weights are random: a text is near no particular image.
"""

import json
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
import tokenizers
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

folder = pathlib.Path(sys.argv[1]) / "text"
folder.mkdir(exist_ok=True)
random = np.random.default_rng(7)
WIDTH, ROW = 6, 5

# As CLIP's: lower case, byte pairs with an end of word, a token before and one after the text.
tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
# CLIP's expression, with a look-ahead as SentencePiece-like tokenizers have it.
tokenizer.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(r"\p{L}+(?!\p{N})|\p{L}|\p{N}|[^\s\p{L}\p{N}]+"), "removed", invert=True)
corpus = ["a red shoe", "a blue shoe", "a photo of a red bird", "two birds on the water", "a shoe of leather"]
tokenizer.train_from_iterator(corpus * 3, trainers.BpeTrainer(
    vocab_size=60, special_tokens=["<|startoftext|>", "<|endoftext|>", "<unk>"], end_of_word_suffix="</w>", show_progress=False))
begin, end = (tokenizer.token_to_id(f"<|{name}oftext|>") for name in ("start", "end"))
tokenizer.post_processor = processors.TemplateProcessing(
    single="<|startoftext|> $A <|endoftext|>", special_tokens=[("<|startoftext|>", begin), ("<|endoftext|>", end)])
tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
(folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 16, "pad_token": "<|endoftext|>"}) + "\n")
vocabulary = tokenizer.get_vocab_size()


def weights(name, *shape):
    return numpy_helper.from_array(random.normal(scale=0.5, size=shape).astype(np.float32), name)


def save(name, nodes, inputs, outputs, initializers):
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="text_fixtures.py")
    made.ir_version = 8
    onnx.save(made, folder / f"{name}.onnx")


def ints(name, kind, *shape):
    return helper.make_tensor_value_info(name, kind, shape)


def floats(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


node = helper.make_node
# CLIP: any number of texts and 16 tokens, a mask; the token at the first end of the text, which all the padding equals, and
# the sum of the tokens that are not padding; tokens as the first output.
save("clip", [
    node("Gather", ["words", "input_ids"], ["of_words"]),
    node("Add", ["of_words", "places"], ["placed"]),
    node("Tanh", ["placed"], ["last_hidden_state"]),
    node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
    node("Equal", ["input_ids", "end"], ["is_end"]),
    node("Cast", ["is_end"], ["ends"], to=TensorProto.INT32),
    node("ArgMax", ["ends"], ["first_end"], axis=1, keepdims=1),
    node("Equal", ["positions", "first_end"], ["is_first_end"]),
    node("Cast", ["is_first_end"], ["chosen"], to=TensorProto.FLOAT),
    node("Add", ["mask", "chosen"], ["weights_of_tokens"]),
    node("Unsqueeze", ["weights_of_tokens", "two"], ["mask_of_tokens"]),
    node("Mul", ["last_hidden_state", "mask_of_tokens"], ["kept"]),
    node("ReduceSum", ["kept", "one"], ["sums"], keepdims=0),
    node("MatMul", ["sums", "projection"], ["text_embeds"]),
], [ints("input_ids", TensorProto.INT64, "batch", "sequence"), ints("attention_mask", TensorProto.INT64, "batch", "sequence")],
    [floats("last_hidden_state", "batch", "sequence", WIDTH), floats("text_embeds", "batch", ROW)],
    [weights("words", vocabulary, WIDTH), weights("places", 16, WIDTH), weights("projection", WIDTH, ROW),
     numpy_helper.from_array(np.array([end]), "end"), numpy_helper.from_array(np.arange(16)[None], "positions"),
     numpy_helper.from_array(np.array([2]), "two"), numpy_helper.from_array(np.array([1]), "one")])
# SigLIP: exported for two texts of 8 tokens, 32-bit numbers, no mask, so that the padding counts.
save("siglip", [
    node("Gather", ["words", "input_ids"], ["of_words"]),
    node("Add", ["of_words", "places"], ["placed"]),
    node("Tanh", ["placed"], ["active"]),
    node("ReduceMean", ["active"], ["mean"], axes=[1], keepdims=0),
    node("MatMul", ["mean", "projection"], ["pooler_output"]),
], [ints("input_ids", TensorProto.INT32, 2, 8)], [floats("pooler_output", 2, ROW)],
    [weights("words", vocabulary, WIDTH), weights("places", 8, WIDTH), weights("projection", WIDTH, ROW)])

texts = ["a red shoe", "A Photo of TWO birds!", "Ärger 7x", "leather " * 20]
expected = {"tokenizers": tokenizers.__version__, "onnxruntime": onnxruntime.__version__, "towers": {}}
for tower, length, output in [("clip", 16, "text_embeds"), ("siglip", 8, "pooler_output")]:
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length, pad_id=end, pad_token="<|endoftext|>")
    session = onnxruntime.InferenceSession(folder / f"{tower}.onnx", providers=["CPUExecutionProvider"])
    entries = []
    for text in texts:
        encoded = tokenizer.encode(text)
        batch = 1 if tower == "clip" else 2
        given = {"input_ids": np.array([encoded.ids] * batch, np.int64 if tower == "clip" else np.int32)}
        if tower == "clip":
            given["attention_mask"] = np.array([encoded.attention_mask] * batch, np.int64)
        row = session.run([output], given)[0][0]
        entries.append({"text": text, "cut": bool(encoded.overflowing), "row": [float(value) for value in row]})
    expected["towers"][tower] = entries
(folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")
