"""Expert servers on another machine: two phases, exact bytes, and a cable that is pulled."""
import json
import subprocess
import time

import pytest

from cable import Cable, NETWORK, cable  # noqa: F401
from cluster import BINARY, Cluster, Process, Readers, Server, admin, bodies, free_port, models, undisturbed, wait_until

MODEL = 'tiny-qwen3-moe'
USED = 4  # experts of a token


@pytest.fixture(scope='module')
def requests():
    return bodies([MODEL], tokens=60)


@pytest.fixture(scope='module')
def expected(requests):
    return undisturbed(requests)


class Experts:
    """Servers started by hand; `there`: at the other end of the cable."""

    def __init__(self, folder):
        self.folder, self.servers = folder, {}

    def start(self, name, holds, there, peers=()):
        local = f'unix:{self.folder}/{name}.sock'
        address = f'{NETWORK}.2:{free_port()}' if there else local
        listen = f'{address},{local}' if there else local
        words = ['--peers', ','.join(f'unix:{self.folder}/{peer}.sock' for peer in peers)] if peers else []
        self.servers[name] = Process(self.folder, name, 'expert', models(), '--name', name, '--listen', listen, '--threads', '1', '--memory', '1GiB', '--experts', holds, *words,
                                     prefix=('ip', 'netns', 'exec', Cable.space) if there else ())
        assert wait_until(lambda: 'holds' in self.servers[name].log(), 30), self.servers[name].log()
        return address

    def end(self):
        for server in self.servers.values():
            server.end()


@pytest.fixture
def experts(tmp_path):
    experts = Experts(tmp_path)
    yield experts
    experts.end()


def operate(server, *words):
    done = subprocess.run([str(BINARY), 'experts', *words, '--port', str(server.port)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def listed(server):
    return json.loads(operate(server, 'list', '--json'))


def ask_all(server, requests, expected):
    readers = Readers([server.url], requests, expected, count=4)
    time.sleep(3)
    return judge(readers)


def judge(readers):
    readers.finish()
    print(readers.summary())
    assert not readers.failed and not readers.changed and readers.answers > 4, (readers.summary(), readers.failed[:3], readers.changed[:1])
    return readers


def test_over_a_cable_a_token_goes_once_to_a_machine_and_the_bytes_are_those_that_are_counted(cable, experts, requests, expected):
    names = ['a', 'b', 'c']
    addresses = [experts.start(name, holds, True, [peer for peer in names if peer != name]) for name, holds in zip(names, ['*:0-9', '*:5-15', '*:0-4,10-15'])]
    server = Server('--experts', ','.join(addresses), models=models())
    try:
        ask_all(server, requests, expected)
        assert wait_until(lambda: all(seen['connected'] for row in listed(server)['data'] for seen in row['seen']), 20)
        counts, out, back = listed(server)['counts'], cable.counted('tx'), cable.counted('rx')
        ask_all(server, requests, expected)
        end, wire_out, wire_back = listed(server)['counts'], cable.counted('tx') - out, cable.counted('rx') - back
        did = {name: end[name] - counts[name] for name in end}
        print(did, wire_out, wire_back)
        assert did['relayed'] > 0 and did['deferred'] == 0, did
        # One copy of a token for the machine, whichever experts it uses; but for what is asked of another server as well, or again.
        extra = (did['hedges'] + did['rows_resent']) * USED
        assert did['requests'] - did['exchanges'] <= did['hedges'] + did['rows_resent'], did
        assert abs(did['tokens_sent'] * USED - did['rows_asked']) <= extra, did
        # What else is on the cable: who asks servers what they hold, once a second.
        asked = 8 * 32 * 1024 * len(names)
        assert did['bytes_sent'] <= wire_out <= did['bytes_sent'] * 1.001 + asked, (did, wire_out)
        assert did['bytes_received'] <= wire_back <= did['bytes_received'] * 1.001 + asked, (did, wire_back)
    finally:
        server.stop()


def test_a_cable_to_a_machine_of_experts_is_pulled_while_others_hold_the_same(cable, experts, requests, expected):
    addresses = [experts.start('a', '*:0-7', True, ['b']), experts.start('b', '*:8-15', True, ['a']), experts.start('here', '*:*', False)]
    server = Server('--experts', ','.join(addresses), models=models())
    try:
        ask_all(server, requests, expected)
        readers = Readers([server.url], requests, expected, count=4)
        for seconds in (1, 4):
            time.sleep(1)
            cable.pull()
            time.sleep(seconds)
            cable.plug()
            assert wait_until(lambda: all(seen['connected'] and not seen['suspected'] for row in listed(server)['data'] for seen in row['seen'] if 'error' not in row), 40), listed(server)
        judge(readers)
        counts = listed(server)['counts']
        assert counts['timeouts'] + counts['losses'] + counts['hedges'] > 0 and counts['deferred'] == 0, counts
        before = counts['bytes_sent']
        assert wait_until(lambda: ask_all(server, requests, expected) and listed(server)['counts']['bytes_sent'] > before, 40)  # it is used again
    finally:
        server.stop()


def own_processes():
    """-> the words that make a process see no others: for a cluster, one of another machine. Skips where this user may not."""
    for words in (['unshare', '--pid', '--fork', '--kill-child', '--mount-proc'], ['unshare', '--map-root-user', '--pid', '--fork', '--kill-child', '--mount-proc']):
        if subprocess.run([*words, 'true'], capture_output=True).returncode == 0:
            return words
    pytest.skip('no process namespaces here')


def test_servers_of_a_cluster_give_rows_to_those_of_their_machine(requests, expected):
    words = own_processes()
    with Cluster(nodes=1, prefix_of=lambda name: words if name == 'node-0' else (), node_words=('--experts', 'cluster')) as cluster:
        for name in ('expert-0', 'expert-1', 'expert-2'):
            cluster.add(name, 'expert', models(), '--join', cluster.join, '--name', name, '--listen', '127.0.0.1:0', '--threads', '1', '--memory', '256MiB')
        cluster.wait_ready(1)

        def servers():
            return {row['name']: row for row in cluster.admin('/experts')['data'] if 'pid' in row}
        assert wait_until(lambda: len(servers()) == 3 and sum(row['models'][0]['experts'] > 0 for row in servers().values()) >= 2, 40), cluster.logs()
        readers = Readers(cluster.urls(), requests, expected, count=4)
        assert wait_until(lambda: sum(row['load']['relayed'] for row in servers().values()) > 0, 40), servers()
        ways = {(client['name'], client['over']) for row in servers().values() for client in row['clients']}
        assert any(over == 'TCP' for name, over in ways) and any(' for ' in name and over == 'shared memory' for name, over in ways), ways
        cluster['expert-1'].kill()  # what it relayed, and what was relayed to it, goes elsewhere
        time.sleep(2)
        cluster['expert-1'].start()
        assert wait_until(lambda: len(servers()) == 3, 40), cluster.logs()
        before = {name: row['load']['relayed'] for name, row in servers().items()}
        assert wait_until(lambda: any(row['load']['relayed'] > before.get(name, 0) for name, row in servers().items()), 40)
        judge(readers)
