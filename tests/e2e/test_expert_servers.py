"""Experts as services, on real processes: the tokens are those of one process, whatever becomes of the servers."""
import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from conftest import BINARY, MODELS, Server, free_port, http

MODEL = 'tiny-qwen3-moe'
QUESTIONS = ['What is the capital of Denmark?', 'What is 3 plus 4?', 'Write the word stone backwards.', 'Count from 1 to 9.']


def ask(server, question, tokens=24, model=MODEL):
    status, _, answer = http(server.url + '/v1/chat/completions',
                             {'model': model, 'messages': [{'role': 'user', 'content': question}], 'temperature': 0, 'max_tokens': tokens})
    assert status == 200, answer
    return answer['choices'][0]['message']['content']


def admin(server, verb, *args):
    # The operator's socket is the default one of the port.
    return subprocess.run([str(BINARY), 'experts', verb, *args, '--port', str(server.port)], capture_output=True, text=True, timeout=120)


def listed(server):
    result = admin(server, 'list', '--json')
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


class Expert:
    def __init__(self, folder, name, *args, memory='1GiB', models=MODELS, tcp=False):
        """`tcp`: nodes come over TCP, as if from another machine, and servers of this machine over the UNIX socket."""
        self.local = f'unix:{folder}/{name}.sock'
        self.address = f'127.0.0.1:{free_port()}' if tcp else self.local
        self.log = open(f'{folder}/{name}.log', 'w+')
        self.process = subprocess.Popen([str(BINARY), 'expert', str(models), '--name', name, '--listen', f'{self.address},{self.local}' if tcp else self.local, '--threads', '1', '--memory', memory, *args],
                                        stdout=self.log, stderr=subprocess.STDOUT)
        deadline = time.time() + 60
        while 'holds' not in self.output():
            assert self.process.poll() is None and time.time() < deadline, self.output()
            time.sleep(0.02)

    def output(self):
        with open(self.log.name) as log:
            return log.read()

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
                self.process.send_signal(how)
            self.process.wait(30)


@pytest.fixture(scope='module')
def wanted():
    """What one process says."""
    server = Server('--preload', MODEL)
    try:
        yield {question: ask(server, question) for question in QUESTIONS}
    finally:
        server.stop()


@pytest.fixture
def experts():
    started = []
    yield started
    for expert in started:
        expert.stop()


@pytest.fixture
def server(experts, tmp_path):
    """With one server, 'a', that holds everything."""
    experts.append(Expert(tmp_path, 'a', '--experts', '*:*'))
    server = Server('--experts', experts[0].address)
    yield server
    server.stop()


def compare(server, wanted, rounds=1):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(rounds):
            got = list(pool.map(lambda question: ask(server, question), QUESTIONS))
            assert got == [wanted[question] for question in QUESTIONS]


def test_supervised_experts_give_the_tokens_of_one_process_and_are_started_again(wanted):
    server = Server('--experts', 'auto:2')
    try:
        compare(server, wanted)
        deadline = time.time() + 30
        while True:  # one of them is enough to begin with; the other may come later
            before = {row['name']: row for row in listed(server)['data']}
            if set(before) == {'expert-0', 'expert-1'} and all('pid' in row and row['load']['requests'] > 0 for row in before.values()):
                break
            assert time.time() < deadline, before
            compare(server, wanted)
        assert all(row['models'][0]['experts'] > 0 for row in before.values()), before
        os.kill(before['expert-0']['pid'], signal.SIGKILL)
        compare(server, wanted, rounds=3)
        deadline = time.time() + 30
        while True:
            rows = {row['name']: row for row in listed(server)['data']}
            if 'pid' in rows['expert-0'] and rows['expert-0']['pid'] != before['expert-0']['pid'] and rows['expert-0']['seen'] and rows['expert-0']['seen'][0]['connected']:
                break
            assert time.time() < deadline, rows
            time.sleep(0.1)
        compare(server, wanted)
    finally:
        server.stop()


