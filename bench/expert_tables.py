#!/usr/bin/env python3
"""Writes docs/EXPERTS-SIMULATION.md: every table of `shoal simulate --experts all`, as printed."""
import argparse
import datetime
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEAD = '''# Experts as services, simulated

Printed by `bench/expert_tables.py` on {day}, at commit {commit}. **Every figure on this page is simulated**, and stands beside what the two publications report
(Expert-as-a-Service, arXiv 2509.17863; attention apart from experts, Baidu Baige). Each table says how it came about:

- **messages**: clients, servers and a monitor over an event heap, with the object files of production for slots (`src/slots`) and for when a server begins (`slots/batch.h`), and
  those of `policy` for placement (`expert_placement.h`) and for what a layer asks of whom and asks again (`expert_calls.h`; the client of real servers keeps that account itself). Short windows, a part of the layers.
- **aggregate**: a layer at a time, every layer alike: rooflines of data sheets with stated efficiencies (`src/sim/expert_costs.h`), and the production policies that
  choose lanes, ratios and numbers of servers. No launches but 50 us of the attention kernel, no host, no imbalance unless a table has it: upper bounds, to be compared with each other only.

Where a figure does not reach the published one, or goes beyond it, it is printed so. `shoal plan --experts 2048,8192 --kinds H800=3.10 --tbt 0.1` prints the prices for loads of your own;
`build/release/tests/sim/sim_experts --count 1000` looks for lost or wrong answers under faults; `build/release/bench/expert_placement` says what a decision of the planners costs.

`shoal simulate --experts all`

```
'''


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--shoal', default=str(ROOT / 'build/release/shoal'))
    parser.add_argument('--out', default=str(ROOT / 'docs/EXPERTS-SIMULATION.md'))
    args = parser.parse_args()
    printed = subprocess.run([args.shoal, 'simulate', '--experts', 'all'], check=True, capture_output=True, text=True, timeout=1800).stdout
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    pathlib.Path(args.out).write_text(HEAD.format(day=datetime.date.today(), commit=commit) + printed.rstrip() + '\n```\n')


if __name__ == '__main__':
    main()
