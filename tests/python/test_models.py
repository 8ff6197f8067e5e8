#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether transformers and we mean the same by a model: folders that we export, and folders that it has saved.

    test_models.py BUILD WORK      BUILD: where our programs are, as build/gcc; WORK: a folder, emptied first

Needs torch, transformers and safetensors. Says what it compared; exit status 1 if anything differs, 77 if a package is
not there. Logits are compared in fp32, relative to the largest, all positions and the whole vocabulary.
"""
import json
import os
import shutil
import subprocess
import sys

try:
    import torch
    import transformers
    from safetensors import safe_open
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
except ImportError as error:
    print(f"skip: {error}")
    sys.exit(77)

TOLERANCE = 1e-5
failures = []


def program(name):
    return os.path.join(BUILD, name)


def run(*arguments, fails=False):
    done = subprocess.run(arguments, capture_output=True, text=True, errors="replace")
    if (done.returncode != 0) != fails:
        print(done.stdout, done.stderr)
        sys.exit(f"{' '.join(arguments[:3])}: exit status {done.returncode}")
    return done.stderr if fails else done.stdout


def check(what, good, detail=""):
    print(f"{'same' if good else 'DIFFERENT':9} {what}{': ' if detail else ''}{detail}")
    if not good:
        failures.append(what)


def ours(model, tokens):
    said = run(program("tests/system/tool_logits"), model, *map(str, tokens))
    return torch.tensor([[float(x) for x in line.split()] for line in said.splitlines()])


def theirs(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float()


def compare_logits(what, folder, model, tokens):
    model = model.float().eval()
    left, right = ours(folder, tokens), theirs(model, tokens)
    error = ((left - right).abs().max() / right.abs().max()).item()
    good = left.shape == right.shape and error <= TOLERANCE
    check(what, good, f"logits {tuple(left.shape)}, relative error {error:.2g}")


def some_tokens(vocab, count=40):
    return [(i * i * 7 + 3 * i + 1) % vocab for i in range(count)]


def text_file():
    path = os.path.join(WORK, "text")
    with open(path, "w", encoding="utf-8") as file:
        for i in range(4000):
            file.write(f"{i} squared is {i * i}, and a line more.\n")
    return path


def tokens_file(vocab):
    """A token shard, as FORMATS.md 9 has it."""
    path = os.path.join(WORK, f"tokens-{vocab}")
    tokens = torch.tensor([(i * i + i // 7) % vocab for i in range(60000)], dtype=torch.int32)
    header = torch.zeros(256, dtype=torch.int32)
    header[0], header[1], header[2] = 20240520, 1, len(tokens)
    with open(path, "wb") as file:
        file.write(header.numpy().tobytes())
        file.write(b"".join(token.to_bytes(2, "little") for token in tokens.tolist()))
    return path


# ---- what we export ----

def trained(name, model):
    """A model of ours after a few steps; norms are not all ones any more."""
    spec = os.path.join(WORK, f"{name}.ini")
    with open(spec, "w", encoding="utf-8") as file:
        file.write(f"[run]\nname = {name}\nsteps = 20\n[train]\nbatch = 4\nlr = 3e-3\n[model]\ncontext = 64\n{model}")
    out = os.path.join(WORK, f"{name}-out")
    run(program("diloco-worker"), "train", "--run", spec, "--data", text_file(), "--out", out, "--threads", "1")
    return os.path.join(out, "worker-000000020.safetensors")


def check_bits(what, folder, checkpoint, dtype):
    """Every value is that of the checkpoint, rounded as torch rounds it."""
    source = safe_open(checkpoint, "pt")
    same, count = True, 0
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            continue
        shard = safe_open(os.path.join(folder, name), "pt")
        for key in shard.keys():
            same &= torch.equal(shard.get_tensor(key), source.get_tensor(key).to(dtype))
            count += 1
    check(f"{what}: values of {count} tensors", same and count > 0)


def check_tokenizer(folder):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    texts = ["plain", " two  spaces\tand\r\n", "Grüße, 世界 🌍", "\x00\x01\x7f", "<s> </s> [PAD]", "it's   'quoted'"]
    same = all(tokenizer(text)["input_ids"] == list(text.encode("utf-8")) and
               tokenizer.decode(list(text.encode("utf-8"))) == text for text in texts)
    single = all(tokenizer.convert_tokens_to_ids(tokenizer.convert_ids_to_tokens(i)) == i for i in range(256))
    check(f"{os.path.basename(folder)}: tokens are bytes", same and single and len(tokenizer) == 256)


def check_exports():
    models = {"tied": "width = 64\nlayers = 3\nheads = 4\nkv_heads = 2\n",
              "untied": "width = 96\nlayers = 2\nheads = 6\ntied = no\nrope_theta = 500000\nnorm_eps = 1e-6\n"}
    kinds = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
    for name, model in models.items():
        checkpoint = trained(name, model)
        tokens = list(b"17 squared is 289, and a line more.\n1")
        for kind, dtype in kinds.items():
            for size in ("5GB", "100kB"):
                folder = os.path.join(WORK, f"{name}-{kind}-{size}")
                run(program("dilococtl"), "export", "--format", "hf", "--from", checkpoint, "--dtype", kind,
                    "--shard-size", size, folder)
                what = os.path.basename(folder)
                check_bits(what, folder, checkpoint, dtype)
                model_of = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
                params = folder if kind != "f32" else checkpoint
                compare_logits(f"{what}, opened by transformers", params, model_of, tokens)
        taken = LlamaForCausalLM.from_pretrained(folder, dtype="auto")
        check(f"{what}: its own dtype", taken.dtype == dtype, str(taken.dtype))
        out = taken.float().generate(torch.tensor([tokens]), max_new_tokens=8, do_sample=False, pad_token_id=0)
        check(f"{what}: generates", out.shape[1] == len(tokens) + 8)
        check_tokenizer(folder)


# ---- what transformers has saved ----

def losses(spec, data, *more):
    return run(program("diloco-worker"), "eval", "--data", data, "--run", spec, "--threads", "1", *more).strip()


def check_imports():
    shapes = {"bf16-tied-gqa": (dict(tie_word_embeddings=True, num_key_value_heads=2), torch.bfloat16),
              "bf16-untied": (dict(tie_word_embeddings=False, num_key_value_heads=4, rms_norm_eps=1e-6),
                              torch.bfloat16),
              "f16-untied-gqa": (dict(tie_word_embeddings=False, num_key_value_heads=1), torch.float16),
              "f32-tied": (dict(tie_word_embeddings=True, num_key_value_heads=4), torch.float32)}
    vocab = 1000
    data = tokens_file(vocab)
    for name, (more, dtype) in shapes.items():
        torch.manual_seed(5)
        config = LlamaConfig(vocab_size=vocab, hidden_size=64, intermediate_size=160, num_hidden_layers=3,
                             num_attention_heads=4, max_position_embeddings=128, **more)
        model = LlamaForCausalLM(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.05)
        model = model.to(dtype)
        whole, cut = os.path.join(WORK, f"hf-{name}"), os.path.join(WORK, f"hf-{name}-cut")
        model.save_pretrained(whole)
        model.save_pretrained(cut, max_shard_size="100KB")
        shards = sum(file.endswith(".safetensors") for file in os.listdir(cut))
        check(f"{name}: saved in shards", shards > 1, f"{shards}")
        for folder in (whole, cut): # read anew: .to() has rounded the rotary frequencies, too
            compare_logits(f"{os.path.basename(folder)}, taken in", folder,
                           LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32), some_tokens(vocab))
        specs = []
        for folder in (whole, cut):
            spec = f"{folder}.ini"
            with open(spec, "w", encoding="utf-8") as file:
                file.write(run(program("diloco-worker"), "spec", "--from", folder, "--set", "run.steps=2", "--set",
                               "train.batch=2"))
            specs.append(spec)
        digests = [[line for line in open(spec, encoding="utf-8") if line.startswith("init_digest = ")]
                   for spec in specs]
        check(f"{name}: one digest, whole and in shards", digests[0] == digests[1] and len(digests[0]) == 1)
        by_init, by_cut = losses(specs[0], data), losses(specs[1], data)
        by_params = losses(specs[0], data, "--params", whole)
        check(f"{name}: held-out loss by init and by --params", by_init == by_cut == by_params, by_init)
        out = f"{whole}-out"
        run(program("diloco-worker"), "train", "--run", specs[1], "--data", data, "--out", out, "--threads", "1")
        again = f"{whole}-again"
        checkpoint = os.path.join(out, "worker-000000002.safetensors")
        run(program("dilococtl"), "export", "--format", "hf", "--from", checkpoint,
            again)
        trained_model = LlamaForCausalLM.from_pretrained(again, dtype=torch.float32)
        compare_logits(f"{name}: trained on and exported", again, trained_model, some_tokens(vocab))


def check_refusals():
    source = os.path.join(WORK, "hf-f32-tied")
    changes = {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}, "attention_bias": True, "mlp_bias": True,
               "hidden_act": "gelu", "architectures": ["Qwen2ForCausalLM"]}
    for key, value in changes.items():
        folder = os.path.join(WORK, f"refused-{key}")
        shutil.copytree(source, folder)
        path = os.path.join(folder, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        config[key] = value
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        said = run(program("diloco-worker"), "spec", "--from", folder, fails=True)
        wanted = "Qwen2ForCausalLM" if key == "architectures" else key
        check(f"refused for its {key}", wanted in said, said.strip()[-120:])


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    check_exports()
    check_imports()
    check_refusals()
    print(f"{len(failures)} differences")
    return 1 if failures else 0


if len(sys.argv) != 3:
    sys.exit("usage: test_models.py BUILD WORK")
BUILD, WORK = sys.argv[1:]
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
sys.exit(main())
