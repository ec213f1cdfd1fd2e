#!/usr/bin/env python3
"""What process boundaries cost, and what faults do: a cluster of processes beside `shoal serve` on the same model, in turns (A B A B).

  bench/cluster.py [--model NAME] [--runs N] [--tokens N] [--streams N] [--only-streams] [--only-faults] [--faults] [--json FILE]

Prints: seconds per token at batch 1 of both, and the difference as a share and in microseconds; requests per second of short answers through one
gateway; open streams at once; with --faults the readers' gaps when a node, a gateway or a controller is killed or stopped under load.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import resource
import selectors
import signal
import socket
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / 'tests' / 'chaos'))
from cluster import Cluster, Readers, Server, ask, bodies, late_by_chance, models, undisturbed, wait_until  # noqa: E402


def token_seconds(url, model, tokens):
    """Of an answer, on average: tokens that come together would make a median of gaps mean nothing."""
    body = {'model': model, 'prompt': 'Once upon a time', 'max_tokens': tokens, 'temperature': 0, 'ignore_eos': True, 'stream': True}
    _, gaps, error = ask(url, body)
    assert error is None, error
    return statistics.mean(gaps[2:])


def cpu_seconds(*processes):
    """Of all threads so far. Unlike a time it hardly depends on what else the machine does."""
    ticks = 0
    for process in processes:
        fields = pathlib.Path(f'/proc/{process.process.pid}/stat').read_text().rsplit(')', 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf('SC_CLK_TCK')


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


def resident_bytes(process):
    for line in pathlib.Path(f'/proc/{process.process.pid}/status').read_text().splitlines():
        if line.startswith('VmRSS:'):
            return int(line.split()[1]) * 1024
    return 0


class Streams:
    """So many answers at once, each over a connection of its own; by one thread."""

    def __init__(self, url, body, count, seconds):
        host, port = url.removeprefix('http://').rsplit(':', 1)
        text = json.dumps(body)
        self.request = (f'POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}').encode()
        self.address, self.count, self.seconds = (host, int(port)), count, seconds
        self.started = self.answered = self.live_most = 0
        self.errors, self.gaps = {}, []

    def run(self, when_all_live):
        selector, until, open_now = selectors.DefaultSelector(), time.monotonic() + self.seconds, set()
        to_open, sampled = self.count, False
        while (to_open or open_now) and time.monotonic() < until:
            for _ in range(min(to_open, 200)):  # what the listener's queue holds
                stream = socket.create_connection(self.address, 30)
                stream.setblocking(False)
                selector.register(stream, selectors.EVENT_READ, {'tail': b'', 'last': None})
                stream.sendall(self.request)
                open_now.add(stream)
                to_open -= 1
            for key, _ in selector.select(0.05 if to_open else 1):
                if self.read(key.fileobj, key.data):
                    selector.unregister(key.fileobj)
                    open_now.discard(key.fileobj)
                    key.fileobj.close()
            live = self.started - self.answered - sum(self.errors.values())
            self.live_most = max(self.live_most, live)
            if live == self.count and not sampled:
                sampled = True
                when_all_live()
        for stream in open_now:
            self.fail('never ended')
            stream.close()
        self.gaps.sort()
        return self

    def fail(self, why):
        self.errors[why] = self.errors.get(why, 0) + 1

    def read(self, stream, state):
        """-> whether it ended"""
        try:
            data = stream.recv(65536)
        except BlockingIOError:
            return False
        except OSError as error:
            data, state['tail'] = b'', type(error).__name__.encode()
        if not data:
            self.started += state['last'] is None
            self.fail('it ended: ' + state['tail'][-60:].decode(errors='replace'))
            return True
        now = time.monotonic()
        if state['last'] is None:
            self.started += 1
            if not data.startswith(b'HTTP/1.1 200'):
                self.fail(data.split(b'\r\n')[0].decode())
                return True
        else:
            self.gaps.append(now - state['last'])
        state['last'] = now
        state['tail'] = (state['tail'] + data)[-64:]
        if b'data: [DONE]' not in state['tail']:
            return False
        self.answered += 1
        return True


def streams_at_once(cluster, model, count, tokens=96):
    """-> all were live at once, answers, errors, and the bytes that the gateway's process grew by for each"""
    gateway = cluster['gateway-0']
    body = {'model': model, 'prompt': 'a', 'max_tokens': tokens, 'temperature': 0, 'ignore_eos': True, 'stream': True}
    Streams(cluster.url(), body, 100, 60).run(lambda: None)  # what it makes once
    before, grown = resident_bytes(gateway), []
    streams = Streams(cluster.url(), body, count, 600).run(lambda: grown.append(resident_bytes(gateway) - before))
    gaps = streams.gaps or [0]
    return {'streams': count, 'live_at_once': streams.live_most, 'answered': streams.answered, 'errors': streams.errors, 'bytes_per_stream': grown[0] / count if grown else None,
            'gap_p50_ms': gaps[len(gaps) // 2] * 1e3, 'gap_p99_ms': gaps[len(gaps) * 99 // 100] * 1e3}


def faults(model_names):
    requests = bodies(model_names, tokens=120)
    expected = undisturbed(requests)
    rows = []

    def weather(name, make, nodes=2, retry_lost=False, gateways=1, words=None, made=lambda: None):
        cluster = Cluster(nodes=nodes, gateways=gateways, **(words or {}))
        made()
        with cluster.wait_ready(nodes):
            readers = Readers(cluster.urls(), requests, expected, retry_lost=retry_lost)
            time.sleep(1)
            make(cluster)
            time.sleep(2)
            readers.finish()
            rows.append({'fault': name, 'answers': readers.answers, 'failed': len(readers.failed), 'changed': len(readers.changed), 'asked_again': readers.retried,
                         'gap_p50_ms': readers.gap(.5) * 1e3, 'gap_p99_ms': readers.gap(.99) * 1e3, 'gap_max_ms': readers.gap(1) * 1e3})

    def kills(*names, times=6):
        def make(cluster):
            for turn in range(times):
                name = names[turn % len(names)]
                cluster[name].kill()
                time.sleep(0.3)
                cluster[name].start()
                wait_until(lambda: cluster.nodes_heard() == 2, 30)
                time.sleep(0.7)
        return make

    def stops(cluster):
        for name in ('node-0', 'node-1'):  # whichever has the work
            cluster[name].send(signal.SIGSTOP)
            time.sleep(5)
            cluster[name].send(signal.SIGCONT)
            wait_until(lambda: cluster.nodes_heard() == 2, 30)
            time.sleep(1)

    weather('none', lambda cluster: time.sleep(5))
    weather('nodes killed in turn', kills('node-0', 'node-1'))
    weather('nodes stopped in turn', stops)
    weather('gateway killed', kills('gateway-1'), retry_lost=True, gateways=2)
    weather('controller killed', kills('controller'))
    with late_by_chance(seed=7, seconds=0.04) as (words, made):
        weather('nodes killed, all late by chance', kills('node-0', 'node-1'), words=words, made=made)
    for transport in ('auto', 'tcp'):
        weather(f'nodes killed, KV by {transport}', kills('node-1', 'node-0'), words={'roles': ('prefill', 'decode'), 'node_words': ('--kv-transport', transport)})
    return rows


def many_streams(options):
    """Through one gateway, to a node that computes them all at once."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if options.streams + 100 > files[0]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(options.streams + 1000, files[1]), files[1]))
    node = ('--max-num-seqs', options.streams, '--max-num-queued-reqs', options.streams, '--max-num-batched-tokens', min(options.streams, 65536))
    with Cluster(nodes=1, node_words=node, gateway_words=('--max-connections', options.streams + 1000), memory='4GiB').wait_ready(1) as cluster:
        return streams_at_once(cluster, options.small, options.streams)


def print_streams(s):
    each = 'not known' if s['bytes_per_stream'] is None else f"{s['bytes_per_stream'] / 1024:.1f} KiB"
    print(f"  streams at once: {s['live_at_once']} of {s['streams']} live, {s['answered']} answered, {each} of the gateway's memory each; "
          f"gap p50 {s['gap_p50_ms']:.0f} ms, p99 {s['gap_p99_ms']:.0f} ms; errors: {s['errors'] or 'none'}")


def print_faults(options):
    names = ['tiny-llama', 'tiny-qwen3', 'tiny-qwen3-moe']
    rows = faults(names + [options.model] * bool(list(models().glob(options.model + '*'))))
    print(f"  {'fault':32} {'answers':>8} {'failed':>7} {'changed':>8} {'again':>6} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}")
    for row in rows:
        print(f"  {row['fault']:32} {row['answers']:8} {row['failed']:7} {row['changed']:8} {row['asked_again']:6} {row['gap_p50_ms']:8.1f} {row['gap_p99_ms']:8.1f} {row['gap_max_ms']:8.1f}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model', default='SmolLM2-135M-Instruct')
    parser.add_argument('--models', default=None, help='folder with it (default: what ./bootstrap serve serves)')
    parser.add_argument('--small', default='tiny-llama', help='model of the requests per second')
    parser.add_argument('--runs', type=int, default=10)
    parser.add_argument('--tokens', type=int, default=40, help='of each answer of a run')
    parser.add_argument('--streams', type=int, default=500)
    parser.add_argument('--only-streams', action='store_true')
    parser.add_argument('--faults', action='store_true')
    parser.add_argument('--only-faults', action='store_true')
    parser.add_argument('--json', default=None)
    options = parser.parse_args()
    if options.only_streams:
        print_streams(many_streams(options))
    if options.only_faults:
        print_faults(options)
    if options.only_streams or options.only_faults:
        return 0
    folder = options.models or models()
    one = Server('--threads', '1', '--device-memory', '1500MiB', models=folder)
    try:
        with Cluster(nodes=1, folder_of_models=folder, memory='1500MiB').wait_ready(1) as cluster:
            alone, apart, alone_rate, apart_rate = [], [], [], []
            for url in (one.url, cluster.url()):
                token_seconds(url, options.model, 4)  # it is loaded
            cpu, processes = {}, {'serve': (one,), 'cluster': (cluster['gateway-0'], cluster['node-0'])}
            before = {name: cpu_seconds(*of) for name, of in processes.items()}
            for _ in range(options.runs):
                alone.append(token_seconds(one.url, options.model, options.tokens))
                apart.append(token_seconds(cluster.url(), options.model, options.tokens))
            for name, of in processes.items():
                cpu[name] = (cpu_seconds(*of) - before[name]) / (options.runs * options.tokens)
            for _ in range(3):
                alone_rate.append(requests_per_second(one.url, options.small))
                apart_rate.append(requests_per_second(cluster.url(), options.small))
    finally:
        one.stop()
    opened = many_streams(options) if options.streams else None
    a, b = statistics.median(alone), statistics.median(apart)
    result = {'load_average': os.getloadavg()[0], 'token_us_serve': a * 1e6, 'token_us_cluster': b * 1e6, 'overhead_us': (b - a) * 1e6, 'overhead_share': (b - a) / a,
              'token_cpu_us': {name: each * 1e6 for name, each in cpu.items()}, 'requests_per_s_serve': statistics.median(alone_rate), 'requests_per_s_cluster': statistics.median(apart_rate), 'streams': opened}
    print(f"{options.model}, batch 1, medians of {options.runs} answers of {options.tokens} tokens in turn, load average {result['load_average']:.1f}")
    print(f"  a token: {a * 1e6:.0f} us by serve, {b * 1e6:.0f} us through gateway and node: {(b - a) * 1e6:+.0f} us, {100 * (b - a) / a:+.2f} %")
    print(f"  processor time of a token: {cpu['serve'] * 1e6:.0f} us by serve, {cpu['cluster'] * 1e6:.0f} us by gateway and node: {(cpu['cluster'] - cpu['serve']) * 1e6:+.0f} us")
    print(f"  requests of one token: {result['requests_per_s_serve']:.0f}/s by serve, {result['requests_per_s_cluster']:.0f}/s through a gateway")
    if opened:
        print_streams(opened)
    if options.faults:
        result['faults'] = print_faults(options)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
