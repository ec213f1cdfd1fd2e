"""Switches of models when something goes wrong in the middle, and the memory that the log promises."""
import concurrent.futures
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import threading
import time

import pytest

from conftest import BINARY, wait_until
from test_pooling import ONE_THREAD, SMALL, ask, loads, six_models  # noqa: F401 (a fixture)


def hang_up(server, model):
    """Asks and leaves at once."""
    body = json.dumps({'model': model, 'prompt': 'Hello', 'max_tokens': 300, 'ignore_eos': True})
    with socket.create_connection(('127.0.0.1', server.port)) as s:
        s.sendall(f'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}'.encode())


def put(file, content):
    """Replaces it as installers do: a new file in its place, never a half-written one."""
    (file.parent / 'new').write_bytes(content)
    os.replace(file.parent / 'new', file)


def test_clients_that_hang_up_while_models_load_leave_nothing_behind(own_server, six_models):  # noqa: F811
    server = own_server(*SMALL, models=six_models)
    alone = {f'm{i}': ask(server, f'm{i}', tokens=20)[2]['choices'][0]['text'] for i in range(6)}
    for round_ in range(8):
        for i in range(6):
            hang_up(server, f'm{(i + round_) % 6}')
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda m: (m, ask(server, m, tokens=20)), alone))
    assert {m: answer[2]['choices'][0]['text'] for m, answer in answers} == alone
    assert wait_until(lambda: server.metric('shoal_num_requests_running') + server.metric('shoal_num_requests_waiting') == 0)


def test_a_file_that_is_cut_or_vanishes_fails_its_own_requests_only(own_server, six_models, tmp_path):  # noqa: F811
    server = own_server(*SMALL, models=six_models)
    file = pathlib.Path(six_models) / 'm3' / 'model.safetensors'
    good = file.read_bytes()
    alone = {f'm{i}': ask(server, f'm{i}', tokens=30)[2]['choices'][0]['text'] for i in range(6)}
    try:
        for damage in (lambda: os.truncate(file, len(good) // 2), file.unlink):
            for i in (0, 1, 2):  # m3 leaves the device
                ask(server, f'm{i}', tokens=30)
            damage()
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                answers = dict(zip(alone, pool.map(lambda m: ask(server, m, tokens=30), alone)))
            status, _, failed = answers.pop('m3')
            if status != 200:  # it may have been there still
                assert status in (500, 503) and 'm3' in failed['error']['message']
            assert all(a[0] == 200 and a[2]['choices'][0]['text'] == alone[m] for m, a in answers.items())
            put(file, good)
            assert ask(server, 'm3', tokens=30)[2]['choices'][0]['text'] == alone['m3']
    finally:
        file.write_bytes(good)


def other_weights(good):
    """A safetensors file of the same tensors with other numbers: those of the last layer's down projection in reverse."""
    header = json.loads(good[8:8 + int.from_bytes(good[:8], 'little')])
    name = max(n for n in header if 'down_proj' in n)
    begin, end = (8 + int.from_bytes(good[:8], 'little') + at for at in header[name]['data_offsets'])
    width = {'F32': 4, 'F16': 2, 'BF16': 2}[header[name]['dtype']]
    numbers = [good[at:at + width] for at in range(begin, end, width)]
    return good[:begin] + b''.join(reversed(numbers)) + good[end:]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason='one core')
def test_no_answer_mixes_the_weights_of_a_file_with_those_that_replace_it(own_server, six_models):  # noqa: F811
    cores = sorted(os.sched_getaffinity(0))[:2]
    server = own_server(*ONE_THREAD, '--host-memory', '16MiB', '--devices', f'cpu:{cores[0]},cpu:{cores[1]}', models=six_models)
    file = pathlib.Path(six_models) / 'm2' / 'model.safetensors'
    good = file.read_bytes()
    other = other_weights(good)
    answers, alone, done = [], [], threading.Event()

    def client(variant):
        turn = variant
        while not done.is_set():
            answers.append((variant, ask(server, 'm2', variant)))
            ask(server, f'm{turn % 6}', tokens=20)
            turn += 1

    def text(answer):
        assert answer[0] == 200, answer
        return answer[2]['choices'][0]['text']

    try:
        for content in (good, other):
            put(file, content)
            for i in (0, 1, 3, 4, 5, 0, 1):  # m2 leaves both devices
                ask(server, f'm{i}', tokens=4)
            alone.append([text(ask(server, 'm2', variant)) for variant in range(6)])
        assert all(old != new for old, new in zip(*alone)), 'the two files answer differently'
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            clients = [pool.submit(client, variant) for variant in range(6)]
            for round_ in range(6):
                seen = len(answers)
                put(file, (good, other)[round_ % 2])
                wait_until(lambda: len(answers) >= seen + 18)
            done.set()
            for one in clients:
                one.result()
        for variant, answer in answers:
            if answer[0] == 200:
                assert text(answer) in (alone[0][variant], alone[1][variant])
            else:
                assert answer[0] in (500, 503) and 'm2' in answer[2]['error']['message'] and 'replaced' in answer[2]['error']['message'], answer
        assert all(any(a[0] == 200 and text(a) == of[variant] for variant, a in answers) for of in alone), 'both files answered'
    finally:
        done.set()
        put(file, good)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason='one core')
