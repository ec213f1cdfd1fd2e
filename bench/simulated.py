#!/usr/bin/env python3
"""Prints docs/SIMULATION.md: what the simulator says, each table under the command that made it. Nothing is typed by hand.

  bench/simulated.py --binary build/release/shoal --commit "$(git rev-parse --short HEAD)" --data DIR [--tests build/release/tests/sim]
      [--twin FILE] [--jobs 2] [--kept FILE] > docs/SIMULATION.md

DIR holds pooling/step_profiles.csv and pooling/arrivals (see the README of the data). All figures are simulated: roles and
policies are those of the server, devices are cost models. It runs for a long time: with --kept it keeps what it printed of
this very binary, and goes on there when it is started again.
"""
import argparse
import concurrent.futures
import contextlib
import datetime
import hashlib
import io
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HEAD = """# Simulation

Printed by `bench/simulated.py` on {date}, at commit {commit}. **Every figure on this page is simulated**: the router, the nodes, the engines and all
policies are the object files that `shoal serve` runs; devices, links and clients are models of them.

`shoal simulate` runs a workload on devices that you may not have, `shoal plan` searches for the cheapest that keep an objective, and
`tests/sim` looks for mistakes under faults. All three are one library, `src/sim`, which refers to no clock, thread, socket or file.

## What is modelled

- **Steps**: `prefill = p0 + p1 tokens + p2 tokens^2`, `decode = d0 + d1 context + d2 sequences`, fitted to measured profiles (points of at most
  4,096 tokens and 100 sequences); a step with both reads the weights once. What was fitted to a run of ours has the mean of each number of sequences
  instead of a line. Pairs that nobody measured get a roofline from the data sheets.
- **Memory**: pages, slabs and tiers are decided by the production code, to the page.
- **Loads and KV moves** of one device share its link evenly; every load takes `--load-overhead` besides.
- **Links** to the router have latency, jitter and bandwidth; faults delay, lose, repeat and reorder what is on them.
- **On time**: token k of an answer is due at `arrival + ttft + (k - 1) tbt`. Four figures, never one alone: (a) `tokens`, pooled; (b) `/req`, the mean
  per request; (c) `reqs`, requests with every token on time; (d) `artif.`, the time fraction of the published artifact, which is lenient.
- `paper` is the published policy on our node: its order of turns, quotas of up to 4 s, three of eight devices for prompts only, and room for
  two models on a device (the one that computes and the one that is prefetched). `token` is ours, with as many models on a device as fit. `request` swaps whole models between requests, `static` never swaps.

- **Invariants**: I1-I7, I9 and I10 of the design are checked in every event of `tests/sim`, and I8 (each row has exactly one answer of an expert, its own)
  in worlds of expert servers, `sim_experts`: clients and servers with the production slots and batch forming, and the placement and calls of `policy`, killed, stopped, cut off,
  with writes lost, torn or out of order, at every event of a layer, two at once, and with nobody watching.

- **Gangs** (`8xH800:tp4`: two of four devices that compute every step as one): weights, KV and links are shared evenly; of each term of a step the part that
  the roofline says is arithmetic or reading is divided, the rest stays, and two all-reduces a layer come on top. Nobody measured them: estimates.

`plan` varies how many devices of which kind, which of them compute prompts only, how many models each holds at once, and gangs of 2, 4 and 8. Not modelled:
jitter of the host, and pipelines (stages with one batch under way are no quicker than one device; several batches need an engine that does not exist yet).
"""

SECONDS = 60  # of arrivals, in the searches
POLICIES = ('token', 'paper', 'request', 'static')
STARTS = ((0.1, 64), (0.5, 24))  # rate of a model, models that a search begins with
SENSITIVE = ((0.1, 80), (0.5, 40))
CASES = [('ours', 'token', []), ('ours, two rooms a device', 'token', ['--rooms', 2]), ('ours, 6 devices for prompts', 'token', ['--prefill', 6]),
         ('paper: 6 devices for prompts, two rooms', 'paper', []), ('paper, QMAX 2 s', 'paper', ['--qmax', 2]), ('paper, QMAX 8 s', 'paper', ['--qmax', 8]),
         ('paper, 4 devices for prompts', 'paper', ['--prefill', 4]), ('paper, 8 devices for prompts', 'paper', ['--prefill', 8]),
         ('paper, each device does both', 'paper', ['--prefill', 0]), ('paper, one room: no prefetch', 'paper', ['--rooms', 1]),
         ('paper, as many rooms as fit', 'paper', ['--rooms', 1000]), ('paper, 0.05 s a load beside its bytes', 'paper', ['--load-overhead', 0.05])]

