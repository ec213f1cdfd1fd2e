"""Members that should not be let in, and machines in a bad state: the trouble is named and nobody else notices."""
import base64
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from cluster import BINARY, ENVIRONMENT, Cluster, Etcd, Process, ask, bodies, call, free_port, models, nodes_heard, undisturbed, wait_until

NAMES = ['tiny-llama', 'tiny-qwen3']
needs_etcd = pytest.mark.skipif(shutil.which('etcd') is None, reason='etcd is not installed')


@pytest.fixture(scope='module')
def requests():
    return bodies(NAMES, tokens=40)


@pytest.fixture(scope='module')
def expected(requests):
    return undisturbed(requests)


def answers_all(cluster, requests, expected):
    for body, text in zip(requests, expected):
        assert ask(cluster.url(), body)[::2] == (text, None), cluster.logs()


def node_words(cluster, name, folder=None):
    return ['node', folder or models(), '--join', cluster.join, '--name', name, '--listen', '127.0.0.1:0', '--threads', '1', '--device-memory', '600MiB']


# ---- certificates --------------------------------------------------------------------------------------------------------------

class Authority:
    """Signs certificates for 127.0.0.1 with openssl's command."""

    def __init__(self, folder, name):
        self.folder, self.name = pathlib.Path(folder), name
        self.openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', f'{name}.key', '-out', f'{name}.crt', '-days', '30', '-subj', f'/CN={name}')

    def openssl(self, *words):
        subprocess.run(['openssl', *words], cwd=self.folder, check=True, capture_output=True)

    def sign(self, name, days=30):
        """-> flags of a process"""
        at = f'{self.name}-{name}'
        (self.folder / f'{at}.ext').write_text('subjectAltName=IP:127.0.0.1,DNS:localhost\n')
        self.openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', f'{at}.key', '-out', f'{at}.csr', '-subj', f'/CN={name}')
        self.openssl('x509', '-req', '-in', f'{at}.csr', '-CA', f'{self.name}.crt', '-CAkey', f'{self.name}.key', '-CAcreateserial', '-out', f'{at}.crt', '-days', str(days), '-extfile', f'{at}.ext')
        file = lambda ending: str(self.folder / f'{at}.{ending}')
        return ['--tls-cert', file('crt'), '--tls-key', file('key'), '--tls-ca', str(self.folder / f'{self.name}.crt')]


@pytest.mark.skipif(shutil.which('openssl') is None, reason='the command openssl is not installed')
def test_who_has_a_certificate_of_another_authority_or_an_old_one_or_none_is_left_out(tmp_path, requests, expected):
    ours, theirs = Authority(tmp_path, 'ours'), Authority(tmp_path, 'theirs')
    with Cluster(nodes=1, words=ours.sign('member')).wait_ready(1) as cluster:
        answers_all(cluster, requests, expected)
        for name, tls in (('of-theirs', theirs.sign('member')), ('expired', ours.sign('old', days=-1)), ('plain', [])):
            stranger = cluster.add(name, *node_words(cluster, name), *tls, with_words=False)
            said = lambda: f"no stream to '{name}'" in cluster['gateway-0'].log() or "no stream to 'gateway-0'" in stranger.log() or not stranger.alive
            assert wait_until(said, 20), cluster.logs()
            assert cluster.nodes_heard() == 1, cluster.logs()
            answers_all(cluster, requests[:2], expected[:2])
            stranger.end()
        cluster.add('late', *node_words(cluster, 'late'))
        assert wait_until(lambda: cluster.nodes_heard() == 2, 20), cluster.logs()


def test_files_of_certificates_that_are_none_are_named_at_the_start(tmp_path):
    (tmp_path / 'bad.pem').write_text('nothing')
    run = lambda *words: subprocess.run([BINARY, 'controller', '--listen', f'unix:{tmp_path}/c.sock', *map(str, words)], capture_output=True, text=True, timeout=20, env=ENVIRONMENT)
    alone = run('--tls-cert', tmp_path / 'bad.pem')
    assert alone.returncode != 0 and 'go together' in alone.stderr, alone.stderr
    bad = run(*sum(([f'--tls-{word}', tmp_path / 'bad.pem'] for word in ('cert', 'key', 'ca')), []))
    assert bad.returncode != 0 and 'ertificate' in bad.stderr, bad.stderr


# ---- names and files -----------------------------------------------------------------------------------------------------------

def test_a_second_process_of_a_name_ends_and_the_first_serves_on(requests, expected):
    with Cluster(nodes=1).wait_ready(1) as cluster:
        double = cluster.add('double', *node_words(cluster, 'node-0'))
        assert wait_until(lambda: not double.alive, 30), cluster.logs()
        assert 'node-0' in double.log() and double.process.returncode != 0, double.log()
        answers_all(cluster, requests, expected)


def test_other_files_under_a_name_are_a_conflict_and_never_a_mix(tmp_path, requests, expected):
    shutil.copytree(models() / 'tiny-qwen3', tmp_path / 'tiny-llama')
    with Cluster(nodes=1).wait_ready(1) as cluster:
        cluster.add('other', *node_words(cluster, 'other', tmp_path))
        assert wait_until(lambda: cluster.nodes_heard() == 2, 30), cluster.logs()
        for _ in range(3):
            answers_all(cluster, requests, expected)
        conflict = [line for line in cluster['gateway-0'].log().splitlines() if 'tiny-llama' in line and 'other' in line and 'node-0' in line]
        assert conflict, cluster.logs()


# ---- a directory that is not there, or full --------------------------------------------------------------------------------------

