"""shoal chat in a terminal of its own: editing, history, blocks, pastes, Ctrl-C, commands."""
import fcntl
import json
import os
import pty
import select
import subprocess
import termios
import time

import pytest
from conftest import BINARY, ROOT

QUESTION = b'What is the capital of Denmark?'


class Chat:
    def __init__(self, home, *args):
        master, slave = pty.openpty()
        self.master, self.seen = master, ''
        env = {**os.environ, 'XDG_STATE_HOME': str(home), 'TERM': 'xterm', 'LANG': 'C'}
        env.pop('NO_COLOR', None)
        self.process = subprocess.Popen([str(BINARY), 'chat', 'tiny-llama', *args], stdin=slave, stdout=slave, stderr=slave, cwd=ROOT,
                                        start_new_session=True, env=env, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        assert self.wait('>>>'), self.seen

    def wait(self, text, seconds=20):
        """Reads until `text` is seen after what was waited for before."""
        deadline = time.time() + seconds
        while text not in self.seen and time.time() < deadline:
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.master, 65536).decode(errors='replace')
                except OSError:
                    break
        found = text in self.seen
        self.seen = self.seen.split(text, 1)[1] if found else self.seen
        return found

    def send(self, data):
        os.write(self.master, data)

    def end(self):
        self.send(b'/bye\n')
        code = self.process.wait(20)
        os.close(self.master)
        return code


@pytest.fixture
def chat(tmp_path):
    return lambda *args: Chat(tmp_path, *args)


def test_lines_are_edited_and_remembered_between_sessions(chat, tmp_path):
    first = chat()
    first.send(b'What is the capital of Denmarx?\x1b[D\x7fk\n')  # left, backspace
    assert first.wait('Copenhagen'), first.seen
    assert first.wait('>>>')
    first.send(b'\x1b[A\n')  # up
    assert first.wait('Copenhagen'), first.seen
    assert first.end() == 0
    history = tmp_path / 'shoal' / 'history'
    assert json.loads(history.read_text().splitlines()[0]) == QUESTION.decode() and history.stat().st_mode & 0o777 == 0o600
    second = chat()
    second.send(b'\x1b[A\x1b[A\n')
    assert second.wait('Copenhagen'), second.seen
    assert second.end() == 0


def test_a_paste_of_several_lines_is_one_message(chat, tmp_path):
    session = chat()
    session.send(b'\x1b[200~What is the capital\nof Denmark?\x1b[201~')
    assert session.wait('of Denmark?')
    assert 'Copenhagen' not in session.seen  # not sent yet
    session.send(b'\n')
    time.sleep(0.5)
    assert session.wait('>>>'), session.seen
    assert session.end() == 0
    assert json.loads((tmp_path / 'shoal' / 'history').read_text().splitlines()[0]) == 'What is the capital\nof Denmark?'


def test_ctrl_c_clears_the_line_and_ctrl_d_ends(chat):
    session = chat('--no-history')
    session.send(b'nonsense')
    assert session.wait('nonsense')
    session.send(b'\x03')  # as the keyboard sends it
    assert session.wait('/bye or Ctrl-D') and session.wait('>>>')
    session.send(QUESTION + b'\n')
    assert session.wait('Copenhagen') and session.wait('>>>')
    session.send(b'\x04')
    assert session.process.wait(20) == 0


def test_commands(chat, tmp_path):
    session = chat('--no-history')
    session.send(b'/regen\n')
    assert session.wait('no answer yet') and session.wait('>>>')
    session.send(QUESTION + b'\n')
    assert session.wait('Copenhagen') and session.wait('>>>')
    session.send(b'/regen\n')
    assert session.wait('Copenhagen') and session.wait('>>>')
    session.send(b'/save ' + str(tmp_path / 'talk.json').encode() + b'\n')
    assert session.wait('Wrote ') and session.wait('>>>')
    session.send(b'/save ' + str(tmp_path / 'talk.json').encode() + b'\n')
    assert session.wait('is there already') and session.wait('>>>')
    session.send(b'/system Be brief.\n')
    assert session.wait('>>>')
    session.send(b'/system\n')
    assert session.wait('Be brief.') and session.wait('>>>')
    session.send(b'/frobnicate\n')
    assert session.wait('no command /frobnicate') and session.wait('>>>')
    assert session.end() == 0
    talk = json.loads((tmp_path / 'talk.json').read_text())
    assert [message['role'] for message in talk] == ['user', 'assistant'] and talk[1]['content'] == 'Copenhagen'


def test_umlauts_can_be_typed_whatever_the_locale(chat, tmp_path):
    session = chat()
    session.send('größer 😀?\n'.encode())
    assert session.wait('größer 😀?'), session.seen
    assert session.wait('>>>')
    assert session.end() == 0
    assert json.loads((tmp_path / 'shoal' / 'history').read_text().splitlines()[0]) == 'größer 😀?'
