"""A cluster of real processes, and readers that compare each answer with the one of an undisturbed process."""
import asyncio
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests' / 'e2e'))
from conftest import BINARY, Server, free_port, http as call, wait_until  # noqa: E402

MODELS = ROOT / 'build' / 'models'
ENVIRONMENT = {**os.environ, 'SHOAL_ESTIMATES': 'none', 'SHOAL_DIGESTS': 'none'}


def models():
    """The bundled models, and the real one where it was fetched."""
    return MODELS if MODELS.exists() else ROOT / 'models'


class Process:
    """One process of a cluster: started, killed, stopped and started again under its name."""

    def __init__(self, folder, name, *words, prefix=(), environment=None):
        self.name, self.words, self.prefix, self.environment = name, [str(w) for w in words], list(prefix), environment or ENVIRONMENT
        self.log_path = pathlib.Path(folder) / f'{name}.log'
        self.process = None
        self.start()

    def start(self):
        assert self.process is None or self.process.poll() is not None
        log = open(self.log_path, 'a')
        self.process = subprocess.Popen([*self.prefix, str(BINARY), *self.words], stdout=log, stderr=subprocess.STDOUT, env=self.environment)
        log.close()

    def log(self):
        return self.log_path.read_text(errors='replace')

    @property
    def alive(self):
        return self.process.poll() is None

    def send(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.send(signal.SIGKILL)
        self.process.wait(20)

    def end(self, seconds=20):
        if not self.alive:
            return self.process.returncode
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return None


class Etcd:
    def __init__(self, folder, client=None, words=()):
        self.data, self.words = pathlib.Path(folder) / 'etcd', words
        self.client, self.peer = client or free_port(), free_port()
        self.join = f'etcd://127.0.0.1:{self.client}'
        self.process = None
        self.start()

    def start(self):
        url, peer = f'http://127.0.0.1:{self.client}', f'http://127.0.0.1:{self.peer}'
        self.process = subprocess.Popen(['etcd', '--data-dir', str(self.data), '--listen-client-urls', url, '--advertise-client-urls', url, '--listen-peer-urls', peer,
                                         '--initial-advertise-peer-urls', peer, '--initial-cluster', f'default={peer}', '--log-level', 'fatal', '--unsafe-no-fsync', *self.words],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self):
        self.process.kill()
        self.process.wait()

    def wipe(self):
        """It comes back with nothing of what it knew."""
        self.stop()
        subprocess.run(['rm', '-rf', str(self.data)], check=True)
        self.start()


def admin(path_of_socket, path):
    connection = http.client.HTTPConnection('localhost', timeout=20)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(20)
    connection.sock.connect(str(path_of_socket))
    connection.request('GET', path)
    return json.loads(connection.getresponse().read())


def nodes_heard(path_of_socket):
    with contextlib.suppress(OSError, ValueError):
        return len(admin(path_of_socket, '/status')['nodes'])
    return 0


class Cluster:
    """A controller (with the directory, or etcd's), `nodes` nodes and `gateways` gateways."""

    def __init__(self, nodes=2, gateways=1, etcd=False, folder_of_models=None, node_words=(), words=(), roles=(), prefix_of=lambda name: (), listen_of=lambda name: '127.0.0.1:0', joined_words=(), gateway_words=(), join=None,
                 etcd_words=(), environment_of=lambda name: None, memory='600MiB'):
        self.folder = tempfile.mkdtemp(prefix='shoal-chaos-')
        self.etcd = Etcd(self.folder, words=etcd_words) if etcd else None
        self.join = join or (self.etcd.join if etcd else f'unix:{self.folder}/cluster.sock')
        self.words = [str(w) for w in words]
        self.processes = {}
        self.ports = {}
        controller = ['--listen', self.join] if self.join.startswith('unix:') else ['--join', self.join]
        self.add('controller', 'controller', *controller, '--name', 'controller')
        for i in range(nodes):
            name = f'node-{i}'
            role = ['--role', roles[i]] if i < len(roles) else []
            self.add(name, 'node', folder_of_models or models(), '--join', self.join, '--name', name, '--listen', listen_of(name), *joined_words, '--threads', '1', '--device-memory', memory, *role, *node_words,
                     prefix=prefix_of(name), environment=environment_of(name))
        for i in range(gateways):
            name = f'gateway-{i}'
            self.ports[name] = free_port()
            self.add(name, 'gateway', '--join', self.join, '--name', name, '--listen', listen_of(name), *joined_words, '--port', self.ports[name], '--admin-socket', f'{self.folder}/{name}.sock', *gateway_words,
                     prefix=prefix_of(name))

    def add(self, name, *words, prefix=(), environment=None, with_words=True):
        """With the words of all processes, or without."""
        self.processes[name] = Process(self.folder, name, *words, *(self.words if with_words else ()), prefix=prefix, environment=environment)
        return self.processes[name]

    def __getitem__(self, name):
        return self.processes[name]

    def url(self, gateway='gateway-0'):
        return f'http://127.0.0.1:{self.ports[gateway]}'

    def urls(self):
        return [self.url(name) for name in self.ports]

    def admin(self, path, gateway='gateway-0'):
        return admin(f'{self.folder}/{gateway}.sock', path)

    def nodes_heard(self, gateway='gateway-0'):
        return nodes_heard(f'{self.folder}/{gateway}.sock')

    def wait_ready(self, nodes, seconds=60):
        for gateway in self.ports:
            assert wait_until(lambda: self.nodes_heard(gateway) == nodes, seconds), f'{gateway} hears {self.nodes_heard(gateway)} nodes:\n{self.logs()}'
            assert wait_until(lambda: call(self.url(gateway) + '/v1/models')[2].get('data'), seconds), self.logs()
        return self

    def logs(self, last=4000):
        return '\n'.join(f'---- {name}\n{p.log()[-last:]}' for name, p in self.processes.items())

    def end(self):
        for name in [*self.ports, *(n for n in self.processes if n not in self.ports and n != 'controller'), 'controller']:
            if name in self.processes:
                self.processes[name].end()
        if self.etcd:
            self.etcd.stop()
        subprocess.run(['rm', '-rf', self.folder], check=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


class Delays:
    """Everything to 127.0.0.2:PORT goes to 127.0.0.1:PORT in pieces of any size, each late by up to `seconds`: connections overtake each other."""

    def __init__(self, seed, seconds):
        self.chance, self.seconds, self.loop, self.ports = random.Random(seed), seconds, asyncio.new_event_loop(), set()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def watch(self, port):
        if port not in self.ports:
            self.ports.add(port)
            asyncio.run_coroutine_threadsafe(asyncio.start_server(lambda r, w: self.pipe(port, r, w), '127.0.0.2', port), self.loop).result(5)

    async def pipe(self, port, reader, writer):
        try:
            there = await asyncio.open_connection('127.0.0.1', port)
        except OSError:
            return writer.close()
        await asyncio.gather(self.carry(reader, there[1]), self.carry(there[0], writer))

    async def carry(self, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(self.chance.randint(1, 65536)):
                await asyncio.sleep(self.chance.uniform(0, self.seconds))
                writer.write(data)
                await writer.drain()
        writer.close()

    def end(self):
        async def stop():
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
        asyncio.run_coroutine_threadsafe(stop(), self.loop).result(5)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)


@contextlib.contextmanager
def late_by_chance(seed, seconds):
    """-> what to tell a Cluster so that its processes reach each other late, and what to call when it was made."""
    delays, port_of = Delays(seed, seconds), {}
    try:
        yield ({'listen_of': lambda name: f'127.0.0.1:{port_of.setdefault(name, free_port())}', 'joined_words': ('--advertise', '127.0.0.2')},
               lambda: [delays.watch(port) for port in port_of.values()])
    finally:
        delays.end()


# ---- readers ------------------------------------------------------------------------------------------------------------------

def bodies(names, tokens=200):
    """Requests of all kinds whose answers are the same whenever and wherever they are computed."""
    texts = ['The capital of Denmark is', 'Count: 1 2 3', 'Once upon a time there was', 'A list of words: apple,', 'Question: what is 2 + 2? Answer:']
    out = []
    for i, (name, text) in enumerate(itertools.product(names, texts)):
        body = {'model': name, 'prompt': text, 'max_tokens': tokens, 'ignore_eos': True, 'stream': True}
        body.update({'temperature': 0} if i % 2 == 0 else {'temperature': 1.0, 'seed': 100 + i, 'top_p': 0.9})
        out.append(body)
    return out


def ask(url, body, timeout=120):
    """-> (text, gaps in seconds, error or None)"""
    host = url.removeprefix('http://')
    connection = http.client.HTTPConnection(host, timeout=timeout)
    text, gaps, last = '', [], time.monotonic()
    try:
        connection.request('POST', '/v1/completions', json.dumps(body), {'Content-Type': 'application/json'})
        answer = connection.getresponse()
        if answer.status != 200:
            return text, gaps, f'{answer.status}: {answer.read().decode()[:300]}'
        done = False
        for line in answer:
            line = line.strip()
            if not line.startswith(b'data: '):
                continue
            if line == b'data: [DONE]':
                done = True
                break
            event = json.loads(line[6:])
            if 'error' in event:
                return text, gaps, f'error event: {event["error"]}'
            now = time.monotonic()
            gaps.append(now - last)
            last = now
            text += event['choices'][0]['text'] if event['choices'] else ''
        return text, gaps, None if done else 'the stream ended without [DONE]'
    except (OSError, http.client.HTTPException, ValueError) as error:
        return text, gaps, f'{type(error).__name__}: {error}'
    finally:
        connection.close()


def undisturbed(requests, folder_of_models=None, *words):
    """The answer of each request by one process that nothing happens to."""
    server = Server(*words, models=folder_of_models or models())
    try:
        answers = [ask(server.url, body) for body in requests]
    finally:
        server.stop()
    assert all(error is None for _, _, error in answers), [a[2] for a in answers]
    return [text for text, _, _ in answers]


class Readers:
    """`count` clients that ask one request after the other until they are told to stop."""

    def __init__(self, urls, requests, expected, count=6, retry_lost=False):
        self.urls, self.requests, self.expected, self.retry_lost = urls, requests, expected, retry_lost
        self.failed, self.changed, self.gaps, self.answers, self.retried = [], [], [], 0, 0
        self.lock = threading.Lock()
        self.stop_asking = threading.Event()
        self.threads = [threading.Thread(target=self.read, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def read(self, number):
        turn = number
        while not self.stop_asking.is_set():
            which = turn % len(self.requests)
            text, gaps, error = ask(self.urls[turn % len(self.urls)], self.requests[which])
            with self.lock:
                if error and self.retry_lost and not error.startswith(('4', 'error event')):
                    self.retried += 1  # its gateway is gone; a client asks again
                elif error:
                    self.failed.append((self.requests[which]['model'], error))
                elif text != self.expected[which]:
                    self.changed.append((which, text, self.expected[which]))
                else:
                    self.answers += 1
                    self.gaps += gaps[1:]
            if error:
                time.sleep(0.05)
            turn += len(self.threads)

    def finish(self):
        self.stop_asking.set()
        for thread in self.threads:
            thread.join(180)
            assert not thread.is_alive(), 'an answer never ended'
        self.gaps.sort()
        return self

    def gap(self, share):
        return self.gaps[min(len(self.gaps) - 1, int(share * len(self.gaps)))] if self.gaps else 0.0

    def summary(self):
        return (f'{self.answers} answers, {len(self.failed)} failed, {len(self.changed)} changed, {self.retried} asked again, '
                f'gap p50 {self.gap(.5) * 1e3:.0f} ms, p99 {self.gap(.99) * 1e3:.0f} ms, longest {self.gap(1) * 1e3:.0f} ms')
