"""Clients that leave or run out of time in every stage of a switch, with models that take a while to load."""
import concurrent.futures
import json
import os
import socket
import struct
import subprocess
import threading
import time

import pytest

from conftest import BINARY, http, wait_until

# Room for the weights of one of the models and KV of all; each load reads its file anew.
FLAGS = ['--device-memory', '224MiB', '--host-memory', '64MiB', '--model-io', 'direct', '--max-model-len', '256', '--max-num-batched-tokens', '64',
         '--max-num-seqs', '8', '--threads', '2', '--tbt', '0.5']
NAMES = ['big0', 'big1', 'big2']


@pytest.fixture(scope='module')
def big_models(tmp_path_factory):
    program = BINARY.parent / 'bench' / 'random_model'
    if not program.exists():
        pytest.skip('built without the programs of bench/')
    folder = tmp_path_factory.mktemp('big')
    subprocess.run([program, '--shape', 'llama-0.1b', '--type', 'q8_0', '--out', folder / 'big0.gguf'], check=True, capture_output=True)
    for name in NAMES[1:]:
        os.link(folder / 'big0.gguf', folder / f'{name}.gguf')
    return folder


def body(model, tokens, variant=0):
    return {'model': model, 'prompt': [(j * 7919 + variant * 31) % 700 + 10 for j in range(40)], 'max_tokens': tokens, 'temperature': 0, 'ignore_eos': True}


def ask(server, model, tokens=12, variant=0):
    return http(server.url + '/v1/completions', body(model, tokens, variant))


def text(answer):
    return answer[2]['choices'][0]['text']


def leave(server, model, after, stream):
    """Asks, and hangs up so many seconds later."""
    data = json.dumps({**body(model, 200), 'stream': stream})
    with socket.create_connection(('127.0.0.1', server.port)) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        s.sendall(f'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n{data}'.encode())
        time.sleep(after)


def idle(server):
    return server.metric('shoal_num_requests_running') + server.metric('shoal_num_requests_waiting') == 0


def switch_seconds(server):
    ask(server, 'big0', tokens=1)
    began = time.monotonic()
    ask(server, 'big1', tokens=1)
    return time.monotonic() - began


class Reader:
    """Asks one model again and again and compares."""

    def __init__(self, server, model):
        self.alone = text(ask(server, model))
        self.wrong, self.answers, self.done = [], 0, threading.Event()
        self.thread = threading.Thread(target=self.run, args=(server, model))
        self.thread.start()

    def run(self, server, model):
        while not self.done.is_set():
            answer = ask(server, model)
            self.answers += 1
            if answer[0] != 200 or text(answer) != self.alone:
                self.wrong.append(answer)

    def end(self):
        self.done.set()
        self.thread.join()
        assert self.wrong == [] and self.answers > 0


def test_who_leaves_at_any_moment_of_a_switch_leaves_nothing_behind(own_server, big_models):
    server = own_server(*FLAGS, models=big_models)
    alone = {model: text(ask(server, model)) for model in NAMES}
    whole = 2.5 * switch_seconds(server)  # queued behind a turn, loaded, and some tokens
    reader = Reader(server, 'big0')
    moments = 24
    for i in range(0, moments, 2):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda k: leave(server, NAMES[1 + k % 2], whole * (i + k) / moments, stream=(i // 2) % 2 == 0), range(2)))
    reader.end()
    assert wait_until(lambda: idle(server), 30)
    assert {model: text(ask(server, model)) for model in NAMES} == alone
    assert server.metric('shoal_switches_total') > 3


def test_who_is_out_of_time_at_any_moment_of_a_switch_hears_so(own_server, big_models):
    server = own_server(*FLAGS, '--request-timeout', '1', models=big_models)
    assert all(wait_until(lambda model=model: ask(server, model, tokens=1)[0] == 200, 30) for model in NAMES)  # a busy machine takes longer to load one

    def late(i):
        time.sleep(i * 0.037)  # so that their times are up in different stages
        return ask(server, NAMES[i % 3], tokens=200, variant=i)

    with concurrent.futures.ThreadPoolExecutor(36) as pool:
        failed = [answer for status, _, answer in pool.map(late, range(36)) if status != 200]
    assert failed and all(answer['error']['code'] == 'deadline_exceeded' for answer in failed), failed
    assert wait_until(lambda: idle(server), 30)
    assert all(wait_until(lambda model=model: ask(server, model, tokens=1)[0] == 200, 30) for model in NAMES)
