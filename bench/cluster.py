#!/usr/bin/env python3
"""What process boundaries cost, and what faults do: a cluster of processes beside `shoal serve` on the same model, in turns (A B A B).

  bench/cluster.py [--model NAME] [--runs N] [--streams N] [--faults] [--json FILE]

Prints: seconds per token at batch 1 of both, and the difference as a share and in microseconds; requests per second of short answers through one
gateway; open streams at once; with --faults the readers' gaps when a node, a gateway or a controller is killed or stopped under load.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import signal
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / 'tests' / 'chaos'))
from cluster import Cluster, Readers, Server, ask, bodies, models, undisturbed, wait_until  # noqa: E402


def token_seconds(url, model, tokens=200):
    body = {'model': model, 'prompt': 'Once upon a time', 'max_tokens': tokens, 'temperature': 0, 'ignore_eos': True, 'stream': True}
    _, gaps, error = ask(url, body)
    assert error is None, error
    return statistics.median(gaps[2:])


def requests_per_second(url, model, seconds=3, clients=16):
    body = {'model': model, 'prompt': 'a', 'max_tokens': 1, 'temperature': 0, 'stream': True}
    until, count = time.monotonic() + seconds, 0

    def read():
        done = 0
        while time.monotonic() < until:
            assert ask(url, body)[2] is None
            done += 1
        return done
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        count = sum(pool.map(lambda _: read(), range(clients)))
    return count / seconds


def streams_at_once(url, model, count):
    body = {'model': model, 'prompt': 'a', 'max_tokens': 8, 'temperature': 0, 'ignore_eos': True, 'stream': True}
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        results = list(pool.map(lambda _: ask(url, body, timeout=300), range(count)))
    return sum(error is None for _, _, error in results)


def faults(model_names):
    requests = bodies(model_names, tokens=120)
    expected = undisturbed(requests)
    rows = []

    def weather(name, make, nodes=2, retry_lost=False, gateways=1):
        with Cluster(nodes=nodes, gateways=gateways).wait_ready(nodes) as cluster:
            readers = Readers(cluster.urls(), requests, expected, retry_lost=retry_lost)
            time.sleep(1)
            make(cluster)
            time.sleep(2)
            readers.finish()
            rows.append({'fault': name, 'answers': readers.answers, 'failed': len(readers.failed), 'changed': len(readers.changed), 'asked_again': readers.retried,
                         'gap_p50_ms': readers.gap(.5) * 1e3, 'gap_p99_ms': readers.gap(.99) * 1e3, 'gap_max_ms': readers.gap(1) * 1e3})

    def kills(name, times=5):
        def make(cluster):
            for _ in range(times):
                cluster[name].kill()
                time.sleep(0.3)
                cluster[name].start()
                wait_until(lambda: cluster.nodes_heard() == 2, 30)
                time.sleep(0.7)
        return make

    def stop(cluster):
        cluster['node-1'].send(signal.SIGSTOP)
        time.sleep(8)
        cluster['node-1'].send(signal.SIGCONT)
        wait_until(lambda: cluster.nodes_heard() == 2, 30)

    weather('none', lambda cluster: time.sleep(5))
    weather('node killed, 5 times', kills('node-1'))
    weather('node stopped 8 s', stop)
    weather('gateway killed, 5 times', kills('gateway-1'), retry_lost=True, gateways=2)
    weather('controller killed, 5 times', kills('controller'))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model', default='SmolLM2-135M-Instruct')
    parser.add_argument('--models', default=None, help='folder with it (default: what ./bootstrap serve serves)')
    parser.add_argument('--small', default='tiny-llama', help='model of the requests per second')
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--streams', type=int, default=500)
    parser.add_argument('--faults', action='store_true')
    parser.add_argument('--json', default=None)
    options = parser.parse_args()
    folder = options.models or models()
    one = Server('--threads', '1', '--device-memory', '1500MiB', models=folder)
    try:
        with Cluster(nodes=1, folder_of_models=folder, memory='1500MiB').wait_ready(1) as cluster:
            alone, apart, alone_rate, apart_rate = [], [], [], []
            for _ in range(options.runs):
                alone.append(token_seconds(one.url, options.model))
                apart.append(token_seconds(cluster.url(), options.model))
                alone_rate.append(requests_per_second(one.url, options.small))
                apart_rate.append(requests_per_second(cluster.url(), options.small))
            opened = streams_at_once(cluster.url(), options.small, options.streams)
    finally:
        one.stop()
    a, b = statistics.median(alone), statistics.median(apart)
    result = {'load_average': os.getloadavg()[0], 'token_us_serve': a * 1e6, 'token_us_cluster': b * 1e6, 'overhead_us': (b - a) * 1e6, 'overhead_share': (b - a) / a,
              'requests_per_s_serve': statistics.median(alone_rate), 'requests_per_s_cluster': statistics.median(apart_rate), 'streams_asked': options.streams, 'streams_answered': opened}
    print(f"{options.model}, batch 1, medians of {options.runs}, load average {result['load_average']:.1f}")
    print(f"  a token: {a * 1e6:.0f} us by serve, {b * 1e6:.0f} us through gateway and node: {(b - a) * 1e6:+.0f} us, {100 * (b - a) / a:+.2f} %")
    print(f"  requests of one token: {result['requests_per_s_serve']:.0f}/s by serve, {result['requests_per_s_cluster']:.0f}/s through a gateway")
    print(f"  streams at once: {opened} of {options.streams} answered")
    if options.faults:
        result['faults'] = faults(['tiny-llama', 'tiny-qwen3', 'tiny-qwen3-moe', options.model])
        print(f"  {'fault':28} {'answers':>8} {'failed':>7} {'changed':>8} {'again':>6} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}")
        for row in result['faults']:
            print(f"  {row['fault']:28} {row['answers']:8} {row['failed']:7} {row['changed']:8} {row['asked_again']:6} {row['gap_p50_ms']:8.1f} {row['gap_p99_ms']:8.1f} {row['gap_max_ms']:8.1f}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
