#!/usr/bin/env python3
"""The long run: kills nodes, gateways and controllers under load, again and again, and compares every answer.

  tests/chaos/campaign.py --kills 100        100 of each; ends by itself; prints a line a kind and exits with 1 if anything failed or changed
"""
import argparse
import random
import sys
import time

from cluster import Cluster, Readers, bodies, models, undisturbed, wait_until


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--kills', type=int, default=100, help='of each kind')
    parser.add_argument('--nodes', type=int, default=3)
    parser.add_argument('--readers', type=int, default=6)
    parser.add_argument('--etcd', action='store_true', help='with etcd instead of the directory of a controller')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--kinds', default='node,gateway,controller')
    options = parser.parse_args()
    chance = random.Random(options.seed)
    names = ['tiny-llama', 'tiny-qwen3', 'tiny-qwen3-moe'] + (['SmolLM2-135M-Instruct'] if (models() / 'SmolLM2-135M-Instruct.gguf').exists() else [])
    requests = bodies(names, tokens=120)
    expected = undisturbed(requests)
    bad = 0
    for kind in options.kinds.split(','):
        gateways = 2 if kind == 'gateway' else 1
        with Cluster(nodes=options.nodes, gateways=gateways, etcd=options.etcd).wait_ready(options.nodes) as cluster:
            readers = Readers(cluster.urls(), requests, expected, count=options.readers, retry_lost=kind == 'gateway')
            victims = {'node': [f'node-{i}' for i in range(options.nodes)], 'gateway': ['gateway-1'], 'controller': ['controller']}[kind]
            for kill in range(options.kills):
                victim = chance.choice(victims)
                time.sleep(chance.uniform(0.05, 0.8))
                cluster[victim].kill()
                time.sleep(chance.uniform(0.0, 0.5))
                cluster[victim].start()
                watched = 'gateway-1' if kind == 'gateway' else 'gateway-0'
                if not wait_until(lambda: cluster.nodes_heard(watched) == options.nodes, 60):
                    print(f'{kind}: after kill {kill + 1} only {cluster.nodes_heard(watched)} nodes are heard\n{cluster.logs()}')
                    bad += 1
                    break
            readers.finish()
            print(f'{kind}: {kill + 1} kills; {readers.summary()}', flush=True)
            for what in readers.failed[:3] + readers.changed[:1]:
                print('  ', what)
            bad += len(readers.failed) + len(readers.changed)
    print('all held' if bad == 0 else f'{bad} did not hold')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
