"""Settings of models and their reloading, what can be seen of a run, and estimates that outlive it."""
import concurrent.futures
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import fcntl
import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from conftest import BINARY, MODELS, NAMES, http, wait_until

SMALL = ['--device-memory', '16MiB', '--max-model-len', '512', '--max-num-batched-tokens', '64', '--max-num-seqs', '16', '--threads', '2']


@pytest.fixture
def folder(tmp_path):
    models = tmp_path / 'models'
    for i in range(4):
        shutil.copytree(MODELS / NAMES[i % 2], models / f'm{i}')
    return models


def ask(server, model, tokens=8, **more):
    return http(server.url + '/v1/completions', {'model': model, 'prompt': [(j * 7919) % 700 + 10 for j in range(40)], 'max_tokens': tokens,
                                                 'temperature': 0, 'ignore_eos': True, **more})


def shoal(*words, check=True):
    done = subprocess.run([str(BINARY), *map(str, words)], capture_output=True, text=True, timeout=60)
    assert not check or done.returncode == 0, done.stderr
    return done


def names(server):
    listed = http(server.url + '/v1/models')[2]['data']
    return {one for model in listed for one in [model['id'], *model['aliases']]}


def test_settings_of_models_hold_and_are_reloaded(own_server, folder, tmp_path):
    config = folder / 'shoal.yaml'
    config.write_text('models:\n  m0:\n    ttft: 2\n    aliases: [zero]\n  m1: {max_wait: 0.001ms}\n')
    socket = tmp_path / 'admin.sock'
    server = own_server(*SMALL, '--admin-socket', str(socket), models=folder)
    assert ask(server, 'zero')[0] == 200
    assert ask(server, 'm1')[0] == 503, 'its wait is shorter than any load'
    assert server.metric('shoal_slo_target_seconds', model='m0', kind='ttft') == 2

    config.write_text('models:\n  m0:\n    tftt: 3\n')
    refused = shoal('reload', '--socket', socket, check=False)
    assert refused.returncode == 1 and 'shoal.yaml:3' in refused.stderr and "did you mean 'ttft'" in refused.stderr
    assert ask(server, 'zero')[0] == 200, 'a bad file changes nothing'

    config.write_text('port: 1\nmodels:\n  m0:\n    ttft: 4\n    aliases: nought\n')
    shutil.rmtree(folder / 'm3')
    shutil.copytree(MODELS / NAMES[0], folder / 'm9')
    answer = json.loads(shoal('reload', '--socket', socket, '--json').stdout)
    assert (answer['added'], answer['removed'], answer['changed']) == (['m9'], ['m3'], ['m0', 'm1'])
    assert names(server) == {'m0', 'nought', 'm1', 'm2', 'm9'}
    assert server.metric('shoal_slo_target_seconds', model='m0', kind='ttft') == 4
    assert [ask(server, model)[0] for model in ('nought', 'm1', 'm9', 'zero', 'm3')] == [200, 200, 200, 404, 404]
    config.unlink()
    server.process.send_signal(signal.SIGHUP)
    deadline = time.time() + 20
    while 'nought' in names(server):
        assert time.time() < deadline, server.output()
        time.sleep(0.02)


def test_a_model_that_is_taken_away_ends_with_its_requests(own_server, folder, tmp_path):
    socket = tmp_path / 'admin.sock'
    server = own_server(*SMALL, '--admin-socket', str(socket), models=folder)
    alone = ask(server, 'm2', tokens=400)[2]['choices'][0]['text']
    body = {'model': 'm2', 'prompt': [(j * 7919) % 700 + 10 for j in range(40)], 'max_tokens': 400, 'temperature': 0, 'ignore_eos': True, 'stream': True}
    request = urllib.request.Request(server.url + '/v1/completions', data=json.dumps(body).encode(), headers={'Content-Type': 'application/json'})
    text = ''
    with urllib.request.urlopen(request, timeout=60) as stream:
        first = stream.readline()
        shutil.move(str(folder / 'm2'), str(tmp_path / 'away'))
        answer = json.loads(shoal('reload', '--socket', socket, '--json').stdout)
        assert answer['removed'] == ['m2']
        assert ask(server, 'm2')[0] == 404
        for line in [first, *stream]:
            if line.startswith(b'data: {'):
                text += ''.join(choice['text'] for choice in json.loads(line[6:])['choices'])
    assert text == alone
    assert ask(server, 'm0')[0] == 200


