#!/usr/bin/env python3
"""Is the simulator right? Serves a real model on this machine and asks twice.

Decisions: everything that the node was told is recorded and told to a production node in the simulator; every decision must
be the recorded one, bit for bit and in order.
Figures: a trace is replayed against the server and in the simulator, and throughput, time to first token and time between
tokens are compared. What steps cost is fitted to runs of other requests just before and just after, for a machine is not as
fast in every minute.

  bench/twin.py --binary build/release/shoal --model models/tiny-qwen3 [--seconds 20] [--loads 0.3,0.6] [--rounds 3]

Wants a quiet machine: what else runs on it is in the measured side only. The load average is printed with the result. The
rounds replay the same trace, each beside its own fit; of each figure the median of their errors counts.
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

STEP_TOKENS = 512
LENGTHS = [16, 32, 64, 96]
OUTPUTS = (16, 96)
REQUESTS_MIN = 10  # of a trace, however slow the machine is


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Server:
    """Serves the model while it is entered, and records what its node is told in `events`."""

    def __init__(self, binary, model, events):
        self.url = f'http://127.0.0.1:{free_port()}'
        self.command = [str(binary), 'serve', str(model), '--port', self.url.rsplit(':', 1)[1], '--max-num-batched-tokens', str(STEP_TOKENS),
                        '--estimates', 'none', '--record-events', str(events)]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                models = json.load(urllib.request.urlopen(self.url + '/v1/models', timeout=1))
                self.name = models['data'][0]['id']
                if models['data'][0]['status']['value'] == 'loaded':
                    return self
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit('the server did not come up')

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def bench(binary, url, folder, *flags):
    """The detailed result of `shoal bench`."""
    command = [str(binary), 'bench', '--base-url', url, '--ignore-eos', '--no-progress', '--save-detailed', '--result-dir', str(folder), '--result-filename', 'r.json']
    subprocess.run([*command, *map(str, flags)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads((folder / 'r.json').read_text())


def replay(binary, events, *flags):
    done = subprocess.run([str(binary), 'simulate', '--replay', str(events), *map(str, flags)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout.splitlines()


def calibrate(binary, model, folder, seed):
    """Batches of several sizes of prompts and answers. Gives the events, the model's name, and the tokens per second of eight answers at once."""
    events = folder / f'fit{seed}.events'
    rates = []
    with Server(binary, model, events) as server:
        for batch in (1, 2, 3, 4, 6, 8):
            for length in (16, 48, 128):
                r = bench(binary, server.url, folder, '--num-prompts', batch, '--random-input-len', length, '--random-output-len', 24, '--seed', seed * 1000 + length + batch)
                rates += [r['output_throughput']] if batch == 8 else []
        return events, server.name, statistics.median(rates)


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def draw_trace(rng, rate, seconds):
    """Rows of (seconds, length of the prompt, length of the answer)."""
    at, rows = 0.0, []
    while (at := at + rng.expovariate(rate)) < seconds or len(rows) < REQUESTS_MIN:
        rows.append((at, rng.choice(LENGTHS), rng.randint(*OUTPUTS)))
    return rows


def write_trace(path, name, rows):
    with path.open('w') as f:
        f.write('Request Time,Model Name,Input Length,Output Length\n')
        for at, prompt, answer in rows:
            f.write(f'00:{int(at // 60):02d}:{at % 60:06.3f},{name},{prompt},{answer}\n')
    return path


WHATS = ['output tokens / s', 'TTFT p50 ms', 'TTFT p90 ms', 'TBT p50 ms', 'TBT p90 ms']
BOUNDS = [0.10, 0.15, 0.15, 0.15, 0.15]


def measured(binary, model, trace, folder):
    """The figures of one real run, what its replay says, and how long the prompts were as the server counts them."""
    events = folder / 'run.events'
    with Server(binary, model, events) as server:
        real = bench(binary, server.url, folder, '--dataset-name', 'trace', '--dataset-path', trace)
    # Of an answer, so that tokens which arrive together at a client count like those that do not.
    gaps = [statistics.mean(gaps) for gaps in real['itls'] if gaps]
    figures = [real['output_throughput'], 1e3 * quantile(real['ttfts'], .5), 1e3 * quantile(real['ttfts'], .9), 1e3 * quantile(gaps, .5), 1e3 * quantile(gaps, .9)]
    return figures, replay(binary, events)[0], real['input_lens']


