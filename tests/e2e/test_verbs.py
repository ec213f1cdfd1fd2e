"""The verbs of the command line beside serve, run and chat: the operator's, config, completion, the manual, logs."""
import json
import os
import shutil
import subprocess

import pytest
from conftest import BINARY, BUNDLED, MODELS, ROOT, Server, free_port, http, wait_until


def shoal(*args, stdin='', env=None, cwd=ROOT, timeout=60):
    return subprocess.run([str(BINARY), *map(str, args)], input=stdin, capture_output=True, text=True, timeout=timeout, cwd=cwd,
                          env={**os.environ, **(env or {})})


@pytest.fixture
def operated(tmp_path):
    """A server of its own and a way to run verbs against its operator's socket."""
    socket = tmp_path / 'admin.sock'
    server = Server('--admin-socket', str(socket))
    server.operate = lambda verb, *args, **options: shoal(verb, *args, '--socket', socket, **options)
    yield server
    server.stop()


def test_models_are_loaded_shown_and_unloaded(operated):
    assert operated.operate('ps').stdout.splitlines()[0].split() == ['NAME', 'ID', 'SIZE', 'PROCESSOR', 'CONTEXT', 'UNTIL', 'STATE', 'NEXT', 'REQUESTS', 'LAST', 'USED']
    assert operated.operate('ps', '-q').stdout.split() == BUNDLED
    loaded = operated.operate('load', 'tiny-llama', '--wait')
    assert loaded.returncode == 0 and "'tiny-llama' is loaded" in loaded.stdout and '\r' not in loaded.stderr
    table = operated.operate('ps').stdout
    assert 'tiny-llama' in table and '100% CPU' in table and 'loaded' in table and 'tiny-qwen3' not in table
    assert 'tiny-qwen3' in operated.operate('ps', '--all').stdout
    states = {model['id']: model['status']['value'] for model in json.loads(operated.operate('ps', '--json').stdout)['data']}
    assert states == {name: 'loaded' if name == 'tiny-llama' else 'unloaded' for name in BUNDLED}
    assert operated.operate('stop', 'tiny-llama').returncode == 0
    assert wait_until(lambda: 'tiny-llama' not in operated.operate('ps').stdout)
    assert 'of workspace' in operated.operate('ps').stdout
    unknown = operated.operate('load', 'tiny')
    assert unknown.returncode == 1 and "'tiny' does not exist" in unknown.stderr


def test_stop_ends_the_server(operated):
    stopped = operated.operate('stop', '--timeout', 5)
    assert stopped.returncode == 0 and operated.process.wait(10) == 0
    nobody = operated.operate('ps')
    assert nobody.returncode == 1 and 'no server answers at unix:' in nobody.stderr and 'shoal serve' in nobody.stderr


def test_the_operators_verbs_over_tcp_need_the_key():
    port = free_port()
    server = Server('--admin-port', str(port), '--admin-key', 'op', '--admin-socket', 'none')
    try:
        url = f'http://127.0.0.1:{port}'
        assert shoal('ps', '--url', url).returncode == 1
        assert shoal('ps', '--url', url, '--key', 'op').returncode == 0
        assert shoal('ps', '--url', url, env={'SHOAL_ADMIN_KEY': 'op'}).returncode == 0
    finally:
        server.stop()


def test_config_check_says_where_each_value_comes_from(tmp_path):
    (tmp_path / 'models').mkdir()
    (tmp_path / 'shoal.yaml').write_text('port: 9001\nmax-num-seqs: 7\nadmin-key: geheim\n')
    result = shoal('config', 'check', 'models', '--threads', 3, '--json', cwd=tmp_path, env={'SHOAL_HOST': '::1', 'SHOAL_MAX_NUM_SEQS': '9'})
    assert result.returncode == 0 and 'geheim' not in result.stdout
    settings = json.loads(result.stdout)['settings']
    where = {name: (s['value'], s['source'].rsplit('/', 1)[-1]) for name, s in settings.items()}
    assert where['threads'] == ('3', 'flag') and where['host'] == ('::1', 'environment SHOAL_HOST') and where['port'] == ('9001', 'shoal.yaml:1')
    assert where['max-num-seqs'] == ('9', 'environment SHOAL_MAX_NUM_SEQS') and where['uds'] == ('', 'default') and where['admin-key'][0] == '(set)'
    assert '9001' in shoal('config', 'check', 'models', cwd=tmp_path).stdout


def test_config_check_names_every_problem_with_its_line(tmp_path):
    config = tmp_path / 'c.yaml'
    config.write_text('port: 9001\nprot: 1\nmax-num-seqs: many\nalias: {a: b}\nquantization: q9\n')
    result = shoal('config', 'check', '--config', config)
    assert result.returncode == 1
    for line, words in [(2, "did you mean 'port'"), (3, 'many'), (4, "key 'alias'"), (5, 'q9')]:
        assert any(f'c.yaml:{line}: ' in text and words in text for text in result.stderr.splitlines()), (line, result.stderr)
    config.write_text('port: [1\n')
    assert 'c.yaml:2' in shoal('config', 'check', '--config', config).stderr
    config.write_text('port: 1\nport: 2\n')
    assert "c.yaml:2: the key 'port' is there twice" in shoal('config', 'check', '--config', config).stderr
    config.write_text('admin-port: 4000\n')
    assert '--admin-key' in shoal('config', 'check', '--config', config).stderr


