#!/usr/bin/env python3
"""Prints docs/MODELS.md: every recorded model served by the binary, compared with its recorded reference.

  models_report.py BINARY REFERENCE_DIR > docs/MODELS.md

REFERENCE_DIR holds `reference/<name>/` (Hugging Face folders with reference.json) and `gguf/<arch>-<type>.gguf` with the
.json beside each. The figures are the largest difference of the 20 best log-probabilities from the reference's, over the
range of its logits; the worst of the recorded prompts.
"""
import json
import math
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.error
import urllib.request

HEAD = """# Models

What is served, and how near it comes to the recorded reference. Printed by `tools/models_report.py`; do not edit.

| architecture | served from | notes |
|---|---|---|
| Llama 2, 3, 3.x | HF, GGUF | grouped heads; linear, dynamic, llama3 and YaRN rope; tied and untied heads |
| Mistral | HF, GGUF | sliding window |
| Qwen 2, 2.5 | HF, GGUF | biases of q, k, v |
| Qwen 3 | HF, GGUF | norms of q and k |
| Gemma 2, 3 | HF, GGUF | soft caps, alternating windows, post-norms, two rope bases |
| Gemma 4 (dense, with inputs by layer, with experts) | HF, GGUF | layers of unlike heads, shared keys and values, normed values |
| Phi-3, 3.5, Phi-4-mini | HF, GGUF | fused projections, LongRoPE over a part of the head |
| Seed-OSS, ERNIE 4.5 (dense) | HF, GGUF | as Llama, with other biases; ERNIE turns pairs |
| SmolLM3 | HF, GGUF | every fourth layer knows no positions |
| Ministral 3, Mistral Small 3 | HF, GGUF | YaRN, queries that grow beyond the trained length |
| Granite 3, 4 (dense, attention in every layer) | HF, GGUF | factors of embeddings, scores, residuals and logits |
| Hunyuan (dense) | HF, GGUF | norms of heads that have turned, a stretched rope base |
| GLM-4 (0414) | HF, GGUF | norms around each block, pairs in half of a head turn |
| OLMo 2, 3 | HF, GGUF | norms after each block and over all heads, windows with a rope of their own |
| EXAONE 4 | HF, GGUF | norms after each block; beside windows, full layers know no positions |
| Mixtral, Qwen 2 and 3 with experts, GLM-4.5 | HF, GGUF | softmax or sigmoid routing, shared experts |
| OLMoE, ERNIE 4.5, Hunyuan-A13B and MiniMax M2 with experts | HF, GGUF | as the dense ones beside them; norms over all heads, a part of a head turns |
| gpt-oss | HF, GGUF | sinks, alternating windows, a clamped gate, MXFP4 |
| Llama 4 (text) | HF, GGUF | chunks, layers without positions, weights of experts' inputs |
| MiMo-V2-Flash | HF, GGUF | layers of unlike heads, sinks in those with windows, values narrower than keys |
| Qwen3-Next, Qwen3.5 (dense and with experts) | HF, GGUF | gated delta nets; every fourth layer attends, with gated outputs |
| Granite 4 H, Nemotron-H, Nemotron 3 | HF, GGUF | Mamba 2, with and without experts |
| Falcon-H1 | HF, GGUF | Mamba 2 beside attention in every layer |
| LFM2 (with experts too) | HF, GGUF | short convolutions |
| Kimi Linear | HF, GGUF | delta attention with a decay per channel, latent attention without positions |
| DeepSeek V2, V3, GLM-4.7 Flash | HF, GGUF | latent attention, experts in groups |
| DeepSeek V3.2, GLM-5 | HF, GGUF | latent attention to the tokens that an index chooses |
| Mistral Small 4, LongCat Flash | HF | latent attention; queries that grow; experts that do nothing |
| Command R7B, Command A | HF, GGUF | attention and MLP from one LayerNorm; full layers know no positions |

Weights: F32, F16, BF16, FP8 with block scales (HF); F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL,
IQ4_XS, MXFP4 (GGUF, mixed within a file). Folders with encoders around a language model (Gemma 3 and 4, Mistral Small 3 and 4, Ministral 3,
Llama 4, Qwen3.5) are served as text. `--quantization q8_0|q4_0` quantises the matrices of an unquantised model at load. Anything else is refused by name with the reason;
the rest of the folder is served.
"""

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.load(response)