def simulated(binary, name, costs, trace, folder):
    shapes, answers = folder / 'shapes.csv', folder / 'simulated.csv'
    shapes.write_text(f'name,parameters,weight_bytes,kv_bytes_per_token,max_len\n{name},1e8,200000000,8192,1024\n')
    out = subprocess.run([str(binary), 'simulate', '--json', '--devices', '1xcpu', '--models', '1', '--model-mix', name, '--profiles', str(costs), '--shapes', str(shapes),
                          '--trace', str(trace), '--max-num-batched-tokens', str(STEP_TOKENS), '--load-overhead', '0', '--csv', str(answers)], check=True, stdout=subprocess.PIPE).stdout
    run = json.loads(out)[0]
    rows = [row for row in csv.DictReader(answers.open()) if int(row['tokens']) > 0]
    first = [float(row['ttft_s']) for row in rows]
    gaps = [(float(a['end_s']) - float(a['arrival_s']) - float(a['ttft_s'])) / (int(a['tokens']) - 1) for a in rows if int(a['tokens']) > 1]
    return [run['tokens'] / run['virtual_s'], 1e3 * quantile(first, .5), 1e3 * quantile(first, .9), 1e3 * quantile(gaps, .5), 1e3 * quantile(gaps, .9)]


def compare(args, folder, load, rng, results, said):
    """Adds to `results` the figures of a trace that takes this share of the throughput of eight sequences, and to `said` what the binary printed."""
    before, name, eight = calibrate(args.binary, args.model, folder, 0)
    rows = draw_trace(rng, load * eight / (sum(OUTPUTS) / 2), args.seconds)
    rounds, costs = [], folder / 'costs.csv'
    for i in range(args.rounds):
        real, replayed, lengths = measured(args.binary, args.model, write_trace(folder / 'trace.csv', name, rows), folder)
        after = calibrate(args.binary, args.model, folder, i + 1)[0]
        both = folder / 'fit.events'
        both.write_bytes(before.read_bytes() + after.read_bytes().partition(b'\n')[2])  # one head, then the records of both
        said += [replayed, *replay(args.binary, both, '--fit', costs)]
        # Words of a prompt are not always tokens: what is simulated are the lengths that the server found.
        counted = [(at, prompt, answer) for (at, _, answer), prompt in zip(rows, lengths)]
        guess = simulated(args.binary, name, costs, write_trace(folder / 'counted.csv', name, counted), folder)
        rounds.append([(m, s, s / m - 1) for m, s in zip(real, guess)])
        before = after
    for what, bound, figures in zip(WHATS, BOUNDS, zip(*rounds)):
        results.append((load, what, *map(statistics.median, zip(*figures)), bound))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--binary', type=pathlib.Path, required=True)
    parser.add_argument('--model', type=pathlib.Path, required=True)
    parser.add_argument('--seconds', type=float, default=20)
    parser.add_argument('--loads', default='0.3,0.6', help='shares of the throughput at 8 sequences')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    rng = random.Random(7)
    results, said = [], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for load in map(float, args.loads.split(',')):
            compare(args, folder, load, rng, results, said)
    missed = [what for _, what, _, _, error, bound in results if abs(error) > bound]
    if args.json:
        print(json.dumps([{'load': l, 'what': w, 'measured': m, 'simulated': s, 'error': e, 'bound': b} for l, w, m, s, e, b in results], indent=1))
    else:
        print('\n'.join(said))
        print(f'{"load":>5} {"what":<20} {"measured":>10} {"simulated":>10} {"error":>7}  {"bound":>5}')
        for load, what, real, guess, error, bound in results:
            print(f'{load:5.2f} {what:<20} {real:10.2f} {guess:10.2f} {100 * error:+6.1f}%  {100 * bound:4.0f}%{"" if abs(error) <= bound else "  missed"}')
    print(f'{args.model.name} on {os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.2f}; {len(results) - len(missed)} of {len(results)} figures within their bounds',
          file=sys.stderr)


if __name__ == '__main__':
    main()