@pytest.mark.parametrize('devices', [1, 2])
def test_a_reload_that_finds_another_file_loses_no_request(own_server, six_models, devices):  # noqa: F811
    cores = sorted(os.sched_getaffinity(0))[:2]
    flags = SMALL if devices == 1 else [*ONE_THREAD, '--devices', f'cpu:{cores[0]},cpu:{cores[1]}']
    server = own_server(*flags, '--host-memory', '16MiB', models=six_models)
    file = pathlib.Path(six_models) / 'm2' / 'model.safetensors'
    alone = [ask(server, 'm2', variant, tokens=60)[2]['choices'][0]['text'] for variant in range(8)]
    answers, done = [], threading.Event()

    def client(variant):
        while not done.is_set():
            answers.append((variant, ask(server, 'm2', variant, tokens=60)))
            ask(server, f'm{variant % 6}', tokens=5)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(client, variant) for variant in range(8)]
        try:
            for reloads in range(1, 9):
                put(file, file.read_bytes())
                os.utime(file.parent, (reloads, reloads))  # more than a second between the versions
                server.process.send_signal(signal.SIGHUP)
                assert wait_until(lambda: server.output().count('"removed":["m2"]') == reloads)
                seen = len(answers)
                assert wait_until(lambda: len(answers) >= seen + 8, seconds=60)
        finally:
            done.set()
        for one in clients:
            one.result()
    for variant, (status, _, body) in answers:
        if status == 200:
            assert body['choices'][0]['text'] == alone[variant]
        else:
            assert 'were replaced while this answer was being written' in body['error']['message'], body
    assert sum(status == 200 for _, (status, _, _) in answers) > len(answers) / 2


def own_memory(server):
    for line in open(f'/proc/{server.process.pid}/smaps_rollup'):
        if line.startswith('Anonymous:'):
            return int(line.split()[1]) << 10
    return 0


def promised(server):
    """The sum of the sizes in the log's line of memory."""
    line = next(line for line in server.output().splitlines() if 'memory: ' in line)
    units = {'B': 1, 'KiB': 1 << 10, 'MiB': 1 << 20, 'GiB': 1 << 30}
    return sum(float(number) * units[unit] for number, unit in re.findall(r'([\d.]+) ([KMG]?i?B)\b', line.split('memory: ')[1]))


def test_the_server_takes_no_more_memory_than_its_log_says(own_server, six_models):  # noqa: F811
    for flags in ([], ['--model-io', 'direct', '--weight-cache', '8MiB']):
        server = own_server(*SMALL, '--host-memory', '16MiB', *flags, models=six_models)
        peak, done = 0, threading.Event()

        def watch():
            nonlocal peak
            while not done.is_set():
                peak = max(peak, own_memory(server))
                time.sleep(0.01)

        watcher = threading.Thread(target=watch)
        watcher.start()
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            assert all(a[0] == 200 for a in pool.map(lambda i: ask(server, f'm{i % 6}', variant=i), range(36)))
        done.set()
        watcher.join()
        assert loads(server) > 6
        assert 16 << 20 < peak < promised(server), flags


def test_it_lives_within_the_limit_that_it_asks_for_and_does_not_start_with_less(own_server, six_models):  # noqa: F811
    flags = [*SMALL, '--host-memory', '16MiB', '--log-level', 'debug']
    first = own_server(*flags, models=six_models)
    alone = [ask(first, f'm{i % 6}', variant=i)[2]['choices'][0]['text'] for i in range(24)]
    asked_for = int(re.search(r'\(ulimit -d\) must allow (\d+) bytes', first.output()).group(1))
    first.stop()

    def limited(to):
        return lambda: resource.setrlimit(resource.RLIMIT_DATA, (to, to))

    server = own_server(*flags, models=six_models, before=limited(asked_for + (1 << 20)))  # what a process takes by itself varies a little
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda i: ask(server, f'm{i % 6}', variant=i), range(24)))
    assert [answer[2]['choices'][0]['text'] for answer in answers] == alone
    assert loads(server) > 6
    for less in (16 << 20, asked_for // 2):
        ended = subprocess.run([str(BINARY), 'serve', str(six_models), *flags], capture_output=True, text=True, timeout=60, preexec_fn=limited(asked_for - less))
        assert ended.returncode == 1 and 'ulimit -d' in ended.stderr, (less, ended)