class Server:
    def __init__(self, binary, folder):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([binary, "serve", str(folder), "--port", str(port)], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)

    def __enter__(self):
        for _ in range(600):
            try:
                with urllib.request.urlopen(self.url + "/readyz", timeout=2) as response:
                    if response.status == 200:
                        with urllib.request.urlopen(self.url + "/v1/models", timeout=10) as models:
                            self.names = {m["id"] for m in json.load(models)["data"]}
                        return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        sys.exit("the server did not become ready")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


def case_error(url, model, case):
    """-> (error over range of the last position's log-probabilities, length of the equal greedy prefix or None)"""
    want = case.get("greedy")
    answer = post(url + "/v1/completions", {
        "model": model, "prompt": case["prompt"], "max_tokens": len(want) if want else 1, "temperature": 0, "logprobs": 20,
        "ignore_eos": True, "return_tokens_as_token_ids": True})
    logprobs = answer["choices"][0]["logprobs"]
    logits = case["last_logits"]
    top = max(logits)
    log_sum = top + math.log(sum(math.exp(x - top) for x in logits))
    span = top - min(logits)
    error = max(abs(v - (logits[int(k.split(":")[1])] - log_sum)) for k, v in logprobs["top_logprobs"][0].items()) / span
    if not want:
        return error, None
    got = [int(t.split(":")[1]) for t in logprobs["tokens"]]
    equal = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), len(want))
    if equal < len(want) and case["greedy_margins"][equal] < 1e-3 * span:
        equal = len(want)  # a tie within the reference's own margin
    return error, equal == len(want)


def rows_of(server, names_and_cases):
    for name, stored, cases, peer in names_and_cases:
        if name not in server.names:
            continue
        results = [case_error(server.url, name, case) for case in cases]
        greedy = [g for _, g in results if g is not None]
        yield name, stored, max(e for e, _ in results), sum(e for e, _ in results) / len(results), greedy, peer


def main():
    binary, root = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    print(HEAD)
    print("## Hugging Face folders\n\n| model | stored as | worst error / range | greedy answers equal |\n|---|---|---|---|")
    with Server(binary, root / "reference") as server:
        found = []
        for folder in sorted((root / "reference").iterdir()):
            reference = json.loads((folder / "reference.json").read_text())
            found.append((folder.name, reference.get("stored_dtype", "?"), reference["cases"], None))
        for name, stored, worst, _, greedy, _ in rows_of(server, found):
            print(f"| {name} | {stored} | {worst:.7f} | {sum(greedy)} of {len(greedy)} |")
        refused = ", ".join(name for name, *_ in found if name not in server.names)
    print()
    if refused:
        print(textwrap.fill(f"Recorded and not served, refused by the name of the architecture: {refused}.", 140, break_on_hyphens=False) + "\n")
    print("## GGUF files\n\nRandom weights, so that quantised activations show; llama.cpp's own error on the same file is the yardstick.\nThe same weights as floats are within 3e-5 of the range in every file. Of ernie45moe-q8_0, kimilinear-q8_0 and deepseekv32-q4_k_m one prompt each\n"
          "has a choice of experts or positions nearer than int8 activations resolve; with the choices of the floats their errors are those of the other prompts.\n")
    print("| file | mean error / range | llama.cpp |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for file in sorted((root / "gguf").glob("*.gguf")):
            os.symlink(file.resolve(), pathlib.Path(folder) / file.name)
            reference = json.loads(file.with_suffix(".json").read_text())
            peer = reference["llama_cpp_error_over_range"]
            found.append((file.stem, "", reference["cases"], sum(peer) / len(peer)))
        with Server(binary, folder) as server:
            for name, _, _, mean, _, peer in rows_of(server, found):
                print(f"| {name} | {mean:.4f} | {peer:.4f} |")


if __name__ == "__main__":
    main()
