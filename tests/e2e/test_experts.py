"""A model with experts in less memory than its weights take: the same answers, and figures that say how it does."""
import json
import shutil
import subprocess

import pytest

from conftest import BINARY, MODELS, http

FLAGS = ['--max-model-len', '512', '--max-num-batched-tokens', '64', '--max-num-seqs', '16', '--threads', '2', '--host-memory', '0']


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    models = tmp_path_factory.mktemp('experts')
    for name in ['tiny-qwen3-moe', 'tiny-deepseek-v3']:
        shutil.copytree(MODELS / name, models / name)
    return models


def questions(name):
    return [row for row in json.loads((MODELS / name / 'reference_answers.json').read_text())['greedy']][:12]


def ask(server, name, row):
    return http(server.url + '/v1/chat/completions', {'model': name, 'messages': [{'role': 'user', 'content': row['question']}], 'temperature': 0, 'max_tokens': 160})


@pytest.mark.parametrize('flags', [[], ['--model-io', 'direct'], ['--devices', 'guarded']])
def test_a_model_with_less_memory_than_its_weights_answers_the_same(own_server, folder, tmp_path, flags):
    socket = str(tmp_path / 's')
    server = own_server(*FLAGS, *flags, '--admin-socket', socket, '--device-memory', '10MiB', models=folder)
    for name in ['tiny-qwen3-moe', 'tiny-deepseek-v3', 'tiny-qwen3-moe']:
        for row in questions(name):
            status, _, answer = ask(server, name, row)
            assert status == 200, answer
            assert answer['choices'][0]['message']['content'] == row['model_says']
    assert "'tiny-qwen3-moe': its weights of" in server.output() and 'experts that are not among them' in server.output()
    hits, lookups = (server.metric('shoal_expert_' + what, model_name='tiny-qwen3-moe') for what in ['hits_total', 'lookups_total'])
    assert 0 < hits < lookups  # read in this order: reports may come in between
    assert server.metric('shoal_expert_fetched_bytes_total', model_name='tiny-qwen3-moe') > 0
    assert all(server.metric('shoal_expert_skew', model_name=name, layer='1') > 1 for name in ['tiny-qwen3-moe', 'tiny-deepseek-v3'])
    top = subprocess.run([BINARY, 'top', '--once', '--interval', '0.1', '--socket', socket], capture_output=True, text=True, timeout=30)
    assert '% found on the device' in top.stdout and 'x the mean in layer' in top.stdout, top.stdout + top.stderr


def test_show_says_how_much_memory_is_enough():
    shown = subprocess.run([BINARY, 'show', MODELS / 'tiny-qwen3-moe'], capture_output=True, text=True, timeout=30)
    assert '9.06 MiB in memory, or 2.49 MiB and more with a part of the experts' in shown.stdout, shown.stdout + shown.stderr
    dense = json.loads(subprocess.run([BINARY, 'show', MODELS / 'tiny-llama', '--json'], capture_output=True, text=True, timeout=30).stdout)
    assert dense['least_weight_bytes'] == dense['weight_bytes']


def test_where_not_even_one_layer_of_experts_fits_the_model_is_refused_with_what_it_needs(folder):
    done = subprocess.run([BINARY, 'serve', folder, '--port', '0', *FLAGS, '--device-memory', '5MiB'], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "'tiny-qwen3-moe' is not served: its weights of" in done.stderr and 'with the experts of one layer' in done.stderr
