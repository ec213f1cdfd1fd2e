#!/usr/bin/env python3
"""Prints docs/PERFORMANCE-MODELS.md: mixtures of experts, models that keep a state and embedders, beside installed peers.

The same way as bench/report.py, which has dense models, serving and everything else: both sides in turn within one run, nothing typed by hand, peers
given by the folders of their binaries. What is not given is left out.

  pip install -r bench/requirements.txt
  bench/model_report.py --work /var/tmp/models --peer llama.cpp=/opt/llama.cpp/bin --embedder MINILM_FOLDER --embedder-gguf minilm.gguf
"""
import argparse
import datetime
import os
import pathlib

import report
from report import percent, ratio, table

EXPERTS = [(shape, kind) for shape in ("qwen3-moe-1.4b", "deepseek-v2-1.7b") for kind in ("q8_0", "q4_0", "q4_k")]
STATES = [(shape, "q8_0") for shape in ("qwen3.5-0.5b", "qwen3.5-moe-1.2b", "qwen3-next-1.2b", "granite-4-h-0.7b", "granite-4-h-moe-1.1b", "nemotron-h-0.7b",
                                        "falcon-h1-0.5b", "lfm2-0.7b")]
TURNS = [("qwen3.5-0.5b", "q8_0")]
BATCHES = "8,32"


def passes(args, models, peer):
    """Forward passes of models beside one peer."""
    name, folder, peer_args = peer
    rows, alike = [], ["--one-token"] if name in args.one_token else []
    for shape, kind in models:
        options = ["--model", report.model_file(args, shape, kind), "--threads", args.threads, "--runs", args.runs, "--json", "--batches", BATCHES,
                   "--peer-bench", folder / "llama-bench", *(["--peer-args", peer_args] if peer_args else [])]
        options += ["--peer-batched", folder / "llama-batched-bench", *(["--peer-batched-args", peer_args.replace("-rtr 1", "-rtr")] if peer_args else []), *alike]  # a switch there
        result = report.run(args, "cpu_peer", *options)
        limits = result["limits"]
        for row in result["rows"]:
            ours, theirs, stateful = (row[key] for key in ("shoal_tokens_per_s", "peer_tokens_per_s", "of_limit_with_state"))
            share = percent(row["of_limit"]) + (f" ({percent(stateful)})" if stateful else "")
            rows.append([f"{shape} {kind}", row["what"], f"{ours:.1f}", f"{theirs:.1f}" if theirs else "-", ratio(ours, theirs), share,
                         f"{limits['read_bytes_per_s'] / 1e9:.0f}", result["load_average"]])
    told = " Its program gives all sequences of a batch the same tokens, and so do we here: the rows share their experts." if alike else ""
    return f"\nBeside {name}.{told}\n\n" + table(["model", "what", "shoal tokens/s", "peer", "ratio", "of the limit", "read GB/s", "load"], rows)


def script(args, name, *arguments):
    return report.run(argparse.Namespace(bench=pathlib.Path(__file__).resolve().parent, kept=args.kept), name, *arguments)


def turns(args, folder):
    rows = []
    for shape, kind in TURNS:
        for between in map(int, args.between.split(",")):
            result = script(args, "second_turn.py", "--shoal", args.shoal, "--model", report.model_file(args, shape, kind), "--peer-server", folder / "llama-server",
                            "--threads", args.threads, "--runs", args.turn_runs, "--between", between, "--json")
            ours, peer = result["seconds"]["shoal"], result["seconds"]["peer"]
            for turn, what in (("first", f"first turn of {result['tokens']} tokens"), ("kept", "second turn, with the answer"), ("dropped", "second turn, without the answer")):
                rows.append([f"{shape} {kind}", str(between), what, f"{ours[turn]:.3f}", f"{peer[turn]:.3f}", f"{peer[turn] / ours[turn]:.1f}x"])
    return table(["model", "other chats between", "what", "shoal, s", "peer, s", "peer / shoal"], rows)


