#!/usr/bin/env python3
"""Prints docs/PERFORMANCE.md: what the CPU engine does on this machine, beside installed peers and the machine's limits.

Runs the programs of bench/ with --json, which measure both sides in turn within one run, and writes the tables and one
plot. Nothing in the page is typed by hand. Peers are named and given by the folders of their binaries, built for this
machine; each needs llama-bench, and llama-batched-bench and llama-server where it has them. ARGS go to llama-bench.

  pip install -r bench/requirements.txt
  bench/report.py --work /var/tmp/models --peer llama.cpp=/opt/llama.cpp/bin --peer-avx2 other=/opt/other-avx2/bin
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import subprocess
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "shoal"
from matplotlib import pyplot

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = [("llama-1.1b", "q8_0"), ("llama-1.1b", "q4_0"), ("qwen2-0.5b", "q8_0"), ("qwen2-0.5b", "q4_0"), ("llama-0.3b", "f16")]
REAL = ("SmolLM2-135M-Instruct", "q4_1")  # that ./bootstrap serve fetches; measured where it is there
LOADED = ["q8_0", "q4_0", "q4_k", "q6_k", "bf16", "f16"]  # types whose load is measured, in the smallest shape
COMMANDS = []  # as printed at the end of the page


class Kept:
    """What programs have printed, in a file to go on from: a whole report takes half an hour. A line is of the very
    binaries that its command names, the program's own and those of this build that it starts."""

    def __init__(self, path, build):
        self.path, self.build = path, build
        self.hashes, self.printed = {}, {}
        for line in path.read_text().splitlines() if path and path.exists() else []:
            of, command, result = json.loads(line)
            self.printed[of, command] = result

    def key(self, command):
        binaries = [word for word in command if word.startswith(str(self.build) + "/")]
        for binary in set(binaries) - self.hashes.keys():
            self.hashes[binary] = hashlib.sha256(pathlib.Path(binary).read_bytes()).hexdigest()[:16]
        return "+".join(self.hashes[binary] for binary in binaries), " ".join(command)

    def get(self, command):
        return self.printed.get(self.key(command))

    def keep(self, command, result):
        key = self.key(command)
        self.printed[key] = result
        if self.path:
            with self.path.open("a") as file:
                file.write(json.dumps([*key, result]) + "\n")


def run(args, program, *arguments):
    """The JSON that a program of bench/ prints."""
    command = [str(args.bench / program), *map(str, arguments)]
    COMMANDS.append(" ".join(command))
    result = args.kept.get(command)
    if result is None:
        print(">", *command, file=sys.stderr, flush=True)
        result = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
        args.kept.keep(command, result)
    return result


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def ratio(ours, peer):
    return f"{ours / peer:.2f}x" if peer else "-"


def percent(share):
    return f"{100 * share:.0f} %" if share else "-"


def limits_text(limits):
    return (f"read {limits['read_bytes_per_s'] / 1e9:.1f} GB/s, copy {limits['copy_bytes_per_s'] / 1e9:.1f} GB/s, "
            f"int8 {limits['int8_ops_per_s'] / 1e9:.0f} Gop/s ({limits['int8_scaled_ops_per_s'] / 1e9:.0f} with the formats' scales), "
            f"f32 {limits['f32_ops_per_s'] / 1e9:.0f} GFLOP/s")


def model_file(args, shape, kind):
    """The real model, or one of random weights, made at its first use."""
    if (shape, kind) == REAL:
        return args.real
    path = args.work / f"{shape}-{kind}.gguf"
    if not path.exists():
        subprocess.run([args.bench / "random_model", "--shape", shape, "--type", kind, "--out", path], check=True)
    return path


def engine(args, peers, target):
    """Forward pass: one table per peer."""
    text = ""
    for name, folder, peer_args in peers:
        rows, limits = [], None
        for shape, kind in args.models:
            options = ["--model", model_file(args, shape, kind), "--threads", args.threads, "--runs", args.runs, "--json"]
            if folder:
                options += ["--peer-bench", folder / "llama-bench", *(["--peer-args", peer_args] if peer_args else [])]
                if (folder / "llama-batched-bench").exists():
                    options += ["--peer-batched", folder / "llama-batched-bench"]
                else:
                    options += ["--only", "single"]
            if target:
                options += ["--target", target]
            result = run(args, "cpu_peer", *options)
            limits = limits or result["limits"]
            for row in result["rows"]:
                ours, peer = row["shoal_tokens_per_s"], row["peer_tokens_per_s"]
                rows.append([f"{shape} {kind}", row["what"], f"{ours:.1f}", f"{peer:.1f}" if peer else "-", ratio(ours, peer),
                             percent(row["of_limit"]), result["load_average"]])
        text += (f"\nBeside {name}{' built for ' + target if target else ''}; {limits_text(limits)}.\n\n"
                 + table(["model", "what", "shoal tokens/s", "peer", "ratio", "of the limit", "load"], rows))
    return text


