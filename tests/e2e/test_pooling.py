"""More models than the device holds: turns, and the flags that say how models share it."""
import concurrent.futures
import os
import shutil
import subprocess

import pytest

from conftest import BINARY, MODELS, NAMES, http

SMALL = ['--device-memory', '16MiB', '--max-model-len', '512', '--max-num-batched-tokens', '64', '--max-num-seqs', '16', '--threads', '2']
ONE_THREAD = [*SMALL[:-1], '1']


@pytest.fixture(scope='module')
def six_models(tmp_path_factory):
    folder = tmp_path_factory.mktemp('six')
    for i in range(6):
        shutil.copytree(MODELS / NAMES[i % 2], folder / f'm{i}')
    return folder


def ask(server, model, variant=0, tokens=400):
    body = {'model': model, 'prompt': [(j * 7919 + variant * 31) % 700 + 10 for j in range(40)], 'max_tokens': tokens,
            'temperature': 0, 'ignore_eos': True}
    return http(server.url + '/v1/completions', body)


def loads(server):
    return server.metric('shoal_model_loads_total')


@pytest.mark.parametrize('flags', [[], ['--host-memory', '64MiB'], ['--model-io', 'direct', '--weight-cache', '8MiB'], ['--host-memory', '0'], ['--scheduling', 'request']])
def test_models_that_do_not_fit_together_all_answer_as_they_do_alone(own_server, six_models, flags):
    server = own_server(*SMALL, *flags, models=six_models)
    asked = [(f'm{i}', variant) for i in range(6) for variant in range(2)]
    alone = [ask(server, *one)[2]['choices'][0]['text'] for one in asked]
    before = loads(server)
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(lambda one: ask(server, *one), asked))
    assert [status for status, _, _ in together] == [200] * len(asked)
    assert [answer['choices'][0]['text'] for _, _, answer in together] == alone
    assert loads(server) >= before + 3, 'the budget of this test holds all models at once'


def test_static_scheduling_refuses_what_does_not_fit_and_says_so(own_server, six_models):
    server = own_server(*SMALL, '--scheduling', 'static', '--pin', 'm5', models=six_models)
    answers = {model: ask(server, model, tokens=4) for model in (f'm{i}' for i in range(6))}
    assert answers['m5'][0] == 200, 'a pinned model comes first'
    refused = [answer for status, _, answer in answers.values() if status == 503]
    assert refused and all('--scheduling token' in answer['error']['message'] for answer in refused)
    assert loads(server) == 6 - len(refused)


def test_a_wait_that_would_be_too_long_is_refused_with_the_time_to_come_back(own_server, six_models):
    server = own_server(*SMALL, '--max-wait', 'm1=0.001', models=six_models)
    status, headers, answer = ask(server, 'm1', tokens=4)
    assert status == 503 and int(headers['Retry-After']) >= 1
    assert 'max_wait' in answer['error']['message']
    assert ask(server, 'm3', tokens=4)[0] == 200


def test_an_idle_model_leaves_the_device(own_server, six_models):
    server = own_server(*SMALL, '--idle-ttl', 'm0=0', models=six_models)
    for times in (1, 2):
        assert ask(server, 'm0', tokens=4)[0] == 200
        assert ask(server, 'm1', tokens=4)[0] == 200
        assert server.metric('shoal_model_loads_total', model_name='m0') == times
    assert server.metric('shoal_model_loads_total', model_name='m1') == 1


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason='one core')
@pytest.mark.parametrize('partition', ['auto', 'both'])
def test_prompts_and_decodes_on_devices_of_their_own_give_the_same_answers(own_server, six_models, partition):
    cores = sorted(os.sched_getaffinity(0))[:2]
    asked = [(f'm{i}', variant) for i in range(6) for variant in range(2)]
    one = own_server(*SMALL, models=six_models)
    alone = [ask(one, *request)[2]['choices'][0]['text'] for request in asked]
    two = own_server(*ONE_THREAD, '--host-memory', '16MiB', '--devices', f'cpu:{cores[0]},cpu:{cores[1]}', '--partition', partition, models=six_models)
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(lambda request: ask(two, *request), asked))
    assert [status for status, _, _ in together] == [200] * len(asked)
    assert [answer['choices'][0]['text'] for _, _, answer in together] == alone
    assert two.metric('shoal_model_loads_total') >= 7, 'both devices computed'


def test_devices_that_cannot_be_are_refused(tmp_path):
    for flags, reason in [(['--devices', 'cpu:0,cpu:0'], 'named twice'), (['--devices', 'tpu'], 'unknown kind of device'),
                          (['--devices', 'cpu:9999'], 'no range of cores')]:
        ended = subprocess.run([str(BINARY), 'serve', str(MODELS), *flags], capture_output=True, text=True, timeout=30)
        assert ended.returncode == 1 and reason in ended.stderr, ended.stderr