def test_servers_that_are_killed_stopped_added_drained_and_moved_change_no_token(wanted, experts, tmp_path):
    experts += [Expert(tmp_path, 'a', '--experts', '*:*'), Expert(tmp_path, 'b', '--experts', '*:*')]
    server = Server('--experts', ','.join(expert.address for expert in experts))
    try:
        compare(server, wanted)
        os.kill(experts[0].process.pid, signal.SIGSTOP)
        compare(server, wanted, rounds=2)
        os.kill(experts[0].process.pid, signal.SIGCONT)
        compare(server, wanted, rounds=2)
        experts.append(Expert(tmp_path, 'c', '--experts', '*:0'))
        added = admin(server, 'add', experts[2].address)
        assert added.returncode == 0, added.stderr
        moved = admin(server, 'replicate', '*:4-7', '--model', MODEL, '--to', 'c')
        assert moved.returncode == 0, moved.stderr
        compare(server, wanted)
        drained = admin(server, 'drain', 'a')
        assert drained.returncode == 0, drained.stderr
        compare(server, wanted)
        experts[0].stop(signal.SIGKILL)
        compare(server, wanted)
        assert 'experts were copied first' in drained.stdout  # there are as many copies as before
        for what, source, target in [('*:5', 'b', 'c'), ('*:8-15', 'c', 'b')]:
            moved = admin(server, 'move', what, '--model', MODEL, '--from', source, '--to', target)
            assert moved.returncode == 0, moved.stderr
        compare(server, wanted)
        experts[1].stop(signal.SIGKILL)  # the last but one: what c does not hold is loaded there
        compare(server, wanted)
        assert listed(server)['counts']['wishes'] > 0
    finally:
        server.stop()


def test_without_any_server_requests_wait_and_go_on_when_one_is_there(wanted, experts, server, tmp_path):
    compare(server, wanted)
    experts[0].stop(signal.SIGKILL)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, server, QUESTIONS[0])
        assert ask(server, QUESTIONS[0], model='tiny-llama')  # others are served meanwhile
        assert not waiting.done()
        experts.append(Expert(tmp_path, 'a', '--experts', '*:*'))
        assert waiting.result(60) == wanted[QUESTIONS[0]]


def test_past_its_deadline_a_request_that_waits_for_experts_is_refused_with_the_reason(wanted, experts, server, tmp_path):
    compare(server, wanted)
    experts[0].stop(signal.SIGKILL)
    body = {'model': MODEL, 'messages': [{'role': 'user', 'content': QUESTIONS[0]}], 'temperature': 0, 'max_tokens': 24}
    status, _, answer = http(server.url + '/v1/chat/completions', body, headers={'X-Request-Timeout': '1.5'})
    assert status == 503, answer
    assert 'before its deadline' in answer['error']['message'] and 'is held by no server that is connected' in answer['error']['message'], answer
    experts.append(Expert(tmp_path, 'a', '--experts', '*:*'))
    compare(server, wanted)


def wait_for(what, seconds=30):
    deadline = time.time() + seconds
    while not (found := what()):
        assert time.time() < deadline
        time.sleep(0.1)
    return found


def wait_until_nothing(missing, seconds=30):
    deadline = time.time() + seconds
    while found := missing():
        assert time.time() < deadline, found
        time.sleep(0.1)


def holdings(server):
    """Experts that each server that answers holds; 0 while a model has none there."""
    held = {row['name']: [model['experts'] for model in row['models']] for row in listed(server)['data'] if 'pid' in row}
    return {name: sum(experts) if all(experts) else 0 for name, experts in held.items()}


def test_a_server_that_comes_is_given_experts_and_one_that_drains_gives_them_up(wanted, experts, tmp_path):
    experts.append(Expert(tmp_path, 'a'))
    server = Server('--experts', experts[0].address)
    try:
        everything = wait_for(lambda: holdings(server)['a'])
        compare(server, wanted)
        experts.append(Expert(tmp_path, 'b'))
        assert admin(server, 'add', experts[1].address).returncode == 0
        wait_for(lambda: holdings(server) == {'a': everything, 'b': everything})
        compare(server, wanted)
        assert admin(server, 'drain', 'a').returncode == 0
        compare(server, wanted)
        assert holdings(server) == {'b': everything}
        assert admin(server, 'add', experts[0].address).returncode == 0  # and back again
        wait_for(lambda: holdings(server) == {'a': everything, 'b': everything})
        keeper = listed(server)['keeper']
        assert keeper['keeps'] and keeper['why'] == '' and keeper['copied'] == 3 * everything, keeper
        experts[1].stop(signal.SIGKILL)
        compare(server, wanted)
    finally:
        server.stop()