def test_config_check_names_what_is_wrong_with_models(folder):
    (folder / 'shoal.yaml').write_text('models:\n  m0: {ttft: 1, pin: true}\n  n0: {tbt: 0.5}\n')
    done = shoal('config', 'check', folder, check=False)
    assert done.returncode == 1 and "there is no model 'n0'" in done.stderr and 'shoal.yaml:3' in done.stderr
    assert 'ttft 1 s, pinned' in done.stdout
    (folder / 'shoal.yaml').write_text('models:\n  m0: {ttft: 1, pin: true}\n')
    assert 'no problem found' in shoal('config', 'check', folder).stdout


def test_config_show_has_the_settings_of_models_and_can_be_read_again(folder, tmp_path):
    (folder / 'shoal.yaml').write_text('models:\n  m0: {ttft: 500ms, pin: true, aliases: [zero, "gpt: 4"]}\n  m1:\n')
    told = json.loads(shoal('config', 'show', folder, '--json').stdout)['models']
    assert told['m0']['settings'] == 'ttft 0.5 s, pinned, aliases zero gpt: 4' and told['m1']['settings'] == 'as all models'
    again = tmp_path / 'again.yaml'
    again.write_text(shoal('config', 'show', folder).stdout)
    read = json.loads(shoal('config', 'check', folder, '--config', again, '--json').stdout)
    assert read['problems'] == []
    assert {name: model['settings'] for name, model in read['models'].items()} == {name: model['settings'] for name, model in told.items()}


def test_a_model_that_cannot_be_loaded_is_503_for_those_who_wait(own_server, folder):
    server = own_server(*SMALL, models=folder)
    with open(folder / 'm1' / 'model.safetensors', 'r+b') as weights:
        weights.truncate(1000)
    status, _, answer = ask(server, 'm1')
    assert (status, answer['error']['code']) == (503, 'model_load_failed'), answer
    assert ask(server, 'm0')[0] == 200


def check_trace(trace):
    """The rules of the Trace Event Format that viewers rely on."""
    tracks, instances, named = {}, {}, set()
    for event in trace['traceEvents']:
        assert {'ph', 'pid', 'tid', 'name'} <= event.keys(), event
        assert type(event['pid']) is int and type(event['tid']) is int and type(event['name']) is str, event
        if event['ph'] == 'M':
            assert event['name'] in ('process_name', 'thread_name') and type(event['args']['name']) is str
            named.add((event['pid'], event['tid'] if event['name'] == 'thread_name' else None))
            continue
        assert event['ts'] >= 0 and type(event['cat']) is str, event
        assert (event['pid'], None) in named, 'a process without a name'
        if event['ph'] == 'X':
            assert event['dur'] >= 0 and (event['pid'], event['tid']) in named, event
            tracks.setdefault((event['pid'], event['tid']), []).append((event['ts'], event['ts'] + event['dur'], event['name']))
        elif event['ph'] == 'i':
            assert event['s'] in ('t', 'p', 'g'), event
        else:
            assert event['ph'] in 'bne' and type(event['id']) is str, event
            instances.setdefault((event['pid'], event['cat'], event['id'], event['name']), []).append((event['ph'], event['ts']))
    for spans in tracks.values():  # of one track: one after the other, or one within the other
        open_until = []
        for begin, end, name in sorted(spans, key=lambda s: (s[0], -s[1])):
            while open_until and open_until[-1][0] <= begin + 0.01:
                open_until.pop()
            assert not open_until or end <= open_until[-1][0] + 0.01, (name, open_until[-1])
            open_until.append((end, name))
    for key, phases in instances.items():
        order = [phase for phase, _ in phases]
        assert order[0] == 'b' and order[-1] == 'e' and set(order[1:-1]) <= {'n'}, (key, phases)
        assert [ts for _, ts in phases] == sorted(ts for _, ts in phases), (key, phases)


