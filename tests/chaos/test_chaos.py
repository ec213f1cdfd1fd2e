"""Bad weather on real processes: whatever happens to one of them, no request fails and no answer changes."""
import os
import shutil
import signal
import time

import pytest

from cable import Cable, NETWORK, cable  # noqa: F401
from cluster import Cluster, Readers, ask, bodies, call, late_by_chance, models, undisturbed, wait_until

LONG = os.environ.get('SHOAL_CHAOS') == 'long'

NAMES = ['tiny-llama', 'tiny-qwen3', 'tiny-qwen3-moe']


@pytest.fixture(scope='module')
def requests():
    return bodies([*NAMES, 'SmolLM2-135M-Instruct'] if (models() / 'SmolLM2-135M-Instruct.gguf').exists() else NAMES, tokens=120)


@pytest.fixture(scope='module')
def expected(requests):
    return undisturbed(requests)


def judge(readers, cluster, at_least=6):
    readers.finish()
    print(readers.summary())
    assert not readers.failed, f'{readers.failed[:3]}\n{cluster.logs()}'
    assert not readers.changed, readers.changed[:1]
    assert readers.answers >= at_least, readers.summary()


def test_answers_of_a_cluster_are_those_of_one_process(requests, expected):
    with Cluster(nodes=2).wait_ready(2) as cluster:
        for body, text in zip(requests, expected):
            assert ask(cluster.url(), body)[::2] == (text, None), cluster.logs()
        listed = {m['id'] for m in call(cluster.url() + '/v1/models')[2]['data']}
        assert set(NAMES) <= listed


def test_nodes_that_are_killed_again_and_again_cost_no_answer(requests, expected):
    with Cluster(nodes=3).wait_ready(3) as cluster:
        readers = Readers(cluster.urls(), requests, expected)
        for kill in range(5):
            time.sleep(1.0)
            cluster[f'node-{kill % 3}'].kill()
            time.sleep(0.5)
            cluster[f'node-{kill % 3}'].start()
            assert wait_until(lambda: cluster.nodes_heard() == 3, 30), cluster.logs()
        judge(readers, cluster)


def test_two_nodes_killed_at_once_leave_the_third(requests, expected):
    with Cluster(nodes=3).wait_ready(3) as cluster:
        readers = Readers(cluster.urls(), requests, expected)
        time.sleep(1)
        cluster['node-0'].kill()
        cluster['node-2'].kill()
        time.sleep(3)
        judge(readers, cluster)


def test_a_stopped_node_is_left_and_taken_back(requests, expected):
    with Cluster(nodes=2).wait_ready(2) as cluster:
        readers = Readers(cluster.urls(), requests, expected)
        time.sleep(1)
        cluster['node-1'].send(signal.SIGSTOP)
        time.sleep(8)  # beyond its lease
        cluster['node-1'].send(signal.SIGCONT)
        assert wait_until(lambda: cluster.nodes_heard() == 2, 30), cluster.logs()
        time.sleep(1)
        judge(readers, cluster)
        assert ask(cluster.url(), requests[0])[0] == expected[0]


def test_nodes_stopped_in_turn_come_back_in_another_life(requests, expected):
    with Cluster(nodes=2).wait_ready(2) as cluster:
        readers = Readers(cluster.urls(), requests, expected)
        for name in ('node-0', 'node-1'):  # longer than the lease, and whichever has the work
            time.sleep(1)
            cluster[name].send(signal.SIGSTOP)
            time.sleep(6)
            cluster[name].send(signal.SIGCONT)
            assert wait_until(lambda: cluster.nodes_heard() == 2, 30), cluster.logs()
        time.sleep(1)
        judge(readers, cluster)


def test_a_short_stop_changes_nothing(requests, expected):
    with Cluster(nodes=2).wait_ready(2) as cluster:
        readers = Readers(cluster.urls(), requests, expected)
        for _ in range(3):
            time.sleep(0.7)
            cluster['node-0'].send(signal.SIGSTOP)
            time.sleep(0.6)
            cluster['node-0'].send(signal.SIGCONT)
        judge(readers, cluster)


def test_a_gateway_that_dies_takes_only_its_own_streams_and_frees_the_nodes(requests, expected):
    with Cluster(nodes=2, gateways=2).wait_ready(2) as cluster:
        readers = Readers(cluster.urls(), requests, expected, retry_lost=True)
        for _ in range(2):
            time.sleep(1)
            cluster['gateway-1'].kill()
            time.sleep(0.5)
            cluster['gateway-1'].start()
            assert wait_until(lambda: cluster.nodes_heard('gateway-1') == 2, 30), cluster.logs()
        judge(readers, cluster)
        assert wait_until(lambda: sum(m['running'] + m['waiting'] for m in cluster.admin('/status')['models']) == 0, 20)