def test_a_cluster_has_expert_servers_of_its_own(wanted):
    server = Server('--processes', '1', '--experts', 'auto:2')
    try:
        compare(server, wanted)

        def both_serve():
            rows = {row['name']: row for row in listed(server)['data'] if 'pid' in row and row['models'][0]['experts'] > 0 and row['clients']}
            return len(rows) == 2 and rows
        rows = wait_for(both_serve)
        wait_for(lambda: len(holdings(server)) == 2 and len(set(holdings(server).values())) == 1)
        os.kill(rows['expert-0']['pid'], signal.SIGKILL)
        compare(server, wanted, rounds=3)
        wait_for(lambda: len(holdings(server)) == 2 and all(holdings(server).values()))
        compare(server, wanted)
        refused = admin(server, 'add', 'unix:/tmp/none.sock')
        assert refused.returncode == 1 and 'shoal expert --join' in refused.stderr, refused.stderr
        assert admin(server, 'drain', 'expert-1').returncode == 0
        compare(server, wanted)
        metrics = http(server.url + '/metrics')[2]
        asked = [line for line in metrics.splitlines() if line.startswith('shoal_expert_rows_asked_total') and MODEL in line]
        assert asked and float(asked[0].split()[-1]) > 0, asked
    finally:
        server.stop()


def test_another_model_computes_while_one_waits_for_its_experts(wanted, experts, tmp_path):
    """Its layers have to wait for 3 ms each; then for a server that is stopped."""
    other = 'tiny-qwen3'
    alone = Server('--preload', other)
    try:
        wanted_other = [ask(alone, question, model=other) for question in QUESTIONS]
    finally:
        alone.stop()
    experts.append(Expert(tmp_path, 'a', '--experts', '*:*', '--batch-rule', 'deadline', '--batch-wait-us', '3000'))
    server = Server('--experts', experts[0].address, '--preload', 'all', '--expert-lanes', '1')
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _ in range(3):
                theirs = [pool.submit(ask, server, question, model=other) for question in QUESTIONS]
                compare(server, wanted)
                assert [answer.result() for answer in theirs] == wanted_other
            os.kill(experts[0].process.pid, signal.SIGSTOP)
            waiting = [pool.submit(ask, server, question) for question in QUESTIONS]
            for question, answer in zip(QUESTIONS, wanted_other):
                assert ask(server, question, model=other) == answer
            assert not any(answer.done() for answer in waiting)
            os.kill(experts[0].process.pid, signal.SIGCONT)
            assert [answer.result() for answer in waiting] == [wanted[question] for question in QUESTIONS]
    finally:
        server.stop()


USED = 4  # experts of a token, of MODEL


def sent(server, what):
    """Counts of `server` while it does `what`."""
    before = listed(server)['counts']
    what()
    after = listed(server)['counts']
    return {name: after[name] - before[name] for name in after}


def test_over_the_network_a_token_goes_once_to_a_machine_whatever_becomes_of_its_servers(wanted, experts, tmp_path):
    names = ['a', 'b', 'c']
    for name, holds in zip(names, ['*:0-9', '*:5-15', '*:0-4,10-15']):  # each expert twice
        peers = ','.join(f'unix:{tmp_path}/{other}.sock' for other in names if other != name)
        experts.append(Expert(tmp_path, name, '--experts', holds, '--peers', peers, tcp=True))
    server = Server('--experts', ','.join(expert.address for expert in experts))
    try:
        compare(server, wanted)

        def one_request_for_each_layer():
            counts = sent(server, lambda: compare(server, wanted))
            return counts['rows_resent'] == 0 and counts['requests'] == counts['exchanges'] and counts
        counts = wait_for(one_request_for_each_layer)
        assert counts['relayed'] > 0 and counts['tokens_sent'] * USED == counts['rows_asked'] > counts['rows_received'] > 0, counts
        for victim, how in [(0, signal.SIGSTOP), (2, signal.SIGSTOP), (1, signal.SIGKILL)]:
            wait_for(lambda: all(seen['connected'] and not seen['suspected'] for row in listed(server)['data'] for seen in row['seen']))  # of the fault before
            os.kill(experts[victim].process.pid, how)
            compare(server, wanted, rounds=2)
            os.kill(experts[victim].process.pid, signal.SIGCONT)
            compare(server, wanted, rounds=2)
        assert listed(server)['counts']['deferred'] == 0
    finally:
        server.stop()