def test_metrics_are_read_by_the_client_library_of_prometheus(own_server, folder):
    server = own_server(*SMALL, '--host-memory', '16MiB', models=folder)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(answer[0] == 200 for answer in pool.map(lambda i: ask(server, f'm{i % 4}', tokens=100), range(12)))
    served = lambda: all(server.metric('shoal_switches_total', model=f'm{i}', end='served') for i in range(4))
    assert wait_until(served), 'what nodes tell of themselves comes a little later than their tokens'
    families = {family.name: family for family in text_string_to_metric_families(http(server.url + '/metrics')[2])}
    # The parser takes the _total of counters away.
    counters = {'shoal_switches': {'model', 'end'}, 'shoal_switches_hidden': {'model'}, 'shoal_prefetches': {'model', 'end'},
                'shoal_switch_stage_seconds': {'model', 'stage'}, 'shoal_switch_visible_seconds': {'model'}, 'shoal_switch_bytes': {'model', 'kind'},
                'shoal_switch_load_seconds': {'model'}, 'shoal_slo_tokens': {'model'}, 'shoal_slo_tokens_on_time': {'model'}, 'shoal_slo_requests': {'model'},
                'shoal_slo_requests_on_time': {'model'}, 'shoal_slo_request_shares': {'model'}, 'shoal_slo_artifact_shares': {'model'},
                'shoal_kv_swap_bytes': {'node', 'direction'}}
    gauges = {'shoal_slo_attainment': {'model', 'figure'}, 'shoal_slo_target_seconds': {'model', 'kind'}, 'shoal_kv_fragmentation': {'node'},
              'shoal_models_waiting': {'node'}, 'shoal_round_alpha': {'node'}, 'shoal_prompt_pressure': {'node'}, 'shoal_device_memory_bytes': {'node', 'kind'}}
    for kind, wanted in (('counter', counters), ('gauge', gauges)):
        for name, labels in wanted.items():
            family = families[name]
            assert family.type == kind and family.documentation and family.samples, name
            assert all(set(sample.labels) == labels and sample.value >= 0 for sample in family.samples), family.samples
    lateness = families['shoal_token_lateness_seconds']
    assert lateness.type == 'histogram' and any(sample.name.endswith('_bucket') and sample.labels['le'] == '+Inf' for sample in lateness.samples)

    def total(name, **labels):
        return sum(s.value for s in families[name].samples if labels.items() <= s.labels.items())

    assert total('shoal_switches', end='served') >= 4
    assert 0 < total('shoal_prefetches') <= total('shoal_switches'), 'a model was loaded while another one computed'
    assert total('shoal_prefetches', end='used') <= total('shoal_switches', end='served')


def test_a_run_can_be_recorded_traced_and_watched(own_server, folder, tmp_path):
    socket, record, events = tmp_path / 'admin.sock', tmp_path / 'run.jsonl', tmp_path / 'run.events'
    server = own_server(*SMALL, '--admin-socket', str(socket), '--record', str(record), '--record-events', str(events), models=folder)
    for model in ('m0', 'm1', 'm2', 'm3'):
        assert ask(server, model, tokens=16)[0] == 200
    hurried = ask(server, 'm0', tokens=16, slo={'ttft_ms': 1, 'tbt_ms': 1})
    assert hurried[0] == 200
    trace = json.loads(shoal('trace', '--socket', socket).stdout)
    kinds = {(event['ph'], event.get('cat')) for event in trace['traceEvents']}
    assert {('X', 'decode'), ('X', 'load'), ('X', 'stage'), ('b', 'request'), ('e', 'request')} <= kinds
    check_trace(trace)

    seen = json.loads(shoal('top', '--socket', socket, '--json', '--interval', '0.2').stdout)
    m0 = next(model for model in seen['models'] if model['id'] == 'm0')
    assert m0['attainment']['tokens_counted'] == 32
    screen = shoal('top', '--socket', socket, '--once', '--interval', '0.2').stdout
    assert 'MODEL' in screen and 'node 2' in screen and '\033' not in screen
    assert server.metric('shoal_switches_total', model='m1', end='served') == 1
    assert server.metric('shoal_switch_bytes_total', model='m1', kind='written') > 1e6

    server.process.send_signal(signal.SIGTERM)
    server.process.wait(20)
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    requests = [line for line in lines if line['type'] == 'request']
    assert [(r['model'], r['prompt_tokens'], r['output_tokens'], r['finish']) for r in requests] == [(m, 40, 16, 'length') for m in ('m0', 'm1', 'm2', 'm3', 'm0')]
    assert all(0 <= r['arrival'] <= r['first_token'] <= r['end'] for r in requests)
    late = requests[-1]['first_token'] - requests[-1]['arrival'] > 0.002  # where a switch takes longer than the millisecond that it was given
    assert m0['attainment']['tokens'] < 1 or not late, (m0, requests[-1])
    assert {'run', 'model', 'request', 'turn', 'switch'} <= {line['type'] for line in lines}

    # The simulator takes both: the requests as a workload, and the decisions once more, which must be the same.
    simulated = json.loads(shoal('simulate', '--json', '--devices', '1xH800', '--trace', record).stdout)[0]
    assert (simulated['requests'], simulated['models'], simulated['tokens']) == (5, 4, 80)
    said = shoal('simulate', '--replay', events).stdout
    assert 'decisions are the recorded ones, bit for bit and in order' in said and int(re.search(r'(\d+) loads', said)[1]) >= 4
    recorded = events.read_bytes()
    events.write_bytes(recorded.replace(b'wake at ', b'wake At ', 1))
    changed = subprocess.run([str(BINARY), 'simulate', '--replay', str(events)], capture_output=True, text=True)
    assert changed.returncode == 1 and 'this build answers' in changed.stderr
    events.write_bytes(recorded[:-40])  # a server that was killed leaves half a record
    assert 'bit for bit' in shoal('simulate', '--replay', events).stdout


