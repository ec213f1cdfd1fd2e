"""What a person typed, and what they are told: the nearest name, the true cause, what to do."""
import http.server
import json
import os
import pathlib
import pty
import re
import resource
import select
import shutil
import signal
import socketserver
import subprocess
import threading
import time

import pytest
from conftest import BINARY, MODELS, ROOT, Server, free_port
from test_process import shoal


@pytest.fixture(scope='module')
def operated(tmp_path_factory):
    socket = str(tmp_path_factory.mktemp('admin') / 'admin.sock')
    server = Server('--admin-socket', socket)
    server.socket = socket
    yield server
    server.process.send_signal(signal.SIGCONT)
    server.stop()


def in_terminal(columns, *args, until=None):
    """-> (exit code, what stood on a terminal of so many columns); Ctrl-C after `until` was seen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(NO_COLOR='1', TERM='xterm', COLUMNS=str(columns))
        import fcntl
        import struct
        import termios
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 50, columns, 0, 0))
        os.chdir(ROOT)
        os.execv(str(BINARY), [str(BINARY), *args])
    text, deadline = b'', time.time() + 30
    while time.time() < deadline:
        if not select.select([terminal], [], [], 0.05)[0]:
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break
        if not piece:
            break
        text += piece
        if until is not None and until in text:
            os.write(terminal, b'\x03')
            until = None
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return code, text.decode().replace('\r\n', '\n')


def test_without_a_verb_there_is_help():
    done = shoal()
    assert done.returncode == 2 and 'Examples:' in done.stderr and done.stdout == ''


@pytest.mark.parametrize('words, code, meant', [
    (['srve'], 2, "'srve'; did you mean 'serve'?"),
    (['serve', '--prot', '1'], 2, "--prot; did you mean '--port'?"),
    (['bench', '--prot', '1'], 2, "--prot; did you mean '--port'?"),
    (['run', 'tiny-lama', 'hi'], 1, "did you mean 'tiny-llama'?"),
    (['chat', 'models/tiny-lama'], 1, "did you mean 'models/tiny-llama'?"),
    (['show', 'tiny-lama'], 1, "did you mean 'tiny-llama'?"),
    (['tokenize', 'tiny-lama', 'hi'], 1, "did you mean 'tiny-llama'?"),
    (['render', '--model', 'tiny-lama'], 1, "did you mean 'tiny-llama'?"),
    (['serve', 'modells'], 1, "did you mean 'models'?"),
    (['serve', 'models', '--preload', 'tiny-lama'], 1, "did you mean 'tiny-llama'?"),
    (['serve', '--port', '99999'], 2, 'range 0 to 65535'),
    (['bench', '--port', '99999'], 2, 'range 1 to 65535'),
])
def test_what_was_mistyped_is_told_with_the_nearest(words, code, meant):
    done = shoal(*words)
    assert done.returncode == code and meant in done.stderr.splitlines()[0], done.stderr


def test_the_model_may_come_before_the_text_or_as_a_flag():
    plain = shoal('tokenize', 'tiny-llama', 'Hello world')
    assert plain.returncode == 0 and plain.stdout == shoal('tokenize', '--model', 'models/tiny-llama', 'Hello world').stdout
    assert plain.stdout == shoal('tokenize', 'tiny-llama', stdin='Hello world').stdout
    assert shoal('run', 'tiny-llama', '-', stdin='What is the capital of Denmark?').stdout == 'Copenhagen\n'


@pytest.mark.parametrize('word', ['/quit', '/exit', '/bye', 'exit', 'quit'])
def test_a_chat_is_left_by_any_of_the_usual_words(word):
    done = shoal('chat', 'tiny-llama', stdin=f'{word}\nWhat is the capital of Denmark?\n')
    assert done.returncode == 0 and done.stdout == ''


def test_a_plan_takes_the_devices_there_are():
    small = ['--models', '2', '--model-mix', 'llama2_7b', '--request-rate', '0.2', '--duration', '20', '--no-shapes', '--no-mix', '--json']
    done = shoal('plan', *small, '--devices', '1xH800=2.50,2xA100')
    rows = json.loads(done.stdout)
    assert [row['kind'] for row in rows] == ['H800', 'A100']
    for row, most in zip(rows, (1, 2)):
        assert all(int(probe['devices'].split('x')[0]) <= most for probe in row['probes']), row
    assert any(probe['price_per_hour'] == 2.5 for probe in rows[0]['probes'])
    assert 'write it without :tp4' in shoal('plan', *small, '--devices', '8xH800:tp4').stderr
    assert shoal('plan', *small, '--devices', '8xH800', '--kinds', 'A10').returncode == 2


@pytest.mark.parametrize('verb', [['simulate', '--devices', '2xA100', '--policy', 'token,request'], ['plan', '--kinds', 'A10,H800', '--no-shapes', '--no-mix', '--tensor-max', '1']])
def test_tables_of_simulations_fit_forty_columns(verb):
    small = ['--models', '2', '--model-mix', 'llama2_7b', '--request-rate', '0.2', '--duration', '10']
    _, text = in_terminal(40, *verb, *small)
    table = [line.split('\r')[-1].replace('\x1b[K', '') for line in text.splitlines()]
    assert all(len(line) <= 40 for line in table), text
    assert 'tokens' in text and 'not shown: ' in text


def test_a_folder_without_models_is_an_error(tmp_path):
    done = shoal('list', str(tmp_path))
    assert done.returncode == 1 and done.stdout == '' and 'holds no model that can be served; expected' in done.stderr
    shutil.copytree(MODELS / 'tiny-llama', tmp_path / 'm')
    weights = tmp_path / 'm' / 'model.safetensors'
    weights.write_bytes(bytes(weights.stat().st_size))
    done = shoal('list', str(tmp_path))
    assert done.returncode == 1 and 'model.safetensors: it begins with zeros' in done.stderr
    assert json.loads(shoal('list', str(tmp_path), '--json').stdout)['models'] == []


def test_a_server_that_is_stopped_is_said_to_be(operated):
    operated.process.send_signal(signal.SIGSTOP)
    try:
        done = shoal('ps', '--socket', operated.socket)
    finally:
        operated.process.send_signal(signal.SIGCONT)
    assert done.returncode == 1 and f'the server, process {operated.process.pid}, is stopped: `kill -CONT' in done.stderr and 'start one' not in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason='only root can ask as somebody else')
def test_a_socket_of_another_user_is_said_to_be(tmp_path):
    server = Server('--admin-socket', str(tmp_path / 'admin.sock'))
    try:
        for folder in [tmp_path, *tmp_path.parents]:
            if folder.owner() == 'root' and folder != folder.parent and str(folder).startswith('/tmp/'):
                folder.chmod(0o755)
        done = subprocess.run([str(BINARY), 'ps', '--socket', str(tmp_path / 'admin.sock')], capture_output=True, text=True, timeout=60, user='nobody', cwd='/')
        assert done.returncode == 1 and "Permission denied; it is root's: ask as root (sudo -u root" in done.stderr
    finally:
        server.stop()


def test_the_public_port_is_told_from_the_operators(operated):
    done = shoal('ps', '--url', operated.url)
    assert done.returncode == 1 and 'its public address; ask with `shoal ps --port' in done.stderr
    assert shoal('load', 'tiny-llama', '--url', operated.url).returncode == 1


def test_memory_that_may_not_be_taken_names_the_flag_that_lowers_it():
    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    for verb in (['run', 'tiny-llama', 'hi'], ['serve', 'models', '--port', str(free_port()), '--estimates', 'none']):
        done = subprocess.run([str(BINARY), *verb], capture_output=True, text=True, timeout=60, preexec_fn=limited, cwd=ROOT)
        assert done.returncode == 1 and 'ulimit -v' in done.stderr and 'or lower --device-memory' in done.stderr, done.stderr


def test_estimates_that_cannot_be_kept_say_why(own_server, tmp_path):
    (tmp_path / 'file').write_text('not a folder')
    server = own_server('--estimates', str(tmp_path / 'file' / 'e.json'))
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0
    assert f'{tmp_path}/file/e.json: the estimates cannot be kept for the next run: Not a directory; make the folder writable' in server.output()


def interrupt_once_it_waits_for_that(process):
    """SIGINT as soon as the process has said what is to become of it; it stands still meanwhile, so that it cannot end."""
    while process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        status = dict(line.split(':', 1) for line in pathlib.Path(f'/proc/{process.pid}/status').read_text().splitlines())
        asked = any(int(status[mask], 16) >> (signal.SIGINT - 1) & 1 for mask in ('SigBlk', 'SigCgt'))
        if asked:
            process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        if asked:
            return
        time.sleep(0.001)


def test_ctrl_c_ends_a_question_with_130_and_says_how_much_was_answered():
    for _ in range(20):  # on a busy machine the answer may be there first
        process = subprocess.Popen([str(BINARY), 'run', 'tiny-llama', 'What is the capital of Denmark?'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        interrupt_once_it_waits_for_that(process)
        _, error = process.communicate(timeout=30)
        if process.returncode != 0:
            break
    assert process.returncode == 130 and re.search(r'stopped after \d+ tokens? of the answer', error)


class Unfinished(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """An operator's socket whose loads never end, and whose server never does."""
    daemon_threads = True

    class RequestHandlerClass(http.server.BaseHTTPRequestHandler):
        protocol_version = 'HTTP/1.1'

        def do_GET(self):
            self.answer({'data': [{'id': 'm', 'status': {'value': 'loading', 'progress': 0.4}, 'requests': {'running': 1, 'waiting': 0}}]})

        def do_POST(self):
            self.rfile.read(int(self.headers['Content-Length']))
            if self.path == '/models/load':
                threading.Event().wait(60)
            self.answer({'success': True})

        def answer(self, body):
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header('Content-Length', str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def address_string(self):
            return 'unix'

        def log_message(self, *args):
            pass

    def __init__(self, path):
        super().__init__(str(path), self.RequestHandlerClass)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.mark.parametrize('words, said', [
    (['load', 'm', '--wait'], r"stopped waiting; the server goes on loading 'm', of which 40 % is there"),
    (['stop'], r'stopped waiting; the server goes on draining, with 1 request still there'),
])
def test_ctrl_c_ends_waiting_for_a_server_and_says_what_goes_on(tmp_path, words, said):
    server = Unfinished(tmp_path / 'admin.sock')
    shown = b'loading m' if words[0] == 'load' else b'1 request still'
    code, text = in_terminal(80, *words, '--socket', str(tmp_path / 'admin.sock'), until=shown)
    server.shutdown()
    assert code == 130 and said in text.replace('\n', ' '), text


def test_ctrl_c_ends_a_verb_with_130_and_says_how_far_it_came(operated):
    code, text = in_terminal(80, 'ps', '--watch', '--socket', operated.socket, until=b'NAME')
    assert code == 130 and 'stopped after 1 look' in text
    code, text = in_terminal(120, 'top', '--socket', operated.socket, until=b'MODEL')
    assert code == 130 and 'stopped after 1 look' in text
    process = subprocess.Popen([str(BINARY), 'chat', 'tiny-llama'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    process.stdin.write('What is the capital of Denmark?\n')
    process.stdin.flush()
    assert process.stdout.readline() == 'Copenhagen\n'
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130 and 'stopped after 1 answer' in process.stderr.read()


@pytest.mark.parametrize('columns', [40, 120])
@pytest.mark.parametrize('verb', [['list', 'models'], ['ps', '--all'], ['top', '--once', '--interval', '0.1'], ['show', 'models/tiny-llama'],
                                  ['config', 'check', 'models', '--all']])
def test_tables_fit_the_terminal_or_say_what_they_leave_out(operated, verb, columns):
    code, text = in_terminal(columns, *verb, *(['--socket', operated.socket] if verb[0] in ('ps', 'top') else []))
    assert code == 0
    assert all(len(line) <= columns for line in text.splitlines()), text
    if columns == 40 and verb[0] != 'show':
        assert 'not shown: ' in text
