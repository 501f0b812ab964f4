"""Makes tiny models with transformers, and what they compute, as reference for Flowgate's own decoder.

    tiny.py golden FOLDER    writes one JSON file for each architecture: configuration, tokens, logits, hidden states, attention
    tiny.py encoders FOLDER  writes one JSON file for each encoder that classifies texts: configuration, tokens, scores of labels
    tiny.py models FOLDER    writes one folder for each architecture, as Hugging Face distributes models, with a reference.json

The weights come from a formula that `src/local/tests/tiny.rs` has too, so that golden files need no weights.
"""

import json
import pathlib
import sys

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

MASK = 0xFFFFFFFF
TOKENS = [3, 11, 7, 7, 19, 0, 23, 5, 11]
PROMPT = 6
DIGITS = 7

# The pattern of Qwen's tokenizers: what Flowgate's regular expressions must divide in the same way.
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEMPLATE = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson }}
        {{- "\\n" }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "assistant" and message.tool_calls %}
        {{- '<|im_start|>assistant\\n' + message.content }}
        {%- for call in message.tool_calls %}
            {{- '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message['role'] + '\\n' + message.content.strip() + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
TEXT = """The agent reads a message, calls a tool and pays the invoice. It's 12:30; the others don't know that 4,096 tokens were read.
Die Rechnung über 1.250,00 € wird fällig.  {"name": "pay", "arguments": {"amount": 12}}\n\n\tnaïve façade"""


def entry(name, index):
    seed = 0x811C9DC5
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x01000193) & MASK
    x = (seed + index * 0x9E3779B9) & MASK
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & MASK
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & MASK
    x ^= x >> 16
    return x / 2**31 - 1.0


def weight(name, shape):
    is_bias, is_vector = name.endswith("bias"), len(shape) == 1
    scale = 0.25 if is_vector else 1.0 if "embed" in name else (3.0 / shape[-1]) ** 0.5
    base = 1.0 if is_vector and not is_bias else 0.0
    count = torch.Size(shape).numel()
    values = [base + scale * entry(name, index) for index in range(count)]
    return torch.tensor(values, dtype=torch.float64).to(torch.float32).reshape(shape)


def configurations(vocabulary, width):
    rotary = {
        "vocab_size": vocabulary, "hidden_size": width, "intermediate_size": width * 2, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    }
    opt = {
        "vocab_size": vocabulary, "hidden_size": width, "word_embed_proj_dim": width, "ffn_dim": width * 2, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 512, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
        "dropout": 0.0,
    }
    llama, qwen3, phi3 = transformers.LlamaConfig, transformers.Qwen3Config, transformers.Phi3Config
    llama3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 16}
    pairs = width // 4 // 2
    long = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 64,
            "short_factor": [1.0 + 0.5 * pair for pair in range(pairs)], "long_factor": [2.0 + pair for pair in range(pairs)]}
    return {
        "llama": llama(**rotary),
        "llama-scaled": llama(**rotary, rope_parameters=llama3, tie_word_embeddings=True),
        "llama-biases": llama(**rotary, attention_bias=True, mlp_bias=True),
        "qwen3": qwen3(**rotary, head_dim=width // 2, tie_word_embeddings=True),
        "phi3": phi3(**rotary, sliding_window=5),
        "phi3-long": phi3(**rotary, rope_parameters=long, original_max_position_embeddings=64),
        "opt": transformers.OPTConfig(**opt),
        "opt-projections": transformers.OPTConfig(**{**opt, "word_embed_proj_dim": width // 2}, do_layer_norm_before=False),
    }


def build(config, kind=transformers.AutoModelForCausalLM):
    model = kind.from_config(config, attn_implementation="eager").to(torch.float32).eval()
    # A tied matrix has the values of its first name, the embedding.
    seen = set()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            seen.add(name)
            parameter.copy_(weight(name, tuple(parameter.shape)))
    return model, {name: list(parameter.shape) for name, parameter in model.named_parameters() if name in seen}


def rounded(tensor):
    return json.loads(json.dumps(tensor.detach().tolist()), parse_float=lambda text: float(f"{float(text):.{DIGITS}g}"))


def golden(folder):
    for name, config in configurations(24, 16).items():
        model, shapes = build(config)
        answer = model(torch.tensor([TOKENS[:-1]]), output_attentions=True, output_hidden_states=True, use_cache=False)
        for attention in answer.attentions:
            attention.retain_grad()
        logprobs = torch.log_softmax(answer.logits[0], dim=-1)
        loss = -sum(logprobs[at - 1, TOKENS[at]] for at in range(PROMPT, len(TOKENS)))
        loss.backward()
        rows = slice(PROMPT - 1, len(TOKENS) - 1)
        content = {
            "transformers": transformers.__version__,
            "config": json.loads(config.to_json_string(use_diff=False)),
            "tensors": shapes,
            "tokens": TOKENS,
            "prompt": PROMPT,
            "logits": rounded(answer.logits[0]),
            "hidden": [rounded(hidden[0, -1]) for hidden in answer.hidden_states],
            "attention": [rounded(attention[0, :, rows]) for attention in answer.attentions],
            "gradients": [rounded(attention.grad[0, :, rows]) for attention in answer.attentions],
        }
        (folder / f"{name}.json").write_text(json.dumps(content) + "\n")


def encoder_configurations(vocabulary, width):
    common = {
        "vocab_size": vocabulary, "hidden_size": width, "intermediate_size": width * 2, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_labels": 3, "bos_token_id": None, "eos_token_id": None, "cls_token_id": None, "sep_token_id": None,
    }
    bert = {**common, "max_position_embeddings": 40, "type_vocab_size": 2, "pad_token_id": 0}
    # The first row of positions is the one after the padding token.
    roberta = {**common, "max_position_embeddings": 42, "type_vocab_size": 1, "pad_token_id": 1}
    # A token attends to two tokens on both sides in the second and third layer.
    modern = {**common, "num_hidden_layers": 4, "max_position_embeddings": 40, "local_attention": 4, "pad_token_id": 2}
    biases = {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "classifier_bias": True}
    return {
        "bert": transformers.BertConfig(**bert),
        "roberta": transformers.RobertaConfig(**roberta),
        "xlm-roberta": transformers.XLMRobertaConfig(**roberta),
        "modernbert": transformers.ModernBertConfig(**modern),
        "modernbert-biases": transformers.ModernBertConfig(**modern, **biases, classifier_pooling="mean", classifier_activation="silu"),
    }


def encoders(folder):
    for name, config in encoder_configurations(24, 16).items():
        model, shapes = build(config, transformers.AutoModelForSequenceClassification)
        texts = [TOKENS, TOKENS[:1], TOKENS * 4]
        with torch.no_grad():
            scores = [model(torch.tensor([text])).logits[0] for text in texts]
        content = {
            "transformers": transformers.__version__,
            "config": json.loads(config.to_json_string(use_diff=False)),
            "tensors": shapes,
            "texts": texts,
            "scores": [rounded(of_text) for of_text in scores],
        }
        (folder / f"{name}.json").write_text(json.dumps(content) + "\n")


def tokenizer():
    tokens = Tokenizer(models.BPE())
    tokens.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(pattern=__import__("tokenizers").Regex(WORDS), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokens.decoder = decoders.ByteLevel()
    marks = ["<s>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=marks, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokens.train_from_iterator([TEXT], trainer)
    tokens.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", tokens.token_to_id("<s>"))])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokens, bos_token="<s>", eos_token="<|im_end|>")
    fast.chat_template = TEMPLATE
    return fast


CALL = {"type": "function", "id": "c1", "function": {"name": "pay", "arguments": {"to": "Ünal <u@example.org>", "amount": 12.5}}}
CHAT = [
    {"role": "system", "content": "You pay invoices. "},
    {"role": "user", "content": "Pay the one of März, it's 12,50 €.\n"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "paid"},
    {"role": "user", "content": "Thanks"},
]
TOOLS = [{"type": "function", "function": {"name": "pay", "description": "Pays.", "parameters": {
    "type": "object", "properties": {"to": {"type": "string"}, "amount": {"type": "number"}}, "required": ["to"]}}}]
PAIRS = [
    ["The agent reads", " a message, calls a tool"],
    ["It's 12:30;\n\n", "the others don't know that 4,096 tokens were read."],
    ["Die Rechnung über 1.250,00 €", " wird fällig.\n\n\tnaïve façade 日本"],
]


def models_of(folder):
    words = tokenizer()
    for name, config in configurations(len(words), 32).items():
        model, _ = build(config)
        if name == "qwen3":
            model = model.to(torch.bfloat16)
        place = folder / name
        model.save_pretrained(place, max_shard_size="30KB" if name == "llama" else "5GB")
        words.save_pretrained(place)
        # As it is on disk: conversion in memory would also round the frequencies of positions.
        model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32, attn_implementation="eager").eval()
        scores = []
        for prompt, continuation in PAIRS:
            before, ids = words(prompt)["input_ids"], words(prompt + continuation)["input_ids"]
            assert ids[: len(before)] == before, "choose a pair whose boundary is one of tokens"
            with torch.no_grad():
                logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0], dim=-1)
            scored = [logprobs[at - 1, ids[at]].item() for at in range(len(before), len(ids))]
            scores.append({"prompt": prompt, "continuation": continuation, "logprobs": scored})
        prompt = words.apply_chat_template(CHAT, tools=TOOLS, add_generation_prompt=True, return_tensors="pt", return_dict=False)
        with torch.no_grad():
            written = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False,
                                     pad_token_id=0, eos_token_id=words.eos_token_id)[0, prompt.shape[1]:].tolist()
        if words.eos_token_id in written:
            written = written[: written.index(words.eos_token_id)]
        chat = {"prompt_tokens": prompt.shape[1], "generated": words.decode(written)}
        (place / "reference.json").write_text(json.dumps({"scores": scores, "chat": chat}) + "\n")
        print(f"{name}: {chat['prompt_tokens']} tokens of prompt, generated {chat['generated']!r}")


if __name__ == "__main__":
    command, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    {"golden": golden, "encoders": encoders, "models": models_of}[command](folder)