def read_terminal(fd, seconds):
    out, until = b'', time.time() + seconds
    while time.time() < until:
        if select.select([fd], [], [], 0.05)[0]:
            try:
                out += os.read(fd, 65536)
            except OSError:
                break
    return out.decode(errors='replace')


def test_top_lives_in_a_terminal_and_gives_it_back(own_server, folder, tmp_path):
    socket = tmp_path / 'admin.sock'
    server = own_server(*SMALL, '--admin-socket', str(socket), models=folder)
    assert ask(server, 'm0')[0] == 200
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(str(BINARY), [str(BINARY), 'top', '--socket', str(socket), '--interval', '0.2'])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 30, 120, 0, 0))
    text = read_terminal(fd, 2)
    assert '\033[?1049h' in text and 'MODEL' in text and 'm0' in text
    for rows in range(100, 6, -1):  # whatever it is doing when the size changes
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', rows, 120, 0, 0))
        os.kill(pid, signal.SIGWINCH)
        read_terminal(fd, 0.01)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 6, 60, 0, 0))
    os.kill(pid, signal.SIGWINCH)
    assert '... and' in read_terminal(fd, 1.5), 'it draws for the screen that there is now'
    os.write(fd, b'q')
    text = read_terminal(fd, 2)
    assert '\033[?1049l' in text and '\033[?25h' in text
    assert os.waitpid(pid, 0)[1] == 0
    os.close(fd)


def test_estimates_outlive_the_server(own_server, folder, tmp_path):
    kept = tmp_path / 'state' / 'estimates.json'
    first = own_server(*SMALL, '--estimates', str(kept), models=folder)
    assert ask(first, 'm0')[0] == 200
    first.process.send_signal(signal.SIGTERM)
    first.process.wait(20)
    text = kept.read_text()
    assert any(key.startswith('m0 (') for key in json.loads(text)['models'])
    kept.write_text(text[:100])
    second = own_server(*SMALL, '--estimates', str(kept), models=folder)
    assert 'left out' in second.output() and ask(second, 'm0')[0] == 200


def test_what_model_files_hold_is_read_once(own_server, folder, tmp_path):
    kept = tmp_path / 'cache' / 'digests.json'
    first = own_server(*SMALL, '--digests', str(kept), models=folder)
    assert ask(first, 'm0')[0] == 200
    assert wait_until(kept.exists), first.output()
    known = json.loads(kept.read_text())['models']
    assert len(known) == 1 and all(re.fullmatch('[0-9a-f]{64}', digest) for digest in known.values())
    first.process.send_signal(signal.SIGTERM)
    first.process.wait(20)
    written = kept.stat().st_mtime_ns
    second = own_server(*SMALL, '--digests', str(kept), models=folder)
    assert ask(second, 'm0')[0] == 200
    assert ask(second, 'm2')[0] == 200  # a copy, which nobody has read
    assert wait_until(lambda: kept.stat().st_mtime_ns != written), second.output()
    digests = json.loads(kept.read_text())['models']
    assert len(digests) == 2 and known.items() <= digests.items() and len(set(digests.values())) == 1