def kernels(args, target):
    result = run(args, "kernels", "--threads", args.threads, "--json", *(["--target", target] if target else []))
    rows = [[op["what"], f"{op['seconds'] * 1e6:.0f}", percent(op["share"])] for op in result["ops"]]
    return f"\n{result['kernels']}, {result['threads']} threads; {limits_text(result['limits'])}.\n\n" + table(["operation", "us", "of the limit"], rows)


def serving(args, peers):
    text = ""
    for name, folder, _ in peers:
        if not folder or not (folder / "llama-server").exists():
            continue
        rows = []
        shape, kind = args.served.split(":")
        result = run(args, "server_peer", "--shoal", args.shoal, "--model", model_file(args, shape, kind), "--peer-server",
                     folder / "llama-server", "--threads", args.threads, "--runs", args.serving_runs or args.runs, "--json")
        ours, peer = result["shoal"], result["peer"]
        model = f"{shape} {kind}"
        rows.append([model, "process start to first token, s", f"{ours['first_token_s']:.2f}", f"{peer['first_token_s']:.2f}",
                     ratio(ours["first_token_s"], peer["first_token_s"])])
        for a, b in zip(ours["streams"], peer["streams"]):
            for what, key in (("tokens/s", "output_tokens_per_s"), ("p99 gap, ms", "p99_itl_ms"), ("TTFT p50, ms", "median_ttft_ms")):
                rows.append([model, f"{a['streams']} streams: {what}", f"{a[key]:.1f}", f"{b[key]:.1f}", ratio(a[key], b[key])])
        text += f"\nBeside {name}'s server.\n\n" + table(["model", "what", "shoal", "peer", "ratio"], rows)
    return text


def loading(args):
    rows = []
    for kind in LOADED:
        result = run(args, "load", "--model", model_file(args, "llama-0.3b", kind), "--threads", args.threads, "--json")
        for name, r in result["types"].items():
            rows.append([f"llama-0.3b {kind}", name, f"{r['pack_bytes_per_s'] / 1e9:.1f}", f"{r['copy_bytes_per_s'] / 1e9:.1f}",
                         percent(r["pack_bytes_per_s"] / r["copy_bytes_per_s"])])
    return table(["file", "type", "packing GB/s, read + written", "copy GB/s", "share"], rows)


def quality(args):
    rows = []
    for model in ("tiny-llama", "tiny-qwen3"):
        result = run(args, "quality", "--model", ROOT / "models" / model, "--json")
        rows += [[model, row["name"], f"{row['loss']:.5f}", f"{100 * row['perplexity_change']:+.3f} %"] for row in result["rows"]]
    return table(["model", "variant", "loss, nats per token", "perplexity"], rows)


def growth(args, picture):
    result = run(args, "schedule", "--benchmark_format=json", "--benchmark_repetitions=3", "--benchmark_report_aggregates_only=true")
    series, rows = {}, []
    for one in result["benchmarks"]:
        if one["aggregate_name"] == "median":
            name, count = one["run_name"].split("/")
            series.setdefault(name, []).append((int(count), one["cpu_time"] / 1e3))
    labels = {"EngineStep": "engine, by requests that wait", "RouterRoundTrip": "router, by live requests", "NodeStep": "node, by models"}
    figure, axes = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
    for name, points in series.items():
        points = [p for p in points if p[0] > 0]
        axes.plot(*zip(*points), marker="o", label=labels.get(name, name))
        rows += [[labels.get(name, name), str(n), f"{us:.2f}"] for n, us in points]
    axes.set(xscale="log", yscale="log", xlabel="requests or models", ylabel="us of CPU per step or request")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(picture, metadata={"Date": None})
    return table(["what", "count", "us"], rows)


def pooling(path):
    """What bench/pooling.py wrote: attainment by rate, system by system, and switches on an idle server."""
    result = json.loads(path.read_text())
    mib = [size / 2**20 for size in result["models"].values()]
    text = (f"{len(mib)} models of {min(mib):.0f} to {max(mib):.0f} MiB on memory for {result['budget_models']}; copy {result['copy_bytes_per_second'] / 1e9:.1f} GB/s; "
            f"load average {result['load_average_before'][0]:.2f}.\n\n")
    swaps = [[name, f"{s['away']:.3f}", f"{s['there']:.3f}", f"{s['bytes_per_second'] / 1e9:.1f}" if s["bytes_per_second"] else "-"] for name, s in result["swaps"].items()]
    if swaps:
        text += ("On an idle server, seconds to the first token of a model that is away, and of one that is there:\n\n"
                 + table(["system", "away", "there", "GB/s written by a switch"], swaps) + "\n")
    if not result.get("crossings"):
        return text
    rows = [[name, f"{at['rate']:g}", percent(at["tokens_on_time"]), percent(at["requests_on_time"]), f"{at['ttft_p99']:.2f}", f"{at['switches']:.0f}" if "switches" in at else "-"]
            for name, rates in result["systems"].items() for at in rates]

    def crossing(name, rate):
        measured = [at["rate"] for at in result["systems"][name]]
        where = f"below {measured[0]:g}" if not rate else f"{'at least ' if rate >= measured[-1] else ''}{rate:.2f}"
        return f"{name} {where}/s"

    crossings = "; ".join(crossing(name, rate) for name, rate in result["crossings"].items())
    return (text + f"Poisson arrivals for {result['seconds']:g} s per rate, lengths of `{result['lengths']}` times {result['length_scale']:g}; token k is due at arrival + "
            f"{result['ttft']:g} s + (k - 1) times {result['tbt']:g} s. 90 % of tokens on time up to: {crossings}.\n\n"
            + table(["system", "requests/s", "tokens on time", "requests wholly on time", "TTFT p99, s", "switches"], rows))


