#!/usr/bin/env python3
"""expert_faults.py: expert servers killed, stopped, added and drained under load, on real processes.

For each fault: the gaps between tokens of the streams that were under way, the longest one, what was lost (requests that failed) and what was changed
(answers that differ from those without a fault). Everything ends by itself.
"""
import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time

from experts import BINARY, ROOT, expert, listed, serving, stream


def under_load(url, model, streams, tokens, fault):
    """-> (gaps in ms, texts or None of those that failed)"""
    def one(seed):
        try:
            return stream(url, model, tokens, seed)
        except Exception as error:  # noqa: BLE001: a request that failed, however it did
            print('  lost:', error)
            return [], None
    with concurrent.futures.ThreadPoolExecutor(streams + 1) as pool:
        futures = [pool.submit(one, seed) for seed in range(streams)]
        time.sleep(0.1)  # they are under way
        fault()
        results = [future.result() for future in futures]
    gaps = sorted(1e3 * (b - a) for times, _ in results for a, b in zip(times, times[1:]))
    return gaps, [text for _, text in results]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--models', default=ROOT / 'models' / 'tiny-qwen3-moe')
    parser.add_argument('--streams', type=int, default=4)
    parser.add_argument('--tokens', type=int, default=400)
    flags = parser.parse_args()
    model = pathlib.Path(flags.models).name
    print(f'{flags.streams} streams of {flags.tokens} tokens, {model}; load average {os.getloadavg()[0]:.1f}')

    def fresh(stack, folder, name):
        return stack.enter_context(expert(flags.models, folder, name, '--experts', '*:*', '--threads', '1', '--memory', '2GiB'))

    def admin(port, *words):
        result = subprocess.run([str(BINARY), 'experts', *words, '--port', str(port)], capture_output=True, text=True)
        if result.returncode != 0:
            print('  ', result.stderr.strip())

    wanted = None
    for name in ['nothing', 'kill -9 of one of two', 'SIGSTOP of one of two', 'kill -9 of two of three', 'kill -9 of the only one, another is started 1 s later', 'a third added, the first drained']:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            count = 3 if 'three' in name else 1 if 'only' in name else 2
            servers = [fresh(stack, folder, f'e{i}') for i in range(count)]
            addresses = [address for address, _ in servers]
            url, port = stack.enter_context(serving(flags.models, '--threads', '1', '--experts', ','.join(addresses)))
            stream(url, model, 8, 0)

            def fault():
                if 'kill' in name:
                    for _, process in servers[:2 if 'two of three' in name else 1]:
                        process.send_signal(signal.SIGKILL)
                if 'SIGSTOP' in name:
                    servers[0][1].send_signal(signal.SIGSTOP)
                    threading.Timer(2, servers[0][1].send_signal, [signal.SIGCONT]).start()
                if 'only' in name:
                    time.sleep(1)
                    with contextlib.suppress(OSError):
                        os.unlink(addresses[0][5:])
                    fresh(stack, folder, 'e0')
                if 'drained' in name:
                    address, _ = fresh(stack, folder, 'e2')
                    admin(port, 'add', address)
                    admin(port, 'drain', 'e0')
            gaps, texts = under_load(url, model, flags.streams, flags.tokens, fault)
            wanted = wanted or texts
            lost = sum(text is None for text in texts)
            changed = sum(text is not None and text != want for text, want in zip(texts, wanted))
            counts = listed(port)['counts']
            print(f'{name:56} gap p50 {gaps[len(gaps) // 2]:6.2f} p99 {gaps[int(len(gaps) * 0.99)]:7.2f} max {gaps[-1]:8.2f} ms   lost {lost} changed {changed}   '
                  f"rows sent again {counts['rows_resent']}, passes deferred {counts['deferred']}", flush=True)


if __name__ == '__main__':
    main()
