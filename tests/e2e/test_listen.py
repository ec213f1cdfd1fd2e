"""Where servers listen: what is taken stays with its owner, and each cause has its own advice."""
import os
import signal
import subprocess
import threading

import pytest
from conftest import BINARY, BUNDLED, MODELS, free_port, http, wait_until
from test_process import LONG, shoal


def refused(*args, env=None):
    done = shoal('serve', str(MODELS), '--estimates', 'none', *args, env=env)
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


def test_a_second_server_does_not_take_the_operators_socket(own_server, tmp_path):
    env = {'XDG_RUNTIME_DIR': str(tmp_path)}
    server = own_server(env=env)
    socket = tmp_path / f'shoal-{os.getuid()}' / f'{server.port}.sock'
    for args in (['--host', '127.0.0.2', '--port', str(server.port)], ['--port', str(free_port()), '--admin-socket', str(socket)]):
        error = refused(*args, env=env)
        assert f'{socket}: process {server.process.pid} listens there; choose another --admin-socket' in error
    assert shoal('ps', '--quiet', '--socket', str(socket)).stdout.split() == BUNDLED
    server.stop()
    assert not socket.exists()


def test_a_public_socket_stays_with_its_server_too(tmp_path):
    process = subprocess.Popen([str(BINARY), 'serve', str(MODELS), '--estimates', 'none', '--uds', str(tmp_path / 's.sock')], stdout=subprocess.PIPE, text=True)
    try:
        assert 'Shoal' in process.stdout.readline()
        assert f'process {process.pid} listens there; choose another --uds' in refused('--uds', str(tmp_path / 's.sock'))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_server_left_is_taken_over(own_server, tmp_path):
    socket = tmp_path / 'admin.sock'
    first = own_server('--admin-socket', str(socket))
    first.process.kill()
    first.process.wait()
    assert socket.exists()
    own_server('--admin-socket', str(socket))
    assert shoal('ps', '--quiet', '--socket', str(socket)).returncode == 0


@pytest.mark.parametrize('args, advice', [
    (['--host', '192.0.2.1'], 'it is no address of this machine: choose another --host'),
    (['--host', 'no.such.host.invalid'], 'give an address of this machine'),
    (['--port', str(free_port()), '--admin-port', '0', '--admin-host', '192.0.2.1', '--admin-key', 'k'], 'choose another --admin-host'),
    (['--uds', '/no/such/folder/s.sock'], 'the folder /no/such/folder cannot be opened: No such file or directory; choose another --uds'),
])
def test_an_address_that_cannot_be_had_says_why(args, advice):
    assert advice in refused('--admin-socket', 'none', *args)


def test_an_answer_that_a_second_signal_ends_says_that_the_server_is_shutting_down(own_server):
    server = own_server()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(http(server.url + '/v1/completions', dict(LONG, n=64))[2]))
    thread.start()
    assert wait_until(lambda: server.metric('vllm:num_requests_running') >= 1)
    for _ in range(2):
        server.process.send_signal(signal.SIGINT)
        assert wait_until(lambda: server.process.poll() is not None or 'draining' in server.output())
    assert server.process.wait(10) == 0
    thread.join()
    assert '"code":"shutting_down"' in answers[0]


def test_unloading_just_after_an_answer_waits_for_nothing(own_server, tmp_path):
    server = own_server('--admin-socket', str(tmp_path / 'admin.sock'))
    for _ in range(5):
        http(server.url + '/v1/completions', {'model': 'tiny-llama', 'prompt': 'x', 'max_tokens': 3})
        done = shoal('unload', 'tiny-llama', '--socket', str(tmp_path / 'admin.sock'))
        assert done.stdout == "'tiny-llama' is unloaded\n"
