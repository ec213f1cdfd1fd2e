#!/usr/bin/env python3
"""Is the simulator right? Serves a real model on this machine, fits what its steps cost, replays traces that the fit has not
seen against the server and in the simulator, and compares throughput, time to first token and time between tokens.

  bench/twin.py --binary build/release/shoal --model models/tiny-qwen3 [--seconds 20] [--loads 0.3,0.6]

Wants a quiet machine: what else runs on it is in the measured side only. The load average is printed with the result.
"""
import argparse
import csv
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

NAME = 'twin'
STEP_TOKENS = 512


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, binary, model):
        self.url = f'http://127.0.0.1:{free_port()}'
        self.process = subprocess.Popen([str(binary), 'serve', str(model), '--port', self.url.rsplit(':', 1)[1], '--max-num-batched-tokens', str(STEP_TOKENS)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + '/health', timeout=1)
                return
            except OSError:
                time.sleep(0.1)
        sys.exit('the server did not come up')

    def stop(self):
        self.process.terminate()
        self.process.wait()


def bench(binary, url, folder, *flags):
    """The detailed result of `shoal bench`."""
    command = [str(binary), 'bench', '--base-url', url, '--ignore-eos', '--no-progress', '--save-detailed', '--result-dir', str(folder), '--result-filename', 'r.json']
    subprocess.run([*command, *map(str, flags)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads((folder / 'r.json').read_text())


def calibrate(binary, url, folder, lengths, batches):
    """Rows of a profile: b prompts of n tokens that come together, and the steps that decode them."""
    rows = []
    for n in lengths:
        for b in batches:
            if n * b > 2 * STEP_TOKENS:
                continue
            prefills, decodes = [], []
            for seed in range(3):
                r = bench(binary, url, folder, '--num-prompts', b, '--random-input-len', n, '--random-output-len', 24, '--seed', seed * 100 + n + b)
                prefills.append(max(r['ttfts']))
                decodes += [statistics.mean(gaps[b:]) for gaps in r['itls'] if len(gaps) > b]  # while all of them decode
            rows.append((n, b, 1e3 * statistics.median(prefills), max(1e-3, 1e3 * statistics.median(decodes))))
    return rows


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def write_trace(path, rng, rate, seconds, lengths):
    at = 0.0
    with path.open('w') as f:
        f.write('Request Time,Model Name,Input Length,Output Length\n')
        while (at := at + rng.expovariate(rate)) < seconds:
            f.write(f'00:{int(at // 60):02d}:{at % 60:06.3f},{NAME},{rng.choice(lengths)},{rng.randint(16, 96)}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--binary', type=pathlib.Path, required=True)
    parser.add_argument('--model', type=pathlib.Path, required=True)
    parser.add_argument('--seconds', type=float, default=20)
    parser.add_argument('--loads', default='0.3,0.6', help='shares of the throughput at 8 sequences')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    rng = random.Random(7)
    server = Server(args.binary, args.model)
    results = []
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            lengths = [16, 32, 64, 96]
            rows = calibrate(args.binary, server.url, folder, [16, 32, 64, 128], [1, 2, 4, 8])
            (folder / 'profile.csv').write_text('model,gpu,prompt_tokens_per_request,batch_size,prefill_ms,decode_step_ms\n' +
                                                ''.join(f'{NAME},cpu,{n},{b},{p:.5f},{d:.5f}\n' for n, b, p, d in rows))
            (folder / 'shapes.csv').write_text(f'name,parameters,weight_bytes,kv_bytes_per_token,max_len\n{NAME},1e8,200000000,8192,1024\n')
            eight = 8 / (statistics.median(d for n, b, p, d in rows if b == 8) / 1e3)
            for load in map(float, args.loads.split(',')):
                trace = folder / 'trace.csv'
                write_trace(trace, rng, load * eight / 56, args.seconds, lengths)
                real = bench(args.binary, server.url, folder, '--dataset-name', 'trace', '--dataset-path', trace)
                simulated = json.loads(subprocess.run(
                    [str(args.binary), 'simulate', '--json', '--devices', '1xcpu', '--models', '1', '--model-mix', NAME, '--profiles', str(folder / 'profile.csv'),
                     '--shapes', str(folder / 'shapes.csv'), '--trace', str(trace), '--max-num-batched-tokens', str(STEP_TOKENS),
                     '--csv', str(folder / 'simulated.csv')], check=True, stdout=subprocess.PIPE).stdout)[0]
                # Of an answer, so that tokens which arrive together at a client count like those that do not.
                gaps = [statistics.mean(gaps) for gaps in real['itls'] if gaps]
                answers = [row for row in csv.DictReader((folder / 'simulated.csv').open()) if int(row['tokens']) > 1]
                gaps_s = [(float(a['end_s']) - float(a['arrival_s']) - float(a['ttft_s'])) / (int(a['tokens']) - 1) for a in answers]
                results += [
                    (load, 'output tokens / s', real['output_throughput'], simulated['tokens'] / simulated['virtual_s']),
                    (load, 'TTFT p50 ms', 1e3 * quantile(real['ttfts'], .5), 1e3 * simulated['ttft_s']['p50']),
                    (load, 'TTFT p90 ms', 1e3 * quantile(real['ttfts'], .9), 1e3 * simulated['ttft_s']['p90']),
                    (load, 'TBT p50 ms', 1e3 * quantile(gaps, .5), 1e3 * quantile(gaps_s, .5)),
                    (load, 'TBT p90 ms', 1e3 * quantile(gaps, .9), 1e3 * quantile(gaps_s, .9))]
    finally:
        server.stop()
    if args.json:
        print(json.dumps([{'load': l, 'what': w, 'measured': m, 'simulated': s} for l, w, m, s in results], indent=1))
    else:
        print(f'{"load":>5} {"what":<20} {"measured":>10} {"simulated":>10} {"error":>7}')
        for load, what, measured, guess in results:
            print(f'{load:5.2f} {what:<20} {measured:10.2f} {guess:10.2f} {100 * (guess - measured) / measured:+6.1f}%')
    print(f'{args.model.name} on {os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.2f}', file=sys.stderr)


if __name__ == '__main__':
    main()
