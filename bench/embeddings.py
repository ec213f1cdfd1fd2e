#!/usr/bin/env python3
"""embeddings.py: texts per second of /v1/embeddings, beside llama-server of llama.cpp and beside sentence-transformers.

Texts are paragraphs of the project's documents, cut to --words words. Each side is asked in turn (A B A B), medians of --runs: one text after
the other; requests of --batch texts; --clients clients with such requests at once. sentence-transformers is called
within its own process (--sentence-transformers PYTHON that has it): no HTTP is in its figures, and it has no clients. Vectors are compared: the
smallest cosine between ours and theirs is printed.

  bench/embeddings.py --model FOLDER --peer-server /opt/llama.cpp/bin/llama-server --peer-model FILE.gguf --sentence-transformers VENV/bin/python
"""
import argparse
import concurrent.futures
import http.client
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pooling  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Reads lines [texts, batch size], answers [seconds, vectors].
CALLED = '''
import json, sys, time, torch
from sentence_transformers import SentenceTransformer
torch.set_num_threads(int(sys.argv[2]))
model = SentenceTransformer(sys.argv[1], device='cpu')
for line in sys.stdin:
    texts, batch = json.loads(line)
    began = time.perf_counter()
    if batch == 1:
        vectors = [model.encode(text, show_progress_bar=False) for text in texts]
    else:
        vectors = model.encode(texts, batch_size=batch, show_progress_bar=False)
    took = time.perf_counter() - began
    print(json.dumps([took, [v.tolist() for v in vectors]]), flush=True)
'''


def paragraphs(count, words):
    found = []
    for path in sorted((ROOT / 'docs').glob('*.md')):
        for text in re.split(r'\n\s*\n', path.read_text()):
            plain = re.sub(r'[^A-Za-z0-9 ,.;:()-]+', ' ', text).split()
            if len(plain) >= 8 and '|' not in text:
                found.append(' '.join(plain[:words]))
    return (found * (count // len(found) + 1))[:count]


class Http:
    def __init__(self, name, command, port, log):
        self.server = pooling.Server(name, command, port, log)
        self.port = port

    def ask(self, connection, texts):
        connection.request('POST', '/v1/embeddings', json.dumps({'model': 'bench', 'input': texts}), {'Content-Type': 'application/json'})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise SystemExit(f'port {self.port}: {answer.status} {body[:300]}')
        return [one['embedding'] for one in json.loads(body)['data']]

    def encode(self, texts, batch, clients=1):
        """-> (seconds, vectors)"""
        pieces = [texts[at:at + batch] for at in range(0, len(texts), batch)]

        def client(number):
            connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=600)
            return {at: self.ask(connection, pieces[at]) for at in range(number, len(pieces), clients)}
        began = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            parts = list(pool.map(client, range(clients)))
        took = time.perf_counter() - began
        return took, [vector for at in range(len(pieces)) for vector in parts[at % clients][at]]

    def stop(self):
        self.server.stop()


class InPython:
    def __init__(self, python, model, threads):
        self.process = subprocess.Popen([python, '-c', CALLED, model, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def encode(self, texts, batch, clients=1):
        if clients > 1:
            return None
        self.process.stdin.write(json.dumps([texts, batch]) + '\n')
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit('sentence-transformers ended; does its Python have it, and the model its files?')
        return json.loads(line)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(60)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def start(args):
    sides = {}
    port = pooling.free_port(args.port)
    log = pathlib.Path(args.log_dir)
    sides['shoal'] = Http('shoal', [args.shoal, 'serve', args.model, '--alias', 'bench', '--config', 'none', '--admin-socket', 'none', '--threads', str(args.threads),
                                    '--log-level', 'warning', '--port', str(port)], port, log / 'embeddings_shoal.log')
    if args.peer_server:
        port = pooling.free_port(port + 1)
        sides['llama-server'] = Http('llama-server', [args.peer_server, '-m', args.peer_model, '--alias', 'bench', '--embeddings', '-t', str(args.threads), '-tb', str(args.threads),
                                                      '-c', '8192', '-b', '8192', '-ub', '8192', '-np', '16', '--host', '127.0.0.1', '--port', str(port)],
                                     port, log / 'embeddings_peer.log')
    if args.sentence_transformers:
        sides['sentence-transformers'] = InPython(args.sentence_transformers, args.python_model or args.model, args.threads)
    return sides


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--shoal', default=str(ROOT / 'build' / 'release' / 'shoal'))
    parser.add_argument('--model', required=True, help='what shoal serves')
    parser.add_argument('--peer-server')
    parser.add_argument('--peer-model', help='the same as GGUF')
    parser.add_argument('--sentence-transformers', metavar='PYTHON')
    parser.add_argument('--python-model', help='the folder that sentence-transformers reads, where it is not --model')
    parser.add_argument('--threads', type=int, default=os.cpu_count())
    parser.add_argument('--texts', type=int, default=256)
    parser.add_argument('--words', type=int, default=64)
    parser.add_argument('--batch', type=int, default=32)
    parser.add_argument('--clients', type=int, default=8)
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--port', type=int, default=18_950)
    parser.add_argument('--log-dir', default='/tmp')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    texts = paragraphs(args.texts, args.words)
    ways = {'one by one': (1, 1), f'{args.batch} a request': (args.batch, 1), f'{args.clients} clients': (args.batch, args.clients)}
    sides = start(args)
    rates, vectors = {way: {name: [] for name in sides} for way in ways}, {}
    try:
        for run in range(args.runs + 1):  # the first is not counted
            for way, (batch, clients) in ways.items():
                some = texts if batch > 1 else texts[:64]
                for name, side in sides.items():
                    result = side.encode(some, batch, clients)
                    if result is None:
                        continue
                    vectors.setdefault(name, result[1])
                    if run > 0:
                        rates[way][name].append(len(some) / result[0])
    finally:
        for side in sides.values():
            side.stop()
    least = {name: min(cosine(a, b) for a, b in zip(vectors['shoal'], other)) for name, other in vectors.items() if name != 'shoal'}
    rows = {way: {name: statistics.median(all_runs) for name, all_runs in by.items() if all_runs} for way, by in rates.items()}
    if args.json:
        print(json.dumps({'texts': len(texts), 'runs': args.runs, 'load_average': os.getloadavg()[0], 'texts_per_s': rows, 'least_cosine': least}))
        return
    print(f'{len(texts)} texts of up to {args.words} words, {args.threads} threads, medians of {args.runs}, load average {os.getloadavg()[0]:.2f}; texts per second')
    for way, by in rows.items():
        print(f'{way:16}' + ''.join(f'  {name} {rate:8.1f}' + (f" ({by['shoal'] / rate:.2f}x)" if name != 'shoal' else '') for name, rate in by.items()))
    print('least cosine: ' + ', '.join(f'{name} {value:.6f}' for name, value in least.items()))


if __name__ == '__main__':
    main()