@needs_etcd
def test_processes_that_start_before_etcd_wait_and_say_so(requests, expected):
    port = free_port()
    cluster = Cluster(nodes=1, join=f'etcd://127.0.0.1:{port}')
    with cluster:
        names = ('controller', 'node-0', 'gateway-0')
        assert wait_until(lambda: all('waiting for the directory' in cluster[name].log() for name in names), 20), cluster.logs()
        assert all(cluster[name].alive for name in names)
        cluster.etcd = Etcd(cluster.folder, client=port)
        answers_all(cluster.wait_ready(1), requests, expected)


@needs_etcd
def test_an_etcd_whose_disk_is_full_stops_nothing_that_runs(requests, expected):
    with Cluster(nodes=1, etcd=True, etcd_words=('--quota-backend-bytes', str(1 << 20))).wait_ready(1) as cluster:
        value = base64.b64encode(bytes(300_000)).decode()

        def full():
            key = base64.b64encode(os.urandom(8)).decode()
            return 'space exceeded' in str(call(f'http://127.0.0.1:{cluster.etcd.client}/v3/kv/put', {'key': key, 'value': value})[2])

        assert wait_until(full, 20)
        late = cluster.add('late', *node_words(cluster, 'late'))
        assert wait_until(lambda: 'cannot be joined yet' in late.log() or 'does not answer' in late.log(), 20), cluster.logs()
        time.sleep(7)  # longer than a lease
        answers_all(cluster, requests, expected)
        assert cluster.nodes_heard() == 1 and late.alive, cluster.logs()


# ---- machines in a bad state ---------------------------------------------------------------------------------------------------

@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 64 KiB that is full; skips where this user may not mount one."""
    folder = tmp_path / 'disk'
    folder.mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', folder], capture_output=True).returncode != 0:
        pytest.skip('nothing may be mounted here')
    try:
        with open(folder / 'ballast', 'wb', buffering=0) as ballast:
            with pytest.raises(OSError):
                while True:
                    ballast.write(bytes(4096))
        yield folder
    finally:
        subprocess.run(['umount', '-l', folder], check=True)


def test_a_full_disk_costs_what_is_to_be_kept_and_no_answer(small_disk, requests, expected):
    with Cluster(nodes=1).wait_ready(1) as cluster:
        environment = {**ENVIRONMENT, 'SHOAL_ESTIMATES': str(small_disk / 'estimates'), 'SHOAL_DIGESTS': str(small_disk / 'digests'), 'TMPDIR': str(small_disk)}
        full = cluster.add('full', *node_words(cluster, 'full'), environment=environment)
        assert wait_until(lambda: cluster.nodes_heard() == 2, 30), cluster.logs()
        cluster['node-0'].kill()
        answers_all(cluster, requests, expected)
        assert full.alive, full.log()
        assert full.end() == 0 and 'No space left' in full.log(), full.log()


@pytest.mark.skipif(shutil.which('faketime') is None, reason='the command faketime is not installed')
def test_clocks_that_jump_change_nothing(tmp_path, requests, expected):
    at = tmp_path / 'time'
    at.write_text('+0s')
    library = next(pathlib.Path('/usr/lib').glob('*/faketime/libfaketime.so.1'))
    environment = {**ENVIRONMENT, 'LD_PRELOAD': str(library), 'FAKETIME_TIMESTAMP_FILE': str(at), 'FAKETIME_CACHE_DURATION': '1', 'FAKETIME_DONT_FAKE_MONOTONIC': '1', 'FAKETIME_DONT_RESET': '1'}
    with Cluster(nodes=2, environment_of=lambda name: environment if name == 'node-1' else None).wait_ready(2) as cluster:
        for jump in ('+3d', '-40d', '+0s'):
            at.write_text(jump)
            time.sleep(2)
            answers_all(cluster, requests, expected)
        at.write_text('-40d')
        cluster['node-1'].kill()
        cluster['node-1'].start()  # its life must rise all the same
        assert wait_until(lambda: cluster.nodes_heard() == 2, 30), cluster.logs()
        cluster['node-0'].kill()
        answers_all(cluster, requests, expected)


# ---- one command -----------------------------------------------------------------------------------------------------------------

def test_serve_in_processes_is_one_cluster_and_mends_itself(tmp_path, requests, expected):
    port, socket = free_port(), tmp_path / 'admin.sock'
    serve = Process(tmp_path, 'serve', 'serve', models(), '--processes', '2', '--port', port, '--admin-socket', socket, '--device-memory', '600MiB')
    url = f'http://127.0.0.1:{port}'
    verb = lambda *words: subprocess.run([BINARY, *words, '--admin-socket', socket], capture_output=True, text=True, timeout=30, env=ENVIRONMENT)
    try:
        assert wait_until(lambda: ask(url, requests[0])[0] == expected[0], 60), serve.log()
        assert wait_until(lambda: nodes_heard(socket) == 2, 20), serve.log()
        children = {line.split()[-2].rstrip(','): int(line.split()[-1]) for line in serve.log().splitlines() if ', process ' in line and 'started ' in line for line in [line.replace(', process', ',')]}
        os.kill(children['node-0'], signal.SIGKILL)
        for body, text in zip(requests, expected):
            assert ask(url, body)[::2] == (text, None), serve.log()
        assert wait_until(lambda: 'started again' in serve.log() and serve.log().count('started node-0') == 2, 20), serve.log()
        stop = verb('stop')
        assert stop.returncode == 0, stop.stderr
        assert wait_until(lambda: not serve.alive, 30), serve.log()
        for pid in children.values():
            assert not pathlib.Path(f'/proc/{pid}').exists() or pathlib.Path(f'/proc/{pid}/stat').read_text().split()[2] == 'Z'
    finally:
        serve.end()
