#!/usr/bin/env python3
"""Prints docs/SIMULATION.md: what the simulator says, each table under the command that made it. Nothing is typed by hand.

  bench/simulated.py --binary build/release/shoal --data DIR > docs/SIMULATION.md

DIR holds pooling/step_profiles.csv and pooling/arrivals (see the README of the data). All figures are simulated: roles and
policies are those of the server, devices are cost models.
"""
import argparse
import datetime
import json
import pathlib
import subprocess
import sys

HEAD = """# Simulation

Printed by `bench/simulated.py` on {date}. **Every figure on this page is simulated**: the router, the nodes, the engines and all
policies are the object files that `shoal serve` runs; devices, links and clients are models of them.

`shoal simulate` runs a workload on devices that you may not have, `shoal plan` searches for the cheapest that keep an objective, and
`tests/sim` looks for mistakes under faults. All three are one library, `src/sim`, which refers to no clock, thread, socket or file.

## What is modelled

- **Steps**: `prefill = p0 + p1 tokens + p2 tokens^2`, `decode = d0 + d1 context + d2 sequences`, fitted to measured profiles (points of at most
  4,096 tokens and 100 sequences); a step with both reads the weights once. Pairs that nobody measured get a roofline from the data sheets.
- **Memory**: pages, slabs and tiers are decided by the production code, to the page.
- **Loads and KV moves** of one device share its link evenly; every load takes `--load-overhead` besides.
- **Links** to the router have latency, jitter and bandwidth; faults delay, lose, repeat and reorder what is on them.
- **On time**: token k of an answer is due at `arrival + ttft + (k - 1) tbt`. Four figures, never one alone: (a) `tokens`, pooled; (b) `/req`, the mean
  per request; (c) `reqs`, requests with every token on time; (d) `artif.`, the time fraction of the published artifact, which is lenient.
- `paper` is the published policy on our node: its order of turns, quotas of up to 4 s, and room for two models on a device (the one that computes
  and the one that is prefetched). `token` is ours, with as many models on a device as fit. `request` swaps whole models between requests, `static` never swaps.

Not modelled: jitter of the host, several devices for one model, prompts and answers on separate devices.
"""