PUBLISHED = """The publication reports 70 models at 0.1/s and about 2x its baselines on such a cluster, with one model on a device at a time. Here `request` and `static` run
on our node as well, whose memory holds several models at once, so they are stronger baselines than the published ones.

Other simulations of the published policy on these traces hold 46 to 52 models at 0.5/s. Ours holds fewer. What was found to
differ: they charge the 0.35 s only to loads that were not prefetched, here every load takes them (the row of 0.05 s below), and they let no KV wait for weights on a
device's link. More memory for KV makes no difference. That is not all of it: the rest is not explained. The partition of `paper` is fixed for the
whole run; others are below, and without one (`each device does both`) it does better.
"""


GANGS = """## Smaller devices, larger models

The other two set-ups of the publication (its figure 17): one machine of four A10 with models of 6 and 7 billion parameters at 0.1/s each, TTFT 5 s; and four models of 72
billion on two gangs of four H800, TTFT 10 s, TBT 0.2 s. Share of tokens on time, in brackets of requests with every token on time.
Steps of 72 billion are estimates (roofline and gangs). `static` serves only what fits: two of the four.
"""

TWIN = """## The twin

`bench/twin.py` serves a real model on this machine and asks twice. Decisions: everything that the node was told, with the instants, is recorded and
told to a production node in the simulator; every decision must be the recorded one, bit for bit and in order. Figures: traces that no fit has seen are
replayed against the server and in the simulator. What steps cost there is fitted to runs of other requests just before and just after, since a machine
is not as fast in every minute. Three rounds, each beside its own fit; the table has the medians, of both sides and of their errors.

"""


