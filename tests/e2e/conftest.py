"""The real binary, started by the tests; every test talks to it as a user would."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get('SHOAL_BINARY', ROOT / 'build' / 'release' / 'shoal'))
MODELS = ROOT / 'models'
BUNDLED = ['tiny-deepseek-v3', 'tiny-llama', 'tiny-qwen3', 'tiny-qwen3-moe']
NAMES = ['tiny-llama', 'tiny-qwen3']  # the dense ones


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def http(url, body=None, headers=None, method=None, timeout=60):
    """-> (status, headers, parsed JSON or text)"""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={'Content-Type': 'application/json', **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            status, answer_headers, text = answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        status, answer_headers, text = error.code, dict(error.headers), error.read()
    try:
        return status, answer_headers, json.loads(text)
    except ValueError:
        return status, answer_headers, text.decode(errors='replace')


class Server:
    def __init__(self, *args, models=MODELS, env=None, before=None):
        self.port = free_port()
        self.url = f'http://127.0.0.1:{self.port}'
        self.log = open(os.path.join(os.environ.get('TMPDIR', '/tmp'), f'shoal-e2e-{self.port}.log'), 'w+')
        self.process = subprocess.Popen([str(BINARY), 'serve', str(models), '--port', str(self.port), *args], stdout=self.log,
                                        stderr=subprocess.STDOUT, env={**os.environ, 'SHOAL_ESTIMATES': 'none', 'SHOAL_DIGESTS': 'none', **(env or {})}, preexec_fn=before)
        deadline = time.time() + 60
        while True:
            assert self.process.poll() is None, f'ended at start: {self.output()}'
            with contextlib.suppress(OSError):
                if http(self.url + '/readyz', timeout=2)[0] == 200:
                    return
            assert time.time() < deadline, f'not ready: {self.output()}'
            time.sleep(0.02)

    def output(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()

    def client(self, **options):
        return openai.OpenAI(base_url=self.url + '/v1', api_key='none', max_retries=0, timeout=120, **options)

    def metric(self, name, **labels):
        """The sum of the series of that name with those labels."""
        total = 0.0
        for line in http(self.url + '/metrics')[2].splitlines():
            series, _, value = line.rpartition(' ')
            if series.split('{')[0] == name and all(f'{k}="{v}"' in series for k, v in labels.items()):
                total += float(value)
        return total

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        with contextlib.suppress(OSError):
            os.unlink(self.log.name)


@pytest.fixture(scope='session')
def server():
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def own_server():
    """For tests that end their server or need flags: own_server('--flag', ...)."""
    started = []

    def start(*args, **options):
        started.append(Server(*args, **options))
        return started[-1]

    yield start
    for running in started:
        running.stop()


@pytest.fixture(scope='session')
def client(server):
    return server.client()


def wait_until(holds, seconds=10):
    deadline = time.time() + seconds
    while time.time() < deadline:
        if holds():
            return True
        time.sleep(0.02)
    return holds()
