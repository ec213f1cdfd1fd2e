#!/usr/bin/env python3
"""pooling.py: how much load models that do not fit together can take, against deadlines of tokens.

Serves MODELS files on a budget of memory for BUDGET of them, with each of the server's scheduling policies (one binary) and,
with --peer, with llama-server's router mode (--models-max BUDGET). Poisson arrivals, models drawn uniformly or by Zipf,
lengths from a file of real requests (--lengths, JSON lines with input_toks and output_toks, scaled by --length-scale) or,
without one, lognormal (prompt: median 60, sigma 1.0; answer: median 40, sigma 0.8). Every system gets the same requests in the
same order; all files are read before each, so that they are in the page cache. Every rate is a fresh server, which answers a
short request of each model before the clock starts: the first touch of memory is not what is measured here.

Attainment, as the design defines it (token k is due at arrival + ttft + (k - 1) * tbt; a failed request counts as nothing on
time): (a) share of tokens, (b) its mean per request, (c) share of requests with every token on time. A request still under way
GRACE seconds after the last arrival is given up and has failed.

With --bound the same server once more with memory for all models: the load that the cores can take when nothing is switched.

Before the rates, on a server that does nothing else: the models one after the other, --swaps times round, so that each is away
when it is asked for; seconds from the request to its first token, and the same once it is there.

    build/release/bench/random_model ... makes files; `pooling.py --make DIR` makes six small distinct ones with it.
    python3 bench/pooling.py --models DIR --rates 0.5,1,2 --seconds 60 --out DIR/pooling
"""
import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pooling_html  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
VOCABULARY = (300, 30_000)  # ids of made-up words of random_model
MIB = 1 << 20


def copy_bandwidth(threads=2, size=256 * MIB, rounds=3):
    """Bytes/s written by memcpy on `threads` threads at once, best of `rounds`; each byte is read once and written once."""
    libc = ctypes.CDLL(None)
    libc.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    buffers = [(ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)) for _ in range(threads)]
    best = 0.0
    for _ in range(rounds + 1):  # the first touches the pages
        began = time.perf_counter()
        workers = [threading.Thread(target=libc.memcpy, args=(a, b, size)) for a, b in buffers]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = max(best, threads * size / (time.perf_counter() - began))
    return best


def read_lengths(path, scale):
    out = []
    for line in pathlib.Path(path).read_text().splitlines():
        row = json.loads(line)
        out.append((max(1, round(row['input_toks'] * scale)), max(1, round(row['output_toks'] * scale))))
    return out


def make_workload(args, models, rate, seed):
    """[(arrival seconds, model, prompt ids, output tokens)]"""
    rng = random.Random(seed)
    lengths = read_lengths(args.lengths, args.length_scale) if args.lengths else None
    weights = [1 / (i + 1) ** args.zipf for i in range(len(models))]
    out, at = [], 0.0
    while True:
        at += rng.expovariate(rate)
        if at >= args.seconds:
            return out
        prompt, answer = rng.choice(lengths) if lengths else (rng.lognormvariate(4.1, 1.0), rng.lognormvariate(3.7, 0.8))
        prompt, answer = min(args.prompt_max, max(1, int(prompt))), min(args.answer_max, max(1, int(answer)))
        ids = [rng.randrange(*VOCABULARY) for _ in range(prompt)]
        out.append((at, rng.choices(models, weights)[0], ids, answer))


class Result:
    def __init__(self, arrival, model, wanted):
        self.arrival, self.model, self.wanted = arrival, model, wanted
        self.times, self.tokens, self.error = [], 0, None

    def finished(self):
        return self.error is None and self.tokens > 0


async def ask(port, began, request, result):
    """One streamed completion; every event's time and, at the end, how many tokens there were."""
    arrival, model, ids, answer = request
    body = json.dumps({'model': model, 'prompt': ids, 'max_tokens': answer, 'temperature': 0, 'ignore_eos': True, 'stream': True,
                       'stream_options': {'include_usage': True}}).encode()
    head = f'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n'
    reader, writer = await asyncio.open_connection('127.0.0.1', port, limit=1 << 22)
    try:
        writer.write(head.encode() + body)
        status = int((await reader.readline()).split()[1])
        done = False
        async for line in reader:
            if not line.startswith(b'data: '):
                continue
            data = line[6:].strip()
            if data == b'[DONE]':
                done = True
                break
            event = json.loads(data)
            if 'error' in event:
                result.error = str(event['error'].get('code') or event['error'].get('message'))
                return
            if event.get('usage'):
                result.tokens = event['usage']['completion_tokens']
            if any(choice.get('text') for choice in event.get('choices', [])):
                result.times.append(time.perf_counter() - began)
        if status != 200 or not done:
            result.error = f'status {status}' if status != 200 else 'the stream broke off'
    finally:
        writer.close()