def embeddings(args, folder):
    command = ["--shoal", args.shoal, "--model", args.embedder, "--threads", args.threads, "--runs", args.runs, "--json"]
    if args.embedder_gguf:
        command += ["--peer-server", folder / "llama-server", "--peer-model", args.embedder_gguf]
    if args.sentence_transformers:
        command += ["--sentence-transformers", args.sentence_transformers]
    result = script(args, "embeddings.py", *command)
    others = list(result["least_cosine"])
    rows = [[way, f"{by['shoal']:.1f}"] + [f"{by[name]:.1f} ({ratio(by['shoal'], by[name])})" if name in by else "-" for name in others]
            for way, by in result["texts_per_s"].items()]
    least = ", ".join(f"{value:.6f} ({name})" for name, value in result["least_cosine"].items())
    return (table(["texts per second", "shoal", *others], rows) + f"\n{result['texts']} texts, medians of {result['runs']}, load average {result['load_average']:.2f}; least cosine "
            f"between the vectors of both sides: {least}.\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=report.ROOT / "build/release", help="build folder")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder for models of random weights; those there are used again")
    parser.add_argument("--peer", type=report.peer, action="append", required=True, metavar="NAME=FOLDER[:ARGS]", help="the first one is compared with for everything, others for experts")
    parser.add_argument("--one-token", action="append", default=[], metavar="NAME", help="a peer whose llama-batched-bench gives all sequences the same tokens, as ik_llama.cpp's does")
    parser.add_argument("--embedder", type=pathlib.Path, help="folder of a real embedding model")
    parser.add_argument("--embedder-gguf", type=pathlib.Path, help="the same for the peer")
    parser.add_argument("--sentence-transformers", metavar="PYTHON", help="a Python that has them")
    parser.add_argument("--pooling", type=pathlib.Path, action="append", default=[], help="pooling.json of bench/pooling.py with --rates ''; may be repeated")
    parser.add_argument("--kept", type=pathlib.Path, help="file to keep results in, and to go on from")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--turn-runs", type=int, default=1)
    parser.add_argument("--between", default="0", help="other chats between the turns of one, a number or several")
    parser.add_argument("--out", type=pathlib.Path, default=report.ROOT / "docs/PERFORMANCE-MODELS.md")
    args = parser.parse_args()
    args.bench, args.shoal, args.real = args.build / "bench", args.build / "shoal", None
    args.kept = report.Kept(args.kept, args.build)
    folder = args.peer[0][1]
    parts = [
        "# Performance of experts, states and embedders\n",
        f"Printed by `bench/model_report.py` on {datetime.date.today()} at {report.commit()}: {report.machine(args)}. Both sides of a ratio ran in turn within one run, "
        f"medians of {args.runs}; models are random weights of the named shapes (`bench/random_model --list`). The limit of prefill is the int8 multiply-add rate, that of decode the read "
        "bandwidth for the weights of a token (in brackets: for its state as well, read and written): shares are medians of rounds, each with what memory gave right before and after. [PERFORMANCE.md](PERFORMANCE.md) has dense models, serving, loading and pooling.\n",
        "## Experts\n" + "".join(passes(args, EXPERTS, one) for one in args.peer),
        "## Models that keep a state\n" + passes(args, STATES, args.peer[0]),
        f"## The second turn of a long chat\n\nTime to the first token; medians of {args.turn_runs}.\n\n" + turns(args, folder),
        *(["## Switching\n\n" + "\n".join(map(report.pooling, args.pooling))] if args.pooling else []),
        *(["## Embeddings\n\nMiniLM in F32, `/v1/embeddings`; sentence-transformers is called within its own process.\n\n" + embeddings(args, folder)] if args.embedder else []),
        "## Commands\n\n```\n" + "\n".join(report.COMMANDS).replace(str(report.ROOT) + "/", "").replace(str(args.work), "$WORK") + "\n```\n",
    ]
    text = "\n".join(parts)
    for name, peer_folder, _ in args.peer:
        text = text.replace(str(peer_folder), f"$PEERS/{name}")
    for path, called in ((args.embedder_gguf, "$WORK/minilm.gguf"), (args.embedder, "$MINILM"), (args.sentence_transformers, "$PYTHON")):
        text = text.replace(str(path), called) if path else text
    args.out.write_text(text)


if __name__ == "__main__":
    main()