def test_the_controller_and_its_directory_may_go_and_come(requests, expected):
    with Cluster(nodes=2).wait_ready(2) as cluster:
        readers = Readers(cluster.urls(), requests, expected)
        time.sleep(0.5)
        cluster['controller'].kill()
        time.sleep(7)  # longer than a lease
        cluster['node-1'].kill()  # and a node meanwhile
        time.sleep(2)
        cluster['controller'].start()
        cluster['node-1'].start()
        assert wait_until(lambda: cluster.nodes_heard() == 2, 40), cluster.logs()
        judge(readers, cluster)


needs_etcd = pytest.mark.skipif(shutil.which('etcd') is None, reason='etcd is not installed')


@needs_etcd
def test_etcd_away_and_wiped_while_a_node_is_killed(requests, expected):
    with Cluster(nodes=2, etcd=True).wait_ready(2) as cluster:
        readers = Readers(cluster.urls(), requests, expected)
        time.sleep(0.5)
        cluster.etcd.stop()
        time.sleep(6)
        cluster['node-0'].kill()
        time.sleep(2)
        cluster.etcd.wipe()
        cluster['node-0'].start()
        assert wait_until(lambda: cluster.nodes_heard() == 2, 40), cluster.logs()
        time.sleep(1)
        judge(readers, cluster)


def test_prompts_on_one_node_and_answers_on_another(requests, expected):
    for transport in ('auto', 'tcp'):
        with Cluster(nodes=2, roles=('prefill', 'decode'), node_words=('--kv-transport', transport)).wait_ready(2) as cluster:
            readers = Readers(cluster.urls(), requests, expected, count=4)
            time.sleep(2)
            cluster['node-1'].kill()
            time.sleep(1)
            cluster['node-1'].start()
            assert wait_until(lambda: cluster.nodes_heard() == 2, 30), cluster.logs()
            time.sleep(1)
            judge(readers, cluster)
            moved = sum(n['kv_bytes_in'] for n in cluster.admin('/status')['nodes'])
            assert moved > 0, 'no KV went from one node to the other'


# ---- links that are cut, slow or late ----------------------------------------------------------------------------------------

def apart(**more):
    """A cluster whose node-1 is at the other end of the cable."""
    prefix = lambda name: ('ip', 'netns', 'exec', Cable.space) if name == 'node-1' else ()
    listen = lambda name: f'{NETWORK}.2:0' if name == 'node-1' else f'{NETWORK}.1:0'
    return Cluster(nodes=2, prefix_of=prefix, listen_of=listen, **more).wait_ready(2)


def test_a_cable_that_is_pulled_and_plugged_in_again(cable, requests, expected):
    with apart() as cluster:
        readers = Readers(cluster.urls(), requests, expected)
        for seconds in (1, 5, 30) if LONG else (1, 5):
            time.sleep(1)
            cable.pull()
            time.sleep(seconds)
            cable.plug()
            assert wait_until(lambda: cluster.nodes_heard() == 2, 30), cluster.logs()
        judge(readers, cluster)


def test_a_link_that_carries_one_way_only(cable, requests, expected):
    with apart() as cluster:
        readers = Readers(cluster.urls(), requests, expected)
        time.sleep(1)
        cable.deaf(True)
        time.sleep(4)
        cable.deaf(False)
        assert wait_until(lambda: cluster.nodes_heard() == 2, 30), cluster.logs()
        judge(readers, cluster)


def test_a_slow_link_between_prompts_and_answers(cable, requests, expected):
    if error := cable.slow('4mbit'):
        pytest.skip('no slow links here: ' + error)
    with apart(roles=('prefill', 'decode'), node_words=('--kv-transport', 'tcp')) as cluster:
        readers = Readers(cluster.urls(), requests, expected, count=3)
        time.sleep(4)
        judge(readers, cluster, at_least=3)


def test_everything_between_processes_is_late_by_chance(requests, expected):
    with late_by_chance(seed=7, seconds=0.04) as (words, watch):
        cluster = Cluster(nodes=2, **words)
        watch()
        with cluster.wait_ready(2):
            readers = Readers(cluster.urls(), requests, expected)
            time.sleep(2)
            cluster['node-0'].kill()
            time.sleep(1)
            cluster['node-0'].start()
            assert wait_until(lambda: cluster.nodes_heard() == 2, 30), cluster.logs()
            judge(readers, cluster)