async def warm_up(port, models):
    for model in models:
        await ask(port, 0, (0, model, list(range(VOCABULARY[0], VOCABULARY[0] + 32)), 4), Result(0, model, 4))


async def first_token_seconds(port, model):
    began = time.perf_counter()
    result = Result(0, model, 1)
    await ask(port, began, (0, model, list(range(VOCABULARY[0], VOCABULARY[0] + 8)), 2), result)
    if not result.times:
        raise SystemExit(f'{model}: no answer ({result.error})')
    return result.times[0]


async def swap_seconds(port, models, rounds):
    away, there = [], []
    for _ in range(rounds):
        for model in models:
            away.append(await first_token_seconds(port, model))
            there.append(await first_token_seconds(port, model))
    return {'away': statistics.median(away), 'away_max': max(away), 'there': statistics.median(there)}


async def run_load(port, workload, grace):
    began = time.perf_counter()
    results, tasks = [], []

    async def guarded(request, result):
        try:
            await ask(port, began, request, result)
        except (OSError, ValueError, IndexError, asyncio.IncompleteReadError) as error:
            result.error = f'{type(error).__name__}: {error}'

    for request in workload:
        await asyncio.sleep(max(0, request[0] - (time.perf_counter() - began)))
        result = Result(time.perf_counter() - began, request[1], request[3])
        results.append(result)
        tasks.append(asyncio.create_task(guarded(request, result)))
    _, pending = await asyncio.wait(tasks, timeout=grace) if tasks else (None, [])
    for result, task in zip(results, tasks):
        if task in pending:
            task.cancel()
            result.error = 'not finished in time'
    await asyncio.gather(*tasks, return_exceptions=True)
    return results, time.perf_counter() - began


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else None


def score(results, ttft, tbt, wall):
    """The figures of one run. Tokens that came in one event came at its time."""
    tokens = on_time = all_on_time = 0
    shares, firsts, gaps, errors = [], [], [], {}
    for r in results:
        if not r.finished():
            errors[r.error] = errors.get(r.error, 0) + 1
            tokens += max(r.wanted, 1)
            shares.append(0.0)
            continue
        per_event = r.tokens / max(len(r.times), 1)
        late = 0
        for k in range(r.tokens):
            at = r.times[min(len(r.times) - 1, int(k / per_event))] if r.times else wall
            late += at > r.arrival + ttft + k * tbt
        tokens += r.tokens
        on_time += r.tokens - late
        all_on_time += late == 0
        shares.append((r.tokens - late) / r.tokens)
        if r.times:
            firsts.append(r.times[0] - r.arrival)
            gaps += [b - a for a, b in zip(r.times, r.times[1:])]
    count = max(len(results), 1)
    return {'requests': len(results), 'failed': sum(errors.values()), 'errors': errors, 'tokens_on_time': on_time / max(tokens, 1),
            'tokens_on_time_per_request': statistics.fmean(shares) if shares else 1.0, 'requests_on_time': all_on_time / count,
            'ttft_p50': quantile(firsts, .5), 'ttft_p99': quantile(firsts, .99), 'tbt_p50': quantile(gaps, .5), 'tbt_p99': quantile(gaps, .99),
            'tokens_per_second': sum(r.tokens for r in results) / wall, 'wall_seconds': wall}


def free_port(first):
    for port in range(first, first + 50):
        with socket.socket() as s:
            if s.connect_ex(('127.0.0.1', port)) != 0:
                return port
    raise SystemExit(f'no free port from {first} on')


class Server:
    """One system, started and ended; its output goes to a file of --out."""

    def __init__(self, name, command, port, log):
        self.name, self.port, self.log = name, port, open(log, 'w')
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        deadline = time.time() + 120
        while True:
            try:
                if urllib.request.urlopen(f'http://127.0.0.1:{port}/health', timeout=2).status == 200:
                    return
            except (OSError, urllib.error.URLError):
                pass
            if self.process.poll() is not None or time.time() > deadline:
                raise SystemExit(f'{name} did not start; see {log}')
            time.sleep(0.1)

    def metrics(self):
        """Sums over labels; {} where there is no such page."""
        try:
            text = urllib.request.urlopen(f'http://127.0.0.1:{self.port}/metrics', timeout=10).read().decode()
        except (OSError, urllib.error.URLError):
            return {}
        sums = {}
        for name, labels, value in re.findall(r'^(shoal_[a-z_]+)(?:{(.*)})? ([0-9.e+-]+)$', text, re.M):
            for key in (name, f'{name}:{labels.split(",")[-1]}' if labels else name):
                sums[key] = sums.get(key, 0.0) + float(value)
            if not labels:
                sums[name] = float(value)
        return sums

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def switch_figures(before, after):
    metrics = {name: value - before.get(name, 0) for name, value in after.items()}
    served = metrics.get('shoal_switches_total:end="served"', 0)
    seconds, written = metrics.get('shoal_switch_load_seconds_total', 0), metrics.get('shoal_switch_bytes_total:kind="written"', 0)
    if not metrics:
        return {}
    return {'switches': served, 'hidden_share': metrics.get('shoal_switches_hidden_total', 0) / served if served else None,
            'visible_seconds': metrics.get('shoal_switch_visible_seconds_total', 0), 'load_seconds': seconds,
            'load_bytes_per_second': written / seconds if seconds else None, 'parkings': metrics.get('shoal_kv_parkings_total', 0)}