def test_a_client_that_is_killed_in_the_middle_of_its_work_concerns_nobody_else(wanted, experts, server):
    for round_ in range(4):
        victim = Server('--experts', experts[0].address)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for question in QUESTIONS:
                pool.submit(ask, victim, question, 200)  # nobody looks at what becomes of it
            time.sleep(0.05 * (round_ + 1))
            victim.process.kill()
            compare(server, wanted)
        victim.process.wait(10)
        wait_for(lambda: {row['pid'] for row in listed(server)['data'][0]['clients']} == {server.process.pid})
    compare(server, wanted)


@pytest.mark.parametrize('mode', ['half', 'torn', 'late'])
def test_a_client_that_is_killed_in_the_middle_of_a_write_concerns_nobody_else(wanted, experts, server, mode):
    """Aimed: half of a slot is written, or its word and not the rest, or all but the word, when the process is stopped or killed."""
    hidden = json.loads((MODELS / MODEL / 'config.json').read_text())['hidden_size']
    script = pathlib.Path(__file__).with_name('half_writer.py')
    for _ in range(3):
        victim = subprocess.Popen([sys.executable, str(script), experts[0].address[5:], MODEL, str(hidden), mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert victim.stdout.readline() == 'written\n'
            os.kill(victim.pid, signal.SIGSTOP)
            compare(server, wanted)
            os.kill(victim.pid, signal.SIGCONT)
            if mode == 'late':  # what was stopped between payload and word is served when it goes on
                victim.stdin.write('\n')
                victim.stdin.flush()
                assert victim.stdout.readline() == 'answered\n'
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                answers = pool.submit(compare, server, wanted)
                victim.kill()
                answers.result()
        finally:
            victim.kill()
            victim.communicate()
        wait_for(lambda: {row['pid'] for row in listed(server)['data'][0]['clients']} == {server.process.pid})
    load = listed(server)['data'][0]['load']
    assert (load['torn'] > 0) == (mode == 'torn'), load


def children(pid):
    """Processes of a supervisor, by what they do."""
    found = {}
    for entry in pathlib.Path('/proc').iterdir():
        with contextlib.suppress(OSError, IndexError):
            if entry.name.isdigit() and (entry / 'stat').read_text().rsplit(')', 1)[1].split()[1] == str(pid):
                words = (entry / 'cmdline').read_bytes().decode().split('\0')
                found.setdefault(words[1], []).append(int(entry.name))
    return found


def numbers(text):
    """Of "0-3,7"."""
    spans = [part.split('-') for part in text.split(',')]
    return [number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)]


def missing_of_three(server):
    """What is missing until three servers answer, and hold two copies of each expert, on whichever of them."""
    rows = [row for row in listed(server)['data'] if 'pid' in row]
    copies = collections.Counter()
    wanted = set()
    for model in [model for row in rows for model in row['models']]:
        wanted |= {(model['name'], str(layer), expert) for layer in numbers(model['shape']['layers']) for expert in range(model['shape']['experts'])}
        copies.update((model['name'], layer, expert) for layer, held in model['holds'].items() for expert in numbers(held))
    names = [] if len(rows) == 3 and wanted else [row['name'] for row in rows] + ['are all']
    return names + [expert for expert in sorted(wanted) if copies[expert] < 2]


def test_two_expert_servers_and_the_controller_may_be_killed_at_once(wanted):
    server = Server('--processes', '1', '--experts', 'auto:3')
    try:
        compare(server, wanted)
        wait_until_nothing(lambda: missing_of_three(server))
        processes = children(server.process.pid)
        for pid in processes['expert'][:2] + processes['controller']:
            os.kill(pid, signal.SIGKILL)
        compare(server, wanted, rounds=3)
        wait_until_nothing(lambda: missing_of_three(server), seconds=90)
        compare(server, wanted)
    finally:
        server.stop()


def sharers(server):
    """Servers that hold some experts of the model that is asked."""
    return [row['name'] for row in listed(server)['data'] if any(model['name'] == MODEL and model['experts'] > 0 for model in row.get('models', []))]


def rows_of_three(server):
    """Rows that each of three servers has computed; nothing until all answer."""
    rows = {row['name']: row['load']['rows'] for row in listed(server)['data'] if 'load' in row}
    return rows if len(rows) == 3 else {}


def scaling(server):
    return listed(server).get('scaling', {})


@pytest.mark.parametrize('processes', [[], ['--processes', '1']], ids=['one process serves', 'a cluster'])
def test_servers_come_and_go_with_their_load_and_no_answer_changes(wanted, processes):
    server = Server('--experts', 'auto:1-3', '--expert-busy', '0.02-0.1', '--expert-cooldown', '1', *processes)
    stop = threading.Event()

    def ask_on(question):
        answers = []
        while not stop.is_set():
            answers.append(ask(server, question))
        return [answer == wanted[question] for answer in answers]
    try:
        compare(server, wanted)
        wait_for(lambda: scaling(server).get('servers') == 1)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(ask_on, question) for question in QUESTIONS * 2]
            try:
                wait_for(lambda: len(sharers(server)) == 3, seconds=90)
                before = wait_for(lambda: rows_of_three(server))
                wait_for(lambda: (now := rows_of_three(server)) and all(now[name] > before.get(name, 0) for name in now))
                assert scaling(server)['servers'] == 3 == len(children(server.process.pid)['expert'])
            finally:
                stop.set()
            assert all(all(answers.result()) and answers.result() for answers in asking)

        def one_is_left():
            compare(server, wanted)  # under way while others are drained
            time.sleep(1)
            return len(children(server.process.pid)['expert']) == 1
        wait_for(one_is_left, seconds=90)
        wait_for(lambda: sharers(server) == ['expert-0'])
        compare(server, wanted)
        table = admin(server, 'list').stdout
        assert '1 of 1 to 3 servers, by load' in table, table
    finally:
        stop.set()
        server.stop()


