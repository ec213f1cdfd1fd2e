"""Two machines: a network namespace at the other end of a virtual cable."""
import pathlib
import subprocess

import pytest

NETWORK = '10.213.77'


class Cable:
    """A network namespace joined by a virtual cable to this one."""

    here, there, space = 'shoal-a', 'shoal-b', 'shoal-chaos'

    @staticmethod
    def run(*words):
        done = subprocess.run(words, capture_output=True, text=True)
        return '' if done.returncode == 0 else done.stderr.strip() or 'failed: ' + ' '.join(words)

    def lay(self):
        """-> '' or why not"""
        space = ('ip', '-n', self.space)
        for words in [('ip', 'netns', 'add', self.space), ('ip', 'netns', 'exec', self.space, 'true'),
                      ('ip', 'link', 'add', self.here, 'type', 'veth', 'peer', 'name', self.there, 'netns', self.space),
                      ('ip', 'addr', 'add', f'{NETWORK}.1/24', 'dev', self.here), ('ip', 'link', 'set', self.here, 'up'),
                      (*space, 'addr', 'add', f'{NETWORK}.2/24', 'dev', self.there), (*space, 'link', 'set', self.there, 'up'), (*space, 'link', 'set', 'lo', 'up')]:
            if error := self.run(*words):
                return error
        return ''

    def pull(self):
        assert not self.run('ip', 'link', 'set', self.here, 'down')

    def plug(self):
        assert not self.run('ip', 'link', 'set', self.here, 'up')

    def deaf(self, yes):
        """What the other side sends goes to nobody; what it is sent arrives."""
        words = ('lladdr', '02:00:00:00:00:99', 'nud', 'permanent') if yes else ()
        assert not self.run('ip', '-n', self.space, 'neigh', 'replace' if yes else 'del', f'{NETWORK}.1', 'dev', self.there, *words)

    def slow(self, rate):
        """-> '' or why not. Both ways."""
        shape = ('tbf', 'rate', rate, 'burst', '16kbit', 'latency', '400ms')
        return self.run('tc', 'qdisc', 'add', 'dev', self.here, 'root', *shape) or self.run('ip', 'netns', 'exec', self.space, 'tc', 'qdisc', 'add', 'dev', self.there, 'root', *shape)

    def counted(self, way):
        """Bytes within TCP that went out of this end ('tx') or came in ('rx'): without the heads of Ethernet, IP and TCP with time stamps. Large
        segments are counted as they are handed over, with one head."""
        statistics = pathlib.Path('/sys/class/net', self.here, 'statistics')
        return int((statistics / f'{way}_bytes').read_text()) - (14 + 20 + 32) * int((statistics / f'{way}_packets').read_text())

    def remove(self):
        self.run('ip', 'link', 'del', self.here)
        self.run('ip', 'netns', 'del', self.space)


@pytest.fixture
def cable():
    """Skips where this user may not lay one."""
    cable = Cable()
    try:
        if error := cable.lay():
            pytest.skip('no virtual cable here: ' + error)
        yield cable
    finally:
        cable.remove()