def machine(args):
    names = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    kernels_of = run(args, "kernels", "--threads", args.threads, "--json")["kernels"]
    return (f"{names[0] if names else platform.machine()}, {os.cpu_count()} CPUs, kernels for {kernels_of}, "
            f"load average at the end {os.getloadavg()[0]:.2f}")


def commit():
    """Of the sources that were measured; marked where they differ from it."""
    described = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty=, changed", "--exclude=*"], stdout=subprocess.PIPE, text=True)
    return described.stdout.strip() or "unknown"


def peer(text):
    """NAME=FOLDER[:ARGS] of an installed peer."""
    name, _, rest = text.partition("=")
    folder, _, peer_args = rest.partition(":")
    return name, pathlib.Path(folder), peer_args


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="build folder")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder for models of random weights; those there are used again")
    parser.add_argument("--real", type=pathlib.Path, default=ROOT / f"build/models/{REAL[0]}.gguf", help="a real model, measured beside random weights")
    parser.add_argument("--peer", type=peer, action="append", default=[], metavar="NAME=FOLDER[:ARGS]")
    parser.add_argument("--peer-avx2", type=peer, action="append", default=[], metavar="NAME=FOLDER[:ARGS]", help="the same, built without AVX-512")
    parser.add_argument("--kept", type=pathlib.Path, help="file to keep results in, and to go on from")
    parser.add_argument("--pooling", type=pathlib.Path, action="append", default=[], help="pooling.json of bench/pooling.py; may be repeated")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--served", default="llama-1.1b:q8_0", metavar="SHAPE:TYPE", help="the model that the servers serve")
    parser.add_argument("--serving-runs", type=int, help="of the servers, which take long; default: as many as of all")
    parser.add_argument("--quick", action="store_true", help="the first shape in two types only")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/PERFORMANCE.md")
    args = parser.parse_args()
    args.bench, args.shoal = args.build / "bench", args.build / "shoal"
    args.kept = Kept(args.kept, args.build)
    args.models = (MODELS[:2] if args.quick else MODELS) + ([REAL] if args.real.exists() else [])
    args.served = "qwen2-0.5b:q8_0" if args.quick else args.served
    for folder in (args.work, args.out.parent):
        folder.mkdir(parents=True, exist_ok=True)
    picture = args.out.with_suffix(".svg")

    peers = args.peer or [("no peer", None, "")]
    parts = [
        "# Performance\n",
        f"Printed by `bench/report.py` on {datetime.date.today()} at {commit()}: {{machine}}. Both sides of a ratio ran in turn within one run, medians of "
        f"{args.runs}; models are random weights of the named shapes{' and ' + REAL[0] if args.real.exists() else ''}. [KERNELS.md](KERNELS.md) says what bounds what.\n",
        "## Engine\n\nOne forward pass, without a server. The limit of prefill is the multiply-add rate for the products of the layers, "
        "that of decode the read bandwidth for the weights of a token.\n" + engine(args, peers, None),
    ]
    if args.peer_avx2:
        parts.append("## Engine on AVX2\n\nThe same with kernels and peers that do without AVX-512.\n" + engine(args, args.peer_avx2, "AVX2"))
    parts += [
        "## Serving\n\nThe same client asks both servers; prompts of 128 tokens, answers of 64"
        + (f"; medians of {args.serving_runs}" if args.serving_runs else "") + ".\n" + serving(args, args.peer),
        "## Loading\n\nFrom the page cache into panels.\n\n" + loading(args),
        *(["## Pooling\n\nMany models on one device by turns (`bench/pooling.py`). `memory for all`: nothing is switched, what the cores can do at most.\n\n"
           + "\n".join(map(pooling, args.pooling))] if args.pooling else []),
        f"## Growth\n\n![cost of scheduling]({picture.name})\n\n" + growth(args, picture),
        "## Quality\n\nThe bundled models on their own texts, beside the model as stored.\n\n" + quality(args),
        "## Kernels\n" + kernels(args, None) + (kernels(args, "AVX2") if args.peer_avx2 else ""),
        "## Commands\n\n```\n" + "\n".join(COMMANDS).replace(str(ROOT) + "/", "").replace(str(args.work), "$WORK") + "\n```\n",
    ]
    text = "\n".join(parts).replace("{machine}", machine(args))
    for name, folder, _ in args.peer + args.peer_avx2:
        text = text.replace(str(folder), f"$PEERS/{name}")
    args.out.write_text(text)


if __name__ == "__main__":
    main()