def test_what_cannot_be_done_is_refused_by_name(experts, tmp_path):
    experts += [Expert(tmp_path, 'a', '--experts', '*:0-7'), Expert(tmp_path, 'b', '--experts', '*:8-15', memory='8MiB')]
    server = Server('--experts', ','.join(expert.address for expert in experts))
    try:
        drained = admin(server, 'drain', 'a')
        assert drained.returncode == 1 and "'a' cannot go" in drained.stderr and 'holds the last copy' in drained.stderr and 'Add a server first' in drained.stderr, drained.stderr
        unknown = admin(server, 'move', '*:99', '--model', MODEL, '--from', 'a', '--to', 'b')
        assert 'names no expert' in unknown.stderr, unknown.stderr
        absent = admin(server, 'move', '0:3', '--model', MODEL, '--from', 'b', '--to', 'a')
        assert "'b' does not hold" in absent.stderr, absent.stderr
        nobody = admin(server, 'drain', 'z')
        assert "no expert server 'z'" in nobody.stderr, nobody.stderr
    finally:
        server.stop()


def test_servers_of_other_files_or_options_are_refused_by_name(experts, tmp_path):
    experts.append(Expert(tmp_path, 'a', '--experts', '*:*', '--quantization', 'q8_0'))
    server = subprocess.Popen([str(BINARY), 'serve', str(MODELS / MODEL), '--port', '0', '--experts', experts[0].address, '--admin-socket', 'none', '--estimates', 'none'],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in server.stdout:
            if 'other files, or other --quantization' in line:
                return
        pytest.fail('it said nothing of the other files')
    finally:
        server.kill()
        server.wait(10)


@pytest.mark.parametrize('flags, words', [
    (['--experts', 'auto:0'], 'write auto:N'),
    (['--experts', 'auto:3-2'], 'write auto:N or auto:MIN-MAX'),
    (['--experts', 'auto:0-2'], 'write auto:N or auto:MIN-MAX'),
    (['--experts', 'auto:2-x'], 'write auto:N or auto:MIN-MAX'),
    (['--experts', 'auto:1-2'], 'name one with --admin-socket'),
    (['--experts', 'auto:1-2', '--admin-socket', 'none'], 'leave out --admin-socket none'),
    (['--experts', 'auto:2', '--expert-busy', '0.9-0.2'], 'the smaller one first'),
    (['--experts', 'elsewhere'], 'neither here, auto:N, auto:MIN-MAX or cluster nor'),
])
def test_wrong_flags_are_named(flags, words):
    result = subprocess.run([str(BINARY), 'serve', str(MODELS), '--port', '0', *flags], capture_output=True, text=True, timeout=60)
    assert result.returncode != 0 and words in result.stderr, result.stderr


def test_an_expert_server_names_what_it_cannot_hold(tmp_path):
    def run(*args):
        return subprocess.run([str(BINARY), 'expert', str(MODELS), '--listen', f'unix:{tmp_path}/x.sock', *args], capture_output=True, text=True, timeout=60).stderr
    assert 'has no experts' in run('--experts', '99:*')
    assert 'names no expert' in run('--experts', '*:400')
    assert 'raise --memory' in run('--experts', '*:*', '--memory', '1MiB')