class Report:
    def __init__(self, binary, data):
        self.binary, self.data = binary, data

    def run(self, *flags, as_json=False):
        command = [str(self.binary), *map(str, flags), *(['--json'] if as_json else [])]
        print('>', ' '.join(command), file=sys.stderr, flush=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode not in (0, 1) or (as_json and done.returncode):
            sys.exit(done.stderr)
        return json.loads(done.stdout) if as_json else done.stdout + done.stderr

    def shown(self, flags):
        text = ' '.join(str(f) for f in flags).replace(str(self.data), 'DATA')
        return f'`shoal {text}`'

    def verbatim(self, *flags):
        print(f'{self.shown(flags)}\n\n```\n{self.run(*flags).rstrip()}\n```\n')

    def profiles(self):
        return ['--profiles', self.data / 'pooling/step_profiles.csv']

    def fleet(self):
        return ['--devices', '16xH800', '--load-bandwidth', 30, '--load-overhead', 0.35, *self.profiles()]

    def synthetic(self, rate_each, models, seconds):
        lengths = self.data / 'pooling/arrivals/synth-80-0.1-1.0-1.0.csv'
        return ['--models', models, '--request-rate', round(rate_each * models, 4), '--duration', seconds, '--lengths', lengths]

    def attainment(self, policy, rate_each, models, *more):
        runs = self.run('simulate', '--policy', policy, *self.fleet(), *self.synthetic(rate_each, models, 60 if rate_each > 0.2 else 120), *more, as_json=True)
        return runs[0]['attainment']

    def crossing(self, policy, rate_each, figure, start, *more):
        """The most models, in steps of 4, that keep 90 % of `figure`."""
        low, high = 0, start
        while high <= 512 and self.attainment(policy, rate_each, high, *more)[figure] >= 0.9:
            low, high = high, high * 2
        if high > 512:
            return f'> {low}'
        while high - low > 4:
            middle = (low + high) // 8 * 4
            if middle in (low, high):
                break
            if self.attainment(policy, rate_each, middle, *more)[figure] >= 0.9:
                low = middle
            else:
                high = middle
        return str(low)


def table(head, rows):
    print('| ' + ' | '.join(head) + ' |\n|' + '---|' * len(head))
    for row in rows:
        print('| ' + ' | '.join(str(cell) for cell in row) + ' |')
    print()


def published(r):
    print('## The published traces\n\nArrivals, lengths and step profiles of the artifact of Aegaeon (SOSP\'25): 16 H800, loads at 30 GB/s and 0.35 s, TTFT 10 s, TBT 100 ms. '
          'The runs last one or two minutes, so differences below 0.02 are noise.\n')
    for rate, models in (('0.1', (32, 56, 70, 80)), ('0.5', (32, 48, 54))):
        traces = ','.join(str(r.data / f'pooling/arrivals/synth-{m}-{rate}-1.0-1.0.csv') for m in models)
        r.verbatim('simulate', *r.fleet(), '--policy', 'token,paper,request,static', '--trace', traces)


def crossings(r):
    print('## How many models keep 90 %\n\nThe same devices, Poisson arrivals at equal rates, lengths drawn from the published traces, in steps of 4 models; in brackets models '
          'per device. Found by bisection with\n' + r.shown(['simulate', '--policy', 'POLICY', *r.fleet(), *r.synthetic(0.1, 'N', 120)]) + '.\n')
    rows = []
    for rate, start in ((0.1, 32), (0.5, 16)):
        found = {}
        for policy in ('token', 'paper', 'request', 'static'):
            for figure in ('tokens', 'requests'):
                found[policy, figure] = r.crossing(policy, rate, figure, start)
        for policy in ('token', 'paper', 'request', 'static'):
            n = found[policy, 'tokens']
            base = found['paper', 'tokens']
            times = f'{int(n.strip("> ")) / max(int(base.strip("> ")), 1):.2f}x'
            rows.append([f'{rate}/s each', policy, f'{n} ({int(n.strip("> ")) / 16:.1f})', times, found[policy, 'requests']])
    table(['rate', 'policy', 'tokens on time >= 90 %', 'of paper', 'requests with every token on time >= 90 %'], rows)


def sensitivity(r):
    print('## What the result depends on\n\n`tokens` and `reqs` at 100 models of 0.1/s and 60 of 0.5/s, on the same devices; one thing changed at a time.\n')
    cases = [('ours', 'token', []), ('two rooms a device, as paper', 'token', ['--rooms', 2]), ('QMAX 0.5 s, two rooms', 'token', ['--rooms', 2, '--qmax', 0.5]),
             ('QMAX 2 s, two rooms', 'token', ['--rooms', 2, '--qmax', 2]), ('QMAX 4 s, two rooms', 'token', ['--rooms', 2, '--qmax', 4]),
             ('QMAX 8 s, two rooms', 'token', ['--rooms', 2, '--qmax', 8]), ('one room: no prefetch', 'token', ['--rooms', 1]), ('paper', 'paper', []),
             ('paper, QMAX 2 s', 'paper', ['--qmax', 2]), ('paper, QMAX 1 s', 'paper', ['--qmax', 1]), ('paper, one room: no prefetch', 'paper', ['--rooms', 1]),
             ('paper, as many rooms as fit', 'paper', ['--rooms', 1000])]
    rows = []
    for name, policy, flags in cases:
        cells = []
        for rate, models in ((0.1, 100), (0.5, 60)):
            a = r.attainment(policy, rate, models, *flags)
            cells += [f'{a["tokens"]:.3f}', f'{a["requests"]:.3f}']
        rows.append([name, *cells])
    table(['', '0.1/s x 100: tokens', 'reqs', '0.5/s x 60: tokens', 'reqs'], rows)


def speed(r):
    print('## Speed\n\nA hundred devices; `x real` is simulated over wall time on one thread of the machine that printed this. What counts is how many steps the devices take: '
          'the second run has a hundred times the requests of the first.\n')
    for rate, seconds in ((0.2, 20000), (2, 2000), (20, 200)):
        r.verbatim('simulate', '--devices', '100xH800', '--models', 100, '--request-rate', rate, '--duration', seconds, *r.profiles())


def plans(r):
    print('## Plans\n')
    r.verbatim('plan', '--models', 40, '--request-rate', 4, '--duration', 90, *r.profiles(), '--kinds', 'A10,A100,H20,H100,H800', '--devices-max', 64)
    r.verbatim('plan', '--models', 40, '--request-rate', 4, '--duration', 90, *r.profiles(), '--kinds', 'A100,H800', '--tbt', 0.01, '--devices-max', 16, '--no-mix')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--binary', type=pathlib.Path, required=True)
    parser.add_argument('--data', type=pathlib.Path, required=True)
    parser.add_argument('--tests', type=pathlib.Path, help='folder with sim_seeds and sim_mutants; their tables are left out without it')
    args = parser.parse_args()
    r = Report(args.binary, args.data)
    print(HEAD.format(date=datetime.date.today().isoformat()))
    print('## Costs\n')
    r.verbatim('simulate', '--costs', *r.profiles())
    published(r)
    crossings(r)
    sensitivity(r)
    plans(r)
    speed(r)
    if args.tests:
        print('## Faults\n\n`sim_seeds` draws a scenario from each seed; `tests/sim/scenarios` holds scenarios as data. `sim_mutants` makes mistakes in the roles and says '
              'which were found, within how many seeds.\n')
        for program in (['sim_seeds', '--count', '2000'], ['sim_mutants']):
            out = subprocess.run([str(args.tests / program[0]), *program[1:]], stdout=subprocess.PIPE, text=True).stdout
            print(f'`{" ".join(program)}`\n\n```\n{out.rstrip()}\n```\n')


if __name__ == '__main__':
    main()
