#!/usr/bin/env python3
"""soak.py [--seconds 3600] [--models 12] [--seed 1] [--binary build/release/shoal] [--model-io mmap|direct]

The real server with many small models on a device for two or three of them, for as long as it is told: random clients that
read to the end or hang up, an operator who loads and unloads, a configuration that is reloaded, and a model file that is
replaced, cut, vanishes and comes back meanwhile. Every answer must be the one that the model gave alone at the beginning,
only requests of the damaged model may fail (and of the replaced one, if they were being answered), and the server's own
memory must not grow. Ends by itself; the last line is the sum, exit 1 if anything was wrong. Needs nothing but Python.
"""
import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ['tiny-llama', 'tiny-qwen3']
TOKENS_MAX = 60
VARIANTS = 5


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Operator(http.client.HTTPConnection):
    """The operator's listener."""

    def __init__(self, path):
        super().__init__('localhost', timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Soak:
    def __init__(self, flags):
        self.flags = flags
        self.count = collections.Counter()
        self.wrong = []
        self.lock = threading.Lock()
        self.damaged = False          # the last model's file
        self.damage_mended_at = 0.0
        self.stop_at = 0.0
        self.expected = {}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='shoal-soak-'))
        self.models = [f'm{i:02}' for i in range(flags.models)]
        (self.folder / 'models').mkdir()
        for i, name in enumerate(self.models):
            shutil.copytree(ROOT / 'models' / NAMES[i % 2], self.folder / 'models' / name)
        self.config = self.folder / 'shoal.yaml'
        self.config.write_text('log-level: info\n')
        self.port = free_port()
        args = [flags.binary, 'serve', str(self.folder / 'models'), '--port', str(self.port), '--config', str(self.config), '--admin-socket', str(self.folder / 'operator'),
                '--device-memory', '20MiB', '--host-memory', '16MiB', '--max-model-len', '512', '--max-num-batched-tokens', '64',
                '--max-num-seqs', '16', '--threads', '2', '--model-io', flags.model_io]
        if flags.model_io == 'direct':
            args += ['--weight-cache', '16MiB']
        self.log = open(self.folder / 'log', 'w')
        self.server = subprocess.Popen(args, stdout=self.log, stderr=subprocess.STDOUT)

    # ---- the server, seen from outside --------------------------------------------------------------------------------

    def request(self, method, path, body=None, timeout=120):
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=timeout)
        try:
            connection.request(method, path, body and json.dumps(body), {'Content-Type': 'application/json'})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def wait_ready(self):
        deadline = time.time() + 60
        while time.time() < deadline:
            try:
                if self.request('GET', '/readyz')[0] == 200:
                    return
            except OSError:
                pass
            if self.server.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f'the server is not ready: see {self.folder}/log')

    def own_memory(self):
        """Bytes that are not of mapped files."""
        for line in open(f'/proc/{self.server.pid}/smaps_rollup'):
            if line.startswith('Anonymous:'):
                return int(line.split()[1]) * 1024
        return 0

    def body(self, model, variant, tokens):
        return {'model': model, 'prompt': [(j * 7919 + variant * 31) % 700 + 10 for j in range(20 + 20 * variant)], 'max_tokens': tokens,
                'temperature': 0 if variant % 2 == 0 else 0.9, 'seed': variant, 'ignore_eos': True, 'stream': True}

    # ---- clients --------------------------------------------------------------------------------------------------------

    def fail(self, what):
        with self.lock:
            self.wrong.append(what)
            if len(self.wrong) <= 10:
                print('WRONG:', what, flush=True)

    def ask(self, model, variant, tokens, hang_up=False):
        """-> the text, or None if it was not to come or failed with reason."""
        began = time.time()
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=120)
        try:
            connection.request('POST', '/v1/completions', json.dumps(self.body(model, variant, tokens)), {'Content-Type': 'application/json'})
            answer = connection.getresponse()
            if answer.status != 200:
                return self.refused(model, began, answer.status, answer.read())
            text, chunks, leave, end = '', 0, random.randint(0, tokens), None
            for line in answer:
                if line.startswith(b'data: [DONE]') and end == 'length':
                    self.count['answers'] += 1
                    return text
                if not line.startswith(b'data: {'):
                    continue
                event = json.loads(line[6:])
                if 'error' in event:
                    return self.refused(model, began, event['error'].get('code'), line)
                for choice in event['choices']:
                    text += choice['text']
                    end = choice['finish_reason'] or end
                chunks += 1
                if hang_up and chunks >= leave:
                    self.count['hung up'] += 1
                    return None
            return self.fail(f'{model}, prompt {variant}: ended after {text!r} with {end}')
        finally:
            connection.close()

    def refused(self, model, began, status, what):
        # A request may fail by a damage if it began before the file was whole again, or a moment later.
        by_damage = self.damaged or began < self.damage_mended_at + 3
        if model == self.models[-1] and (by_damage or b'were replaced while this answer was being written' in what):
            self.count['failed as asked'] += 1
        else:
            self.fail(f'{model}: after {time.time() - began:.1f} s: {status} {what[:300]!r}')

    def client(self, seed):
        rng = random.Random(seed)
        while time.time() < self.stop_at and len(self.wrong) < 100:
            model, variant, tokens = rng.choice(self.models), rng.randrange(VARIANTS), rng.randint(1, TOKENS_MAX)
            try:
                text = self.ask(model, variant, tokens, hang_up=rng.random() < 0.25)
            except OSError as error:
                self.fail(f'{model}: {error!r}')
                continue
            if text is not None and not self.expected[model, variant].startswith(text):
                self.fail(f'{model}, prompt {variant}: another answer: {text!r}')
            time.sleep(rng.random() * 0.05)

    def alone(self):
        for i, model in enumerate(self.models):
            for variant in range(VARIANTS):
                if i < len(NAMES):
                    self.expected[model, variant] = self.ask(model, variant, TOKENS_MAX)
                else:
                    self.expected[model, variant] = self.expected[self.models[i % len(NAMES)], variant]

    # ---- what happens meanwhile ---------------------------------------------------------------------------------------------

    def mishaps(self):
        rng = random.Random(self.flags.seed)
        victim = self.models[-1]
        file = self.folder / 'models' / victim / 'model.safetensors'
        good = file.read_bytes()
        while time.time() < self.stop_at:
            time.sleep(min(rng.uniform(1, 4), max(self.stop_at - time.time(), 0)))
            what = rng.choice(['cut', 'vanish', 'replace', 'reload', 'load', 'unload'])
            self.count[what] += 1
            if what == 'reload':
                self.config.write_text(f'log-level: {rng.choice(["info", "warning"])}\n')
                self.server.send_signal(signal.SIGHUP)
                continue
            if what in ('load', 'unload'):
                self.operate(what, rng.choice(self.models[:-1]))
                continue
            if what == 'replace':  # by the same bytes, as it should be done
                (file.parent / 'new').write_bytes(good)
                os.replace(file.parent / 'new', file)
                continue
            self.damaged = True
            if what == 'cut':
                os.truncate(file, len(good) // 2)
            else:
                file.unlink()
            time.sleep(rng.uniform(0.2, 1.5))
            (file.parent / 'new').write_bytes(good)
            os.replace(file.parent / 'new', file)
            self.damage_mended_at = time.time()
            self.damaged = False
            time.sleep(3)

    def operate(self, what, model):
        operator = Operator(str(self.folder / 'operator'))
        try:
            operator.request('POST', f'/models/{what}', json.dumps({'model': model}), {'Content-Type': 'application/json'})
            answer = operator.getresponse()
            told = answer.read()
            if answer.status >= 300:
                self.fail(f'{what} {model}: {answer.status} {told[:300]!r}')
        except OSError as error:
            self.fail(f'{what} {model}: {error!r}')
        finally:
            operator.close()

    def run(self):
        self.wait_ready()
        self.alone()
        begin = time.time()
        self.stop_at = begin + self.flags.seconds
        threads = [threading.Thread(target=self.client, args=(self.flags.seed * 1000 + i,)) for i in range(self.flags.clients)]
        threads.append(threading.Thread(target=self.mishaps))
        for thread in threads:
            thread.start()
        early = told = 0
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.5)
            if self.server.poll() is not None:
                self.fail(f'the server ended with {self.server.returncode}')
                self.stop_at = 0
                break
            if time.time() - told < 10:
                continue
            told = time.time()
            now = self.own_memory()
            if not early and told - begin > min(60, self.flags.seconds / 3):
                early = now
            print(f'{told - begin:6.0f} s: {dict(self.count)}, {now >> 20} MiB of its own, {len(self.wrong)} wrong', flush=True)
        for thread in threads:
            thread.join()
        late = self.own_memory() if self.server.poll() is None else 0
        if early and late > early + (32 << 20):
            self.fail(f'memory has grown from {early >> 20} to {late >> 20} MiB')
        self.server.terminate()
        if self.server.wait(60) != 0:
            self.fail(f'the server ended with {self.server.returncode}')
        print(f'{time.time() - begin:.0f} s: {dict(self.count)}, own memory {early >> 20} -> {late >> 20} MiB, {len(self.wrong)} wrong', flush=True)
        if not self.wrong:
            shutil.rmtree(self.folder)
        return 1 if self.wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=float, default=3600)
    parser.add_argument('--models', type=int, default=12)
    parser.add_argument('--clients', type=int, default=10)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--binary', default=str(ROOT / 'build' / 'release' / 'shoal'))
    parser.add_argument('--model-io', default='mmap', choices=['mmap', 'direct'])
    sys.exit(Soak(parser.parse_args()).run())


if __name__ == '__main__':
    main()
