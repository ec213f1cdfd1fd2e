#!/usr/bin/env python3
"""experts.py: what experts in processes of their own cost and give, beside experts within one process, on the same cores.

Everything runs on real processes of this machine and ends by itself. Each line: tokens per second and the gap between tokens (p50, p99) of a few
streams at once. Absolute figures are this machine's; what counts is the ratio to the first line.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
BINARY = pathlib.Path(os.environ.get('SHOAL_BINARY', ROOT / 'build' / 'release' / 'shoal'))
WORDS = 'Count from 1 to 40, then name ten animals and ten cities, and say what each of them is known for.'


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def stream(url, model, tokens, seed):
    """Times of the tokens of one answer, and its text."""
    body = {'model': model, 'prompt': f'{WORDS} ({seed})', 'max_tokens': tokens, 'temperature': 0, 'stream': True, 'ignore_eos': True}
    request = urllib.request.Request(url + '/v1/completions', json.dumps(body).encode(), {'Content-Type': 'application/json'})
    times, text = [], ''
    with urllib.request.urlopen(request, timeout=300) as answer:
        for line in answer:
            if not line.startswith(b'data: {'):
                continue
            event = json.loads(line[6:])
            if 'error' in event:
                raise RuntimeError(event['error'])
            delta = event['choices'][0].get('text') if event['choices'] else None
            if delta:
                times.append(time.monotonic())
                text += delta
    return times, text


def load(url, model, streams, tokens):
    """-> (tokens per second, gap p50, gap p99 in ms, texts)"""
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        results = list(pool.map(lambda seed: stream(url, model, tokens, seed), range(streams)))
    took = time.monotonic() - begun
    gaps = sorted(b - a for times, _ in results for a, b in zip(times, times[1:]))
    count = sum(len(times) for times, _ in results)
    return count / took, statistics.median(gaps) * 1e3, gaps[int(len(gaps) * 0.99)] * 1e3, [text for _, text in results]


@contextlib.contextmanager
def running(*words, ready, cores=None):
    log = tempfile.TemporaryFile('w+')
    pin = ['taskset', '-c', cores] if cores else []
    process = subprocess.Popen([*pin, str(BINARY), *words], stdout=log, stderr=subprocess.STDOUT, env={**os.environ, 'SHOAL_ESTIMATES': 'none', 'SHOAL_DIGESTS': 'none'})
    try:
        until = time.time() + 120
        while not ready():
            if process.poll() is not None or time.time() > until:
                log.seek(0)
                raise RuntimeError(log.read())
            time.sleep(0.02)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


@contextlib.contextmanager
def expert(models, folder, name, *words, cores=None):
    path = f'{folder}/{name}.sock'
    with running('expert', str(models), '--name', name, '--listen', f'unix:{path}', '--log-level', 'warning', *words, ready=lambda: os.path.exists(path), cores=cores) as process:
        yield f'unix:{path}', process


@contextlib.contextmanager
def serving(models, *words, cores=None):
    port = free_port()
    url = f'http://127.0.0.1:{port}'

    def ready():
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(url + '/readyz', timeout=2).status == 200
        return False
    with running('serve', str(models), '--port', str(port), '--preload', 'all', '--log-level', 'warning', *words, ready=ready, cores=cores):
        yield url, port


def listed(port):
    return json.loads(subprocess.run([str(BINARY), 'experts', 'list', '--json', '--port', str(port)], capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--models', default=ROOT / 'models' / 'tiny-qwen3-moe')
    parser.add_argument('--streams', type=int, default=4)
    parser.add_argument('--tokens', type=int, default=96)
    parser.add_argument('--repeats', type=int, default=3)
    parser.add_argument('--variants', type=int, default=100, help='only so many of the ways to have experts elsewhere')
    parser.add_argument('--beside', default=ROOT / 'models' / 'tiny-llama', help='a second model, computed while the first waits for its experts')
    parser.add_argument('--seconds', type=float, default=4, help='of each rate of two models at once')
    parser.add_argument('--only-beside', action='store_true')
    flags = parser.parse_args()
    if flags.only_beside:
        return beside(flags)
    model = pathlib.Path(flags.models).name.removesuffix('.gguf')
    rows = []

    def measure(name, url, port=None):
        load(url, model, 1, 8)  # the first use of everything
        runs = [load(url, model, flags.streams, flags.tokens) for _ in range(flags.repeats)]
        best = sorted(runs, key=lambda run: run[0])[len(runs) // 2]
        extra = ''
        if port:
            servers = listed(port)['data']
            trips = [seen['round_trip_p50_us'] for server in servers for seen in server['seen']]
            extra = f"{max(trips):8.0f} us {sum(s['load']['rows_per_batch'] for s in servers) / len(servers):7.1f} {sum(s['load']['requests_per_batch'] for s in servers) / len(servers):5.2f}"
        rows.append((name, *best[:3], extra, best[3]))
        base = rows[0]
        print(f'{name:44} {best[0]:8.0f} tok/s {best[0] / base[1]:5.2f}x   gap p50 {best[1]:6.2f} p99 {best[2]:7.2f} ms  {extra}', flush=True)
        if best[3] != base[5]:
            print('  the answers are others than those of the first line')

    print(f'{flags.streams} streams of {flags.tokens} tokens, {model}; load average {os.getloadavg()[0]:.1f}; median of {flags.repeats}. Last columns: round trip p50, rows and requests per batch')
    with serving(flags.models, '--threads', '2', cores='0,1') as (url, _):
        measure('here, 2 threads on cores 0 and 1', url)
    with serving(flags.models, '--threads', '1', cores='0') as (url, _):
        measure('here, 1 thread on core 0', url)
    apart = dict(expert_cores='1', serve_cores='0', threads='1')
    shared = dict(expert_cores='0,1', serve_cores='0,1', threads='2')
    variants = [('elsewhere, core 0 + core 1', [], [], apart), ('  one lane', [], ['--expert-lanes', '1'], apart), ('  two lanes', [], ['--expert-lanes', '2'], apart),
                ('  four lanes', [], ['--expert-lanes', '4'], apart), ('elsewhere, both on both cores', [], [], shared), ('  one lane', [], ['--expert-lanes', '1'], shared),
                ('  batch rule greedy', ['--batch-rule', 'greedy'], [], apart), ('  batch rule deadline', ['--batch-rule', 'deadline'], [], apart),
                ('  batch rule all', ['--batch-rule', 'all'], [], apart), ('  no shrink', ['--no-shrink'], [], apart), ('  no regrouping', ['--no-regroup'], [], apart)]
    for name, of_expert, of_serve, cores in variants[:flags.variants]:
        with tempfile.TemporaryDirectory() as folder, \
                expert(flags.models, folder, 'e0', '--experts', '*:*', '--threads', cores['threads'], *of_expert, cores=cores['expert_cores']) as (address, _), \
                serving(flags.models, '--threads', cores['threads'], '--experts', address, *of_serve, cores=cores['serve_cores']) as (url, port):
            measure(name, url, port)
    beside(flags)


def rate(url, model, streams, seconds):
    """Tokens per second of streams that ask again and again; and what the first of each said."""
    until = time.monotonic() + seconds

    def keep_asking(seed):
        count, first = 0, None
        while time.monotonic() < until:
            times, text = stream(url, model, 96, seed)
            first = first or text
            count += sum(1 for at in times if at < until)
        return count, first
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        results = list(pool.map(keep_asking, range(streams)))
    return sum(count for count, _ in results) / seconds, [first for _, first in results]


def beside(flags):
    """Two models of one device, the experts of one elsewhere: what each has of its own rate when both are asked at once. 1.0 together: they take turns."""
    models = [pathlib.Path(flags.models), pathlib.Path(flags.beside)]
    names = [model.name.removesuffix('.gguf') for model in models]
    print(f'{names[0]} with its experts on core 1, and {names[1]}, both on core 0, {flags.streams} streams each; load average {os.getloadavg()[0]:.1f}; median of {flags.repeats}')
    for name, slow in [('experts as fast as they are', []), ('each batch of experts waits for 1 ms', ['1000']), ('for 4 ms', ['4000'])]:
        of_expert = ['--batch-rule', 'deadline', '--batch-wait-us', *slow] if slow else []
        with tempfile.TemporaryDirectory() as folder:
            for model in models:
                os.symlink(model.resolve(), f'{folder}/{model.name}')
            with expert(folder, folder, 'e0', '--experts', '*:*', '--threads', '1', *of_expert, cores='1') as (address, _), \
                    serving(folder, '--threads', '1', '--experts', address, cores='0') as (url, _):
                for model in names:
                    load(url, model, 1, 8)
                rows, same = [], True
                for _ in range(flags.repeats):
                    alone = [rate(url, model, flags.streams, flags.seconds) for model in names]
                    with concurrent.futures.ThreadPoolExecutor(2) as pool:
                        both = list(pool.map(lambda model: rate(url, model, flags.streams, flags.seconds), names))
                    shares = [at_once[0] / of[0] for at_once, of in zip(both, alone)]
                    rows.append((sum(shares), shares, alone))
                    same &= [texts for _, texts in alone] == [texts for _, texts in both]
                total, shares, alone = sorted(rows)[len(rows) // 2]
                print(f'{name:38} alone {alone[0][0]:6.0f} and {alone[1][0]:6.0f} tok/s; at once {shares[0]:4.2f} and {shares[1]:4.2f} of that, together {total:4.2f}'
                      f'{"" if same else "  the answers differ"}', flush=True)


if __name__ == '__main__':
    main()