class Report:
    def __init__(self, binary, data, kept):
        self.binary, self.data, self.kept = binary, data, kept
        self.build = hashlib.sha256(binary.read_bytes()).hexdigest()[:16]
        self.printed = {}  # by command: text, seconds of CPU
        for line in kept.read_text().splitlines() if kept and kept.exists() else []:
            build, command, *printed = json.loads(line)
            if build == self.build:
                self.printed[command] = printed

    def text(self, command, run=1):
        """What a command prints, and its seconds of CPU; each runs once, or again for another number of the run."""
        name = ' '.join(map(str, command)) + ('' if run == 1 else f'  # run {run}')
        if name not in self.printed:
            print('>', name, file=sys.stderr, flush=True)
            with tempfile.NamedTemporaryFile('r') as times:
                done = subprocess.run(['bash', '-c', f'TIMEFORMAT=%U; time "$@" 2> "$0.err"', times.name, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                errors = pathlib.Path(times.name + '.err')
                said = errors.read_text()
                errors.unlink()
            if done.returncode not in (0, 1):
                sys.exit(said)
            self.printed[name] = [done.stdout + said, float(done.stderr.split()[-1])]
            if self.kept:
                with self.kept.open('a') as file:
                    file.write(json.dumps([self.build, name, *self.printed[name]]) + '\n')
        return self.printed[name]

    def run(self, *flags, as_json=False):
        out = self.text([self.binary, *flags, *(['--json', '--no-progress'] if as_json else [])])[0]
        return json.loads(out) if as_json else out

    def shown(self, flags):
        text = ' '.join(str(f) for f in flags).replace(str(self.data), 'DATA')
        return f'`shoal {text}`'

    def verbatim(self, *flags):
        print(f'{self.shown(flags)}\n\n```\n{self.run(*flags).rstrip()}\n```\n')

    def profiles(self):
        return ['--profiles', self.data / 'pooling/step_profiles.csv']

    def fleet(self, overhead=0.35):
        return ['--devices', '16xH800', '--load-bandwidth', 30, '--load-overhead', overhead, *self.profiles()]

    def synthetic(self, rate_each, models, seconds):
        lengths = self.data / 'pooling/arrivals/synth-80-0.1-1.0-1.0.csv'
        return ['--models', models, '--request-rate', round(rate_each * models, 4), '--duration', seconds, '--lengths', lengths]

    def attainment(self, policy, rate_each, models, *more):
        fleet = self.fleet()
        if '--load-overhead' in more:
            fleet, more = self.fleet(more[more.index('--load-overhead') + 1]), [flag for flag in more if flag not in ('--load-overhead', 0.05)]
        return self.run('simulate', '--policy', policy, *fleet, *self.synthetic(rate_each, models, SECONDS), *more, as_json=True)[0]['attainment']

    def crossing(self, policy, rate_each, start):
        """The most models, in steps of 4, that keep 90 % of the tokens' deadlines."""
        low, high = 0, start
        while self.attainment(policy, rate_each, high)['tokens'] >= 0.9:
            low, high = high, high + start // 2
        while high - low > 4:
            middle = (low + high) // 8 * 4
            if middle <= low:
                break
            if self.attainment(policy, rate_each, middle)['tokens'] >= 0.9:
                low = middle
            else:
                high = middle
        return low


def table(head, rows):
    print('| ' + ' | '.join(head) + ' |\n|' + '---|' * len(head))
    for row in rows:
        print('| ' + ' | '.join(str(cell) for cell in row) + ' |')
    print()


def published(r):
    print('## The published traces\n\nArrivals, lengths and step profiles of the artifact of Aegaeon (SOSP\'25): 16 H800, loads at 30 GB/s and 0.35 s, TTFT 10 s, TBT 100 ms. '
          'The runs last one or two minutes, so differences below 0.02 are noise.\n')
    for rate, models in (('0.1', (32, 70, 80)), ('0.5', (32, 48))):
        traces = ','.join(str(r.data / f'pooling/arrivals/synth-{m}-{rate}-1.0-1.0.csv') for m in models)
        r.verbatim('simulate', *r.fleet(), '--policy', 'token,paper,request,static', '--trace', traces)


def crossings(r):
    print('## How many models keep 90 %\n\nThe same devices, Poisson arrivals at equal rates, lengths drawn from the published traces, in steps of 4 models; in brackets models '
          'per device. Found by bisection with\n' + r.shown(['simulate', '--policy', 'POLICY', *r.fleet(), *r.synthetic(0.1, 1, SECONDS)]) + '.\n\n' + PUBLISHED)
    rows = []
    for rate, start in STARTS:
        found = {policy: r.crossing(policy, rate, start) for policy in POLICIES}
        for policy, n in found.items():
            a = r.attainment(policy, rate, n) if n else {'requests': 0, 'artifact': 0}
            rows.append([f'{rate}/s each', policy, f'{n} ({n / 16:.1f})', f'{n / max(found["paper"], 1):.2f}x', f'{a["requests"]:.3f}', f'{a["artifact"]:.3f}'])
    table(['rate', 'policy', 'models with >= 90 % of tokens on time', 'of paper', '(c) there', '(d) there'], rows)


def sensitivity(r):
    print('## What the result depends on\n\n`tokens` and `reqs` at 80 models of 0.1/s and 40 of 0.5/s, on the same devices; one thing changed at a time.\n')
    rows = []
    for name, policy, flags in CASES:
        cells = []
        for rate, models in SENSITIVE:
            a = r.attainment(policy, rate, models, *flags)
            cells += [f'{a["tokens"]:.3f}', f'{a["requests"]:.3f}']
        rows.append([name, *cells])
    table(['', '0.1/s x 80: tokens', 'reqs', '0.5/s x 40: tokens', 'reqs'], rows)


def on_time(r, policy, flags):
    a = r.run('simulate', '--policy', policy, *flags, '--load-overhead', 0.35, *r.profiles(), as_json=True)[0]['attainment']
    return f'{a["tokens"]:.3f} ({a["requests"]:.3f})'


def gang_rows(r):
    """What is served, and the flags of it."""
    lengths = ['--lengths', r.data / 'pooling/arrivals/synth-80-0.1-1.0-1.0.csv', '--duration', 300]
    small = [(f'{n} models on 4 A10', ['--devices', '4xA10', '--ttft', 5, '--model-mix', 'yi1_5_6b_chat:1,qwen_7b_chat:1', *lengths, '--models', n,
                                       '--request-rate', round(0.1 * n, 3)]) for n in (4, 6, 8, 10)]
    large = [(f'4 models of 72 B on 2 x 4 H800, {rate}/s each', ['--devices', '8xH800:tp4', '--load-bandwidth', 30, '--tbt', 0.2, '--model-mix', 'qwen_72b', *lengths,
                                                                '--models', 4, '--request-rate', round(4 * rate, 3)]) for rate in (0.1, 0.2, 0.4, 0.6)]
    return small + large


def gangs(r):
    print(GANGS)
    rows = gang_rows(r)
    table(['', *POLICIES], [[name, *(on_time(r, policy, flags) for policy in POLICIES)] for name, flags in rows])
    print('The first and last: ' + ', '.join(r.shown(['simulate', *rows[i][1], '--load-overhead', 0.35, *r.profiles()]) for i in (0, -1)) + ' with each `--policy`.\n')


def speed(r):
    print('## Speed\n\nA hundred devices on one thread. What counts is how many steps the devices take: each row has ten times the rate of the one before. Medians of 3.\n')
    rows = []
    for rate, seconds in ((0.1, 20000), (1, 2000), (10, 200)):
        flags = ['simulate', '--devices', '100xH800', '--models', 100, '--request-rate', rate, '--duration', seconds, *r.profiles()]
        timed = [r.text([r.binary, *flags, '--json', '--no-progress'], run) for run in (1, 2, 3)]
        run, cpu = json.loads(timed[0][0])[0], statistics.median(seconds for _, seconds in timed)
        rows.append([r.shown(flags), run['requests'], run['steps'], f'{run["virtual_s"]:.0f}', f'{run["virtual_s"] / cpu:.0f}', f'{run["steps"] / cpu:.0f}'])
    table(['command', 'requests', 'steps', 'simulated s', 'simulated s per CPU s', 'steps per CPU s'], rows)


def ahead(r, workers):
    """Everything that can run side by side; the pages then find what it printed."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        jobs = [pool.submit(r.crossing, policy, rate, start) for rate, start in STARTS for policy in POLICIES]
        jobs += [pool.submit(r.attainment, policy, rate, models, *flags) for _, policy, flags in CASES for rate, models in SENSITIVE]
        jobs += [pool.submit(on_time, r, policy, flags) for _, flags in gang_rows(r) for policy in POLICIES]
        for job in jobs:
            job.result()


def plans(r):
    print('## Plans\n')
    r.verbatim('plan', '--models', 40, '--request-rate', 4, '--duration', 90, *r.profiles(), '--kinds', 'A10,A100,H20,H100,H800', '--devices-max', 64)
    r.verbatim('plan', '--models', 40, '--request-rate', 4, '--duration', 90, *r.profiles(), '--kinds', 'A100,H800', '--tbt', 0.01, '--devices-max', 16, '--no-mix')
    r.verbatim('plan', '--models', 4, '--model-mix', 'qwen2_72b', '--request-rate', 1.2, '--duration', 120, *r.profiles(), '--kinds', 'A100,H20,H100,H800', '--tbt', 0.2,
               '--devices-max', 32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--binary', type=pathlib.Path, required=True)
    parser.add_argument('--data', type=pathlib.Path, required=True)
    parser.add_argument('--tests', type=pathlib.Path, help='folder with sim_seeds and sim_mutants; their tables are left out without it')
    parser.add_argument('--twin', type=pathlib.Path, help='what bench/twin.py printed')
    parser.add_argument('--commit', required=True, help='of which the binary was built')
    parser.add_argument('--jobs', type=int, default=1)
    parser.add_argument('--kept', type=pathlib.Path, help='file to go on from')
    args = parser.parse_args()
    r = Report(args.binary, args.data, args.kept)
    print(HEAD.format(date=datetime.date.today().isoformat(), commit=args.commit))
    print('## Costs\n')
    r.verbatim('simulate', '--costs', *r.profiles())
    speed_rows = io.StringIO()
    with contextlib.redirect_stdout(speed_rows):
        speed(r)  # first: it measures CPU time of all that ran
    ahead(r, args.jobs)
    published(r)
    crossings(r)
    sensitivity(r)
    gangs(r)
    plans(r)
    print(speed_rows.getvalue())
    if args.twin:
        print(TWIN + f'```\n{args.twin.read_text().rstrip()}\n```\n')
    if args.tests:
        print('## Faults\n\n`sim_seeds` draws a scenario from each seed; `tests/sim/scenarios` holds scenarios as data. `sim_mutants` makes mistakes in the roles and says '
              'which were found, within how many seeds.\n')
        for program in (['sim_seeds', '--count', '2000'], ['sim_mutants']):
            out = re.sub(r'\S+/src/', 'src/', r.text([args.tests / program[0], *program[1:]])[0])  # not where it was built
            print(f'`{" ".join(program)}`\n\n```\n{out.rstrip()}\n```\n')


if __name__ == '__main__':
    main()
