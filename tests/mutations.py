#!/usr/bin/env python3
"""Random damage to model folders: `shoal show --check` must end with 0 or 1 and one reason, never otherwise.

  mutations.py BINARY MODEL [MODEL...] [--count 2000] [--seed 1]

MODEL is a Hugging Face folder or a GGUF file. Each round copies one, damages one or two of its files (bits, bytes, cuts,
repetitions, swapped pieces, numbers and brackets in texts, missing files, folders in place of files) and checks it.
Prints the first failure with the seed that repeats it; exit 0 only if there is none.
"""
import argparse
import collections
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

TIME_LIMIT_S = 60
NUMBERS = [b"0", b"-1", b"1", b"2147483647", b"4294967296", b"18446744073709551615", b"1e308", b"-0.5", b"null", b"[]", b'"x"']


def damage_text(data, rng):
    kind = rng.randrange(4)
    numbers = [m.span() for m in re.finditer(rb"-?\d+(\.\d+)?", data)]
    if kind == 0 and numbers:
        begin, end = rng.choice(numbers)
        return data[:begin] + rng.choice(NUMBERS) + data[end:]
    if kind == 1:
        at = rng.randrange(len(data) + 1)
        return data[:at] + rng.choice([b"[" * 5000, b"{", b'"', b"\\u0000", b"\xff", b",", b"{{", b"{%"]) + data[at:]
    lines = data.split(b"\n")
    if kind == 2 and len(lines) > 2:
        del lines[rng.randrange(len(lines))]
        return b"\n".join(lines)
    return damage_bytes(data, rng)


def damage_bytes(data, rng):
    data = bytearray(data)
    kind = rng.randrange(6)
    if not data:
        return bytes([0])
    # Half of the damage goes to the head, where the structure is.
    reach = len(data) if rng.random() < 0.5 else min(len(data), 4096)
    if kind == 0:
        for _ in range(rng.randrange(1, 9)):
            data[rng.randrange(reach)] ^= 1 << rng.randrange(8)
    elif kind == 1:
        at = rng.randrange(reach)
        data[at:at + rng.randrange(1, 17)] = rng.randbytes(rng.randrange(0, 17))
    elif kind == 2:
        del data[rng.randrange(reach):]
    elif kind == 3:
        at = rng.randrange(reach)
        data[at:at] = data[at:at + rng.randrange(1, 4096)]
    elif kind == 4:
        at = rng.randrange(max(1, reach - 8))
        data[at:at + 8] = rng.choice([b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f", (1 << 40).to_bytes(8, "little")])
    else:
        data += rng.randbytes(rng.randrange(1, 64))
    return bytes(data)


def damage(target, rng):
    """Damages `target` (a folder or a file) and says what was done."""
    files = sorted(p for p in target.rglob("*") if p.is_file()) if target.is_dir() else [target]
    done = []
    for _ in range(1 + (rng.random() < 0.3)):
        file = rng.choice(files)
        if not file.is_file():
            continue
        kind = rng.random()
        if kind < 0.04 and target.is_dir():
            file.unlink()
            done.append(f"{file.name} removed")
        elif kind < 0.08 and target.is_dir():
            file.unlink()
            file.mkdir()
            done.append(f"{file.name} made a folder")
        else:
            is_text = file.suffix in (".json", ".jinja")
            file.write_bytes((damage_text if is_text else damage_bytes)(file.read_bytes(), rng))
            done.append(f"{file.name} damaged")
    return ", ".join(done)


def check_one(binary, model, seed):
    """-> (exit code, first line of stderr, what was done, fault or None)"""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="shoal-mutation-") as folder:
        target = pathlib.Path(folder) / model.name
        if model.is_dir():
            shutil.copytree(model, target, ignore=shutil.ignore_patterns("reference*.json"))
        else:
            shutil.copy(model, target)
        done = damage(target, rng)
        try:
            run = subprocess.run([binary, "show", str(target), "--check"], capture_output=True, timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            return None, "", done, f"did not end in {TIME_LIMIT_S} s"
        reason = run.stderr.decode("utf-8", "replace").strip()
        if run.returncode not in (0, 1):
            return run.returncode, reason, done, f"exit {run.returncode}: {reason[-300:]}"
        if run.returncode == 1 and len(reason.splitlines()) != 1:
            return 1, reason, done, f"not one reason: {reason[:300]!r}"
        return run.returncode, reason, done, None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    counts = collections.Counter()
    faults = 0
    for seed in range(args.seed, args.seed + args.count):
        model = args.models[seed % len(args.models)]
        code, _, done, fault = check_one(args.binary, model, seed)
        counts[code] += 1
        if fault:
            faults += 1
            print(f"seed {seed}, {model}: {done}: {fault}\n  repeat: {sys.argv[0]} {args.binary} {model} --seed {seed} --count 1", flush=True)
    print(f"{args.count} mutations: {counts[0]} still sound, {counts[1]} refused with a reason, {faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