def commands(args, files):
    """[(system, command line without its port)]"""
    largest = sorted((f.stat().st_size for f in files), reverse=True)[:args.budget]
    memory = sum(largest) + args.budget * args.kv_mib * MIB + args.workspace_mib * MIB
    common = ['--max-model-len', str(args.context), '--max-num-seqs', '32', '--threads', str(args.threads), '--log-level', 'warning']
    out = []

    def shoal(name, policy, mib):
        out.append((name, [args.shoal, 'serve', args.models, '--config', 'none', '--estimates', 'none', '--admin-socket', 'none', '--preload=none',
                           '--scheduling', policy, '--ttft', str(args.ttft), '--tbt', str(args.tbt), '--device-memory', f'{mib}MiB', *common]))

    for policy in filter(None, args.policies.split(',')):
        shoal(f'shoal {policy}', policy, memory // MIB)
    if args.bound:
        shoal('memory for all', 'token', (sum(f.stat().st_size for f in files) + len(files) * args.kv_mib * MIB) // MIB + args.workspace_mib)
    if args.peer:
        out.append(('llama-server router', [args.peer, '--models-dir', args.models, '--models-max', str(args.budget), '-t', str(args.threads),
                                            '-c', str(args.context * 4), '--parallel', '4', '--host', '127.0.0.1']))
    return out, memory


def crossing(points, goal=0.9):
    """The highest rate that still attains the goal, between two measured ones by a straight line; None: not even the lowest."""
    best = None
    for before, after in zip([None, *points], points):
        if after['tokens_on_time'] >= goal:
            best = after['rate']
        elif before is not None and before['tokens_on_time'] >= goal:
            slope = (before['tokens_on_time'] - goal) / (before['tokens_on_time'] - after['tokens_on_time'])
            return before['rate'] + slope * (after['rate'] - before['rate'])
        else:
            return best
    return best


def make_models(args):
    tool = ROOT / 'build' / 'release' / 'bench' / 'random_model'
    folder = pathlib.Path(args.make)
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(args.count):
        path = folder / f'm{i}.gguf'
        if not path.exists():
            shape, kind = [('llama-0.1b', 'q8_0'), ('llama-0.3b', 'q4_0'), ('llama-0.3b', 'q8_0')][i % 3] if args.mixed else ('llama-0.1b', 'q8_0')
            subprocess.run([tool, '--shape', shape, '--type', kind, '--seed', str(i + 1), '--out', path], check=True)
    print(f'{args.count} models in {folder}')


def read_all(files):
    for f in files:
        with open(f, 'rb') as data:
            while data.read(16 * MIB):
                pass


@contextlib.contextmanager
def served(args, name, command, files, log):
    read_all(files)
    port = free_port(args.port)
    server = Server(name, [*command, '--port', str(port)], port, log)
    try:
        yield server
    finally:
        server.stop()


def measure(args):
    folder = pathlib.Path(args.models)
    files = sorted(folder.glob('*.gguf'))
    models = [f.stem for f in files]
    if not models:
        raise SystemExit(f'{folder}: holds no .gguf file; --make DIR makes some')
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    systems, memory = commands(args, files)
    rates = [float(r) for r in args.rates.split(',') if r]
    report = {'models': {f.stem: f.stat().st_size for f in files}, 'budget_models': args.budget, 'device_memory': memory, 'ttft': args.ttft, 'tbt': args.tbt,
              'seconds': args.seconds, 'seed': args.seed, 'lengths': pathlib.Path(args.lengths).name if args.lengths else 'lognormal',
              'length_scale': args.length_scale, 'zipf': args.zipf, 'threads': args.threads, 'load_average_before': os.getloadavg(),
              'copy_bytes_per_second': copy_bandwidth(args.threads), 'swaps': {}, 'systems': {name: [] for name, _ in systems}}
    print(f'{len(models)} models, memory for {args.budget}: {memory // MIB} MiB; copy {report["copy_bytes_per_second"] / 1e9:.1f} GB/s', flush=True)
    for name, command in systems:
        if args.swaps == 0 or name.endswith('static') or name == 'memory for all':
            continue
        with served(args, name, command, files, out / f'{name.replace(" ", "-")}-swaps.log') as server:
            asyncio.run(warm_up(server.port, models))
            before = server.metrics()
            swaps = asyncio.run(swap_seconds(server.port, models, args.swaps))
            swaps['bytes_per_second'] = switch_figures(before, server.metrics()).get('load_bytes_per_second')
            report['swaps'][name] = swaps
        print(f'{name:22} a model that is away: first token after {swaps["away"]:.3f} s (at most {swaps["away_max"]:.3f}), one that is there: {swaps["there"]:.3f} s'
              + (f'; {swaps["bytes_per_second"] / 1e9:.1f} GB/s written' if swaps['bytes_per_second'] else ''), flush=True)
    for rate in rates:
        workload = make_workload(args, models, rate, args.seed)
        for name, command in systems:  # side by side at each rate: what else the machine does hits all of them
            if any(at['tokens_on_time'] < args.give_up for at in report['systems'][name]):
                continue
            with served(args, name, command, files, out / f'{name.replace(" ", "-")}-{rate:g}.log') as server:
                asyncio.run(warm_up(server.port, models))
                before = server.metrics()
                results, wall = asyncio.run(run_load(server.port, workload, args.grace))
                figures = {'rate': rate, **score(results, args.ttft, args.tbt, wall), **switch_figures(before, server.metrics())}
            report['systems'][name].append(figures)
            print(f'{name:22} {rate:6.2f}/s  on time {figures["tokens_on_time"]:6.1%} of tokens, {figures["requests_on_time"]:6.1%} of requests'
                  f'  ttft p99 {figures["ttft_p99"] or 0:6.2f} s  gap p99 {figures["tbt_p99"] or 0:6.3f} s  {figures["tokens_per_second"]:6.1f} tok/s'
                  f'  switches {figures.get("switches", float("nan")):.0f}  failed {figures["failed"]}', flush=True)
            (out / 'pooling.json').write_text(json.dumps(report, indent=1))
    report['load_average_after'] = os.getloadavg()
    if rates:
        report['crossings'] = {name: crossing(points) for name, points in report['systems'].items()}
    (out / 'pooling.json').write_text(json.dumps(report, indent=1))
    if not rates:
        return
    (out / 'pooling.html').write_text(pooling_html.page(report))
    summary = ', '.join(f'{name} {rate:.2f}/s' if rate else f'{name} below {rates[0]:g}/s' for name, rate in report['crossings'].items())
    print(f'90 % of tokens on time up to: {summary}  ({out}/pooling.html)')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--models', help='folder of GGUF files')
    parser.add_argument('--make', metavar='DIR', help='only make --count models there')
    parser.add_argument('--count', type=int, default=6)
    parser.add_argument('--mixed', action='store_true', help='with --make: models of 0.1 to 0.4 GB instead of 0.1 GB each')
    parser.add_argument('--shoal', default=str(ROOT / 'build' / 'release' / 'shoal'))
    parser.add_argument('--peer', help='path of llama-server')
    parser.add_argument('--policies', default='token,request,static')
    parser.add_argument('--bound', action='store_true', help='also with memory for all models, so that nothing is switched: what the cores can do at most')
    parser.add_argument('--give-up', type=float, default=0, help='do not run a system at higher rates once it kept less than this share of tokens on time')
    parser.add_argument('--rates', default='0.5,1,2', help='requests per second, all models together; "": only the switches')
    parser.add_argument('--seconds', type=float, default=60, help='of arrivals, per rate and system')
    parser.add_argument('--grace', type=float, default=60)
    parser.add_argument('--swaps', type=int, default=3, help='rounds of switches on an idle server; 0: none')
    parser.add_argument('--budget', type=int, default=2)
    parser.add_argument('--kv-mib', type=int, default=48, help='of KV per model of the budget')
    parser.add_argument('--workspace-mib', type=int, default=96)
    parser.add_argument('--context', type=int, default=1024)
    parser.add_argument('--threads', type=int, default=os.cpu_count())
    parser.add_argument('--ttft', type=float, default=10)
    parser.add_argument('--tbt', type=float, default=0.1)
    parser.add_argument('--lengths')
    parser.add_argument('--length-scale', type=float, default=1)
    parser.add_argument('--prompt-max', type=int, default=512)
    parser.add_argument('--answer-max', type=int, default=256)
    parser.add_argument('--zipf', type=float, default=0, help='popularity of model i is 1 / (i + 1) ** ZIPF')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--port', type=int, default=18250)
    parser.add_argument('--out', default='pooling')
    args = parser.parse_args()
    if args.make:
        make_models(args)
    elif args.models:
        measure(args)
    else:
        parser.error('--models or --make is needed')


if __name__ == '__main__':
    main()