def test_config_show_is_a_file_that_config_check_accepts(tmp_path):
    config = tmp_path / 'shoal.yaml'
    config.write_text(shoal('config', 'show', '--config', 'none').stdout)
    assert shoal('config', 'check', '--config', config).returncode == 0
    schema = json.loads(shoal('config', 'schema').stdout)
    assert schema['properties']['quantization']['enum'] == ['none', 'q4_0', 'q8_0'] and schema['additionalProperties'] is False


def test_serve_finds_the_file_above_its_models(tmp_path):
    shutil.copytree(MODELS / 'tiny-llama', tmp_path / 'models' / 'tiny-llama')
    (tmp_path / 'shoal.yaml').write_text('max-model-len: 128\n')
    server = Server(models=tmp_path / 'models')
    try:
        model = http(server.url + '/v1/models')[2]['data'][0]
        assert model['max_model_len'] == 128 and model['meta']['n_ctx_train'] == 2048
        assert f'settings of {tmp_path}/shoal.yaml' in server.output()
    finally:
        server.stop()
    server = Server('--config', 'none', models=tmp_path / 'models')
    try:
        assert http(server.url + '/v1/models')[2]['data'][0]['max_model_len'] == 2048
    finally:
        server.stop()


def complete(script, *words):
    """What bash would offer for the last of `words`."""
    line = ' '.join(f"'{word}'" for word in words)
    program = f'source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shoal; printf "%s\\n" "${{COMPREPLY[@]}}"'
    return subprocess.run(['bash', '-c', program], capture_output=True, text=True, cwd=ROOT).stdout.split()


def test_bash_completes_verbs_flags_choices_and_models(tmp_path):
    script = tmp_path / 'shoal.bash'
    script.write_text(shoal('completion', 'bash').stdout)
    assert complete(script, BINARY, 'sh') == ['show'] and {'serve', 'bench', 'ps'} <= set(complete(script, BINARY, ''))
    assert complete(script, BINARY, 'serve', '--quant') == ['--quantization']
    assert complete(script, BINARY, 'serve', '--quantization', 'q8') == ['q8_0']
    assert complete(script, BINARY, 'chat', 'tiny-l') == ['tiny-llama']
    assert complete(script, BINARY, 'config', 'sch') == ['schema']


def test_zsh_and_fish_scripts_are_well_formed(tmp_path):
    for shell, check in [('zsh', ['zsh', '-n']), ('fish', ['fish', '--no-execute'])]:
        script = tmp_path / shell
        script.write_text(shoal('completion', shell).stdout)
        assert '--request-rate' in script.read_text() or '-l request-rate' in script.read_text()
        if shutil.which(shell):
            assert subprocess.run([*check, str(script)]).returncode == 0
    assert shoal('completion', 'tcsh').returncode == 2


def test_every_verb_has_help_with_examples_and_a_page(tmp_path):
    assert shoal('man', '--dir', tmp_path).returncode == 0
    verbs = [line.split()[0] for line in shoal('--help').stdout.split('Subcommands:')[1].splitlines() if line.startswith('  ') and not line.startswith('   ')]
    verbs = [verb for verb in verbs if verb != 'shoal' and (tmp_path / f'shoal-{verb}.1').exists()]
    assert len(verbs) >= 15
    for verb in verbs:
        page = (tmp_path / f'shoal-{verb}.1').read_text()
        assert f'shoal\\-{verb}' in page and '.SH EXAMPLES' in page, verb
        help_text = shoal(verb, '--help').stdout
        assert 'Examples:' in help_text and f'shoal {verb}' in help_text, verb
    assert 'SHOAL_MAX_MODEL_LEN' in (tmp_path / 'shoal-serve.1').read_text()
    if shutil.which('mandoc'):
        for page in tmp_path.iterdir():
            lint = subprocess.run(['mandoc', '-T', 'lint', '-W', 'warning', str(page)], capture_output=True, text=True).stdout
            assert [line for line in lint.splitlines() if 'missing date' not in line] == [], lint
    assert shoal('man', 'nonsense').returncode == 2


def test_json_log_lines_have_fields_of_their_own(own_server):
    server = own_server('--log-format', 'json')
    http(server.url + '/v1/completions', {'model': 'tiny-llama', 'prompt': 'x', 'max_tokens': 2})
    assert wait_until(lambda: 'prompt_tokens' in server.output())
    lines = [json.loads(line) for line in server.output().splitlines() if line.startswith('{"ts"')]
    request = next(line for line in lines if line['msg'] == 'request')
    assert request['status'] == 200 and request['model'] == 'tiny-llama' and request['completion_tokens'] >= 0 and request['level'] == 'info'


def test_jsonl_output_is_one_line_per_line_for_readers_that_go_by_unicode():
    text = 'a\u2028b\u0085c\u2029d'
    out = shoal('tokenize', '--model', 'models/tiny-llama', '--jsonl', stdin=json.dumps({'text': text}) + '\n').stdout
    assert len(out.splitlines()) == 1 and json.loads(out)['decoded'] == text


def test_list_prints_names_for_scripts():
    assert shoal('list', 'models', '-q').stdout.split() == BUNDLED
